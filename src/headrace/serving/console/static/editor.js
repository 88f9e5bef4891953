// An editor of SQL: colours behind a plain textarea, completion of relations, columns and words.

import { clear, h } from "/console/dom.js";

export const WORDS = ("select from where group by order having limit join left right full inner outer cross on as and or not in is null like between " +
  "case when then else end distinct union all except intersect with over partition rows range exists cast interval date timestamp true false asc desc " +
  "insert into values update set delete create table view materialized replace drop alter add column primary key source show tables views sources describe " +
  "explain using lateral window version of count sum avg min max coalesce round date_trunc row_number lag lead").split(" ");
const TOKEN = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*(?:'|$))|(`[^`]*(?:`|$))|(\b\d+(?:\.\d+)?\b)|([A-Za-z_][A-Za-z0-9_]*)/g;

/** An editor; `names` is a map of each relation to its columns. */
export function editor({ value = "", names = () => new Map(), run, change = () => {} }) {
  const colours = h("pre", { "aria-hidden": "true" });
  const area = h("textarea", { spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": "SQL", value });
  const box = h("div.editor", null, colours, area);
  let choices = [], chosen = 0, list = null;

  function paint() {
    const words = new Set(WORDS), relations = names();
    const text = area.value;
    const parts = [];
    let at = 0;
    for (const found of text.matchAll(TOKEN)) {
      parts.push(text.slice(at, found.index));
      const word = found[5]?.toLowerCase();
      const kind = found[1] ? "c" : found[2] ? "q" : found[4] ? "n" : word && words.has(word) ? "k" : word && relations.has(word) ? "r" : null;
      parts.push(kind ? h(`span.${kind}`, null, found[0]) : found[0]);
      at = found.index + found[0].length;
    }
    parts.push(text.slice(at), "\n");
    clear(colours, parts.filter(Boolean));
    colours.scrollTop = area.scrollTop;
  }

  function word() {
    const before = area.value.slice(0, area.selectionStart);
    return /(?:([A-Za-z_][A-Za-z0-9_]*)\.)?([A-Za-z_][A-Za-z0-9_]*)?$/.exec(before);
  }

  function find(forced) {
    const [, owner, started = ""] = word();
    const relations = names(), begun = started.toLowerCase(), text = area.value.toLowerCase();
    if (!forced && !owner && begun.length < 2) return [];
    const of = owner && (relations.get(owner.toLowerCase()) ?? aliased(text, owner.toLowerCase(), relations));
    const used = [...relations].filter(([name]) => text.includes(name));
    const all = of ? of.map((name) => [name, "column"]) : [
      ...used.flatMap(([name, columns]) => columns.map((one) => [one, name])),
      ...[...relations.keys()].map((name) => [name, "relation"]),
      ...WORDS.map((one) => [one.toUpperCase(), ""]),
    ];
    const seen = new Set(), starts = [], holds = [];
    for (const [name, about] of all) {
      const low = name.toLowerCase();
      if (seen.has(low) || low === begun) continue;
      if (low.startsWith(begun)) { seen.add(low); starts.push([name, about]); }
      else if (begun.length > 1 && low.includes(begun)) { seen.add(low); holds.push([name, about]); }
    }
    return [...starts, ...holds].slice(0, 40);
  }

  function offer(forced = false) {
    choices = find(forced);
    chosen = 0;
    if (!choices.length) { close(); return; }
    if (!list) { list = h("div.choices", { role: "listbox" }); box.append(list); }
    const place = caret();
    list.style.left = `${Math.min(place.x, box.clientWidth - 240)}px`;
    list.style.top = `${place.y}px`;
    clear(list, choices.map(([name, about], at) => h("div", { role: "option", onmousedown: (event) => { event.preventDefault(); chosen = at; take(); } }, name, h("small", null, about))));
    point();
  }

  function point() {
    [...list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function close() {
    list?.remove();
    list = null;
    choices = [];
  }

  function take() {
    const [name] = choices[chosen], [, , started = ""] = word(), at = area.selectionStart;
    area.setRangeText(name, at - started.length, at, "end");
    close();
    paint();
    change(area.value);
  }

  /** Where the caret is: the colours behind have the same text at the same place. */
  function caret() {
    let left = area.selectionStart;
    const walk = document.createTreeWalker(colours, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (left <= node.length) {
        const range = document.createRange();
        range.setStart(node, Math.max(0, left - 1));
        range.setEnd(node, left);
        const at = range.getBoundingClientRect(), of = box.getBoundingClientRect();
        return { x: at.right - of.left, y: at.bottom - of.top + 2 };
      }
      left -= node.length;
    }
    return { x: 14, y: 30 };
  }

  area.addEventListener("input", () => { paint(); offer(); change(area.value); });
  area.addEventListener("scroll", () => { colours.scrollTop = area.scrollTop; });
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); close(); run?.(); return; }
    if (event.ctrlKey && event.key === " ") { event.preventDefault(); offer(true); return; }
    if (!list) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); chosen = (chosen + (event.key === "ArrowDown" ? 1 : choices.length - 1)) % choices.length; point(); }
    else if (event.key === "Enter" || event.key === "Tab") { event.preventDefault(); take(); }
    else if (event.key === "Escape") { event.preventDefault(); close(); }
  });
  paint();
  return { element: box, area, get value() { return area.value; }, set value(text) { area.value = text; paint(); change(text); }, paint };
}

function aliased(text, alias, relations) {
  for (const [, name, as] of text.matchAll(/\b(?:from|join)\s+([a-z_][a-z0-9_]*)\s+(?:as\s+)?([a-z_][a-z0-9_]*)/g)) {
    if (as === alias && relations.has(name)) return relations.get(name);
  }
  return undefined;
}
