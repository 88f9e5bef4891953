// Elements and words. Whatever comes from the home is text: nothing here, or anywhere in the console, parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** An element of HTML: h("button.main", {onclick}, "Run"). */
export function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  return fill(element, attributes, children);
}

/** An element of SVG. */
export function s(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElementNS(SVG, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return fill(element, attributes, children);
}

export function clear(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) => (value === null || value === undefined ? "–" : value < 10_000 ? number(value) : short.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${value.toFixed(value < 10 && at ? 1 : 0)} ${units[at]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

export function ago(moment) {
  if (!moment) return "–";
  const gone = Math.max(0, (Date.now() - Date.parse(moment)) / 1000);
  if (gone < 2) return "just now";
  if (gone < 60) return `${Math.floor(gone)} s ago`;
  if (gone < 3600) return `${Math.floor(gone / 60)} min ago`;
  if (gone < 86_400) return `${Math.floor(gone / 3600)} h ago`;
  return `${Math.floor(gone / 86_400)} d ago`;
}

export const clock = (moment) => (moment ? new Date(moment).toLocaleTimeString("en-GB") : "–");
export const moment = (value) => (value ? new Date(value).toISOString().replace("T", " ").slice(0, 19) : "–");

/** A value as a cell shows it. */
export function shown(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A page's head: title, what it is about, and what one may do. */
export function head(title, about, ...actions) {
  return h("div.head", null, h("div", null, h("h1", null, title), about && h("p.quiet", null, about)), h("div.actions", null, actions));
}

export const empty = (title, about, ...more) => h("div.empty", null, h("h2", null, title), h("p.quiet", null, about), more.filter(Boolean));

/** What went wrong: message, detail and hint, as the server tells them. */
export function problem(error) {
  const told = error?.problem ?? { message: String(error?.message ?? error) };
  const where = told.line ? ` (line ${told.line}, column ${told.column})` : "";
  return h("div.problem", { role: "alert" }, h("b", null, told.message + where), told.detail && h("p", null, told.detail),
    told.hint && h("p.hint", null, told.hint));
}

/** Whether somebody means it. */
export function confirmed(question, about, verb) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question, onclose: () => { dialog.remove(); resolve(dialog.returnValue === verb); } },
      h("form.page", { method: "dialog" }, h("h2", null, question), h("p.quiet", null, about),
        h("div.row", null, h("button", { value: "" }, "Cancel"), h("button.danger", { value: verb, id: "confirm" }, verb))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function toast(text, kind = "") {
  const one = h(`div.toast${kind ? "." + kind : ""}`, null, text);
  document.getElementById("toasts").append(one);
  setTimeout(() => one.remove(), 6000);
}

export const failed = (error) => toast(`${error?.problem?.message ?? error?.message ?? error}${error?.problem?.hint ? ". " + error.problem.hint : ""}`, "bad");

/** Run something at most once a frame. */
export function paced(run) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; run(); });
  };
}
