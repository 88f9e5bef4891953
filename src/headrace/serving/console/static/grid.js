// A list of which only the lines in sight are in the page: a hundred thousand rows scroll like a hundred.

import { h, paced, shown } from "/console/dom.js";

const LINE = 26;
// However tall the place is: more lines than any screen has would only be laid out in vain.
const MOST_LINES = 150;

/** A grid of lines; each is an array of values, and may have a `kind` that colours it. */
export class Grid {
  constructor(titles, { widths, follow = false } = {}) {
    this.lines = [];
    this.titles = titles;
    this.widths = widths;
    this.follow = follow;
    this.bar = h("div.titles");
    this.spacer = h("div.spacer");
    this.element = h("div.grid", { tabindex: "0", role: "grid", "aria-label": "Rows" }, this.bar, this.spacer);
    this.draw = paced(() => this.drawNow());
    this.element.addEventListener("scroll", this.draw, { passive: true });
    this.watch = new ResizeObserver(this.draw);
    this.watch.observe(this.element);
    this.pool = [];
    this.retitle(titles);
  }

  retitle(titles, widths = this.widths) {
    this.titles = titles;
    this.widths = widths;
    this.columns = titles.map((title, at) => widths?.[at] ?? `${Math.min(320, Math.max(70, 24 + String(title).length * 8))}px`).join(" ");
    this.bar.style.gridTemplateColumns = this.columns;
    this.bar.replaceChildren(...titles.map((title) => h("span", { title }, title)));
    for (const line of this.pool) line.remove();
    this.pool = [];
    this.draw();
  }

  /** Show these lines, with columns as wide as the first of them need. */
  fit(titles, lines) {
    const looked = lines.slice(0, 60);
    const widths = titles.map((title, at) => {
      const longest = looked.reduce((most, line) => Math.max(most, shown(line[at]).length), String(title).length);
      return `${Math.min(360, Math.max(64, 26 + longest * 7.6))}px`;
    });
    this.lines = lines;
    this.retitle(titles, widths);
  }

  set(lines) {
    this.lines = lines;
    this.draw();
  }

  drawNow() {
    const { element, spacer, lines } = this;
    const atEnd = this.follow && element.scrollTop + element.clientHeight > element.scrollHeight - LINE * 2;
    spacer.style.height = `${lines.length * LINE}px`;
    if (this.follow && (atEnd || this.stick)) element.scrollTop = element.scrollHeight;
    const first = Math.max(0, Math.floor((element.scrollTop - LINE) / LINE) - 4);
    const count = Math.min(lines.length - first, Math.ceil(element.clientHeight / LINE) + 10, MOST_LINES);
    while (this.pool.length > Math.max(0, count)) this.pool.pop().remove();
    while (this.pool.length < count) {
      const line = h("div.line", { role: "row" }, this.titles.map(() => h("span", { role: "gridcell" })));
      line.style.gridTemplateColumns = this.columns;
      this.pool.push(line);
      spacer.append(line);
    }
    for (let at = 0; at < count; at += 1) this.put(this.pool[at], first + at);
  }

  put(element, at) {
    const line = this.lines[at];
    element.style.top = `${at * LINE}px`;
    if (element.shows === line) return;
    element.shows = line;
    element.className = line.kind ? `line ${line.kind}` : "line";
    for (let column = 0; column < this.titles.length; column += 1) {
      const cell = element.children[column];
      const value = line[column];
      const text = value === undefined ? "" : shown(value);
      cell.textContent = text.length > 2000 ? `${text.slice(0, 2000)}…` : text;
      cell.title = text.length > 24 ? text.slice(0, 4000) : "";
      cell.className = value === null ? "null" : "";
    }
  }

  close() {
    this.watch.disconnect();
  }
}
