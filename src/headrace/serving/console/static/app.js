// The frame around the pages: which one is shown, what is live, keys of the keyboard, light and dark, signing in.

import { clear, empty, failed, h, number, problem, s, toast } from "/console/dom.js";
import { Live, get, send, whenUnknown } from "/console/api.js";

// Each page: its name, its title, its key after g, its sign, and what one must be allowed to see it.
const PAGES = [
  ["start", "Start", "t", "M5 3l8 5-8 5z", "administer"],
  ["overview", "Overview", "o", "M2 8h3m6-4h3m-3 8h3M5 5.500h0v5h3v-5zm3 2.500c2 0 1-4 3-4m-3 4c2 0 1 4 3 4"],
  ["board", "Board", "b", "M2 13h12M4 10V7m4 3V3m4 7V5", "read"],
  ["sql", "SQL", "s", "M3 4l4 4-4 4m5 0h5", "read"],
  ["changes", "Changes", "c", "M3 5h10m0 0l-3-3m3 3M13 11H3m0 0l3 3m-3-3", "read"],
  ["view", "Relations", "v", "M2 3h12v10H2zm0 3.500h12M6 6.500V13"],
  ["time", "Time", "i", "M8 2a6 6 0 100 12A6 6 0 008 2zm0 3v3l2 2", "read"],
  ["runtime", "Runtime", "r", "M2 9h3l2-6 3 10 2-4h2", "observe"],
  ["sources", "Sources and feeds", "u", "M2 8h7m0 0L6 5m3 3l-3 3M11 3h3v10h-3", "observe"],
  ["events", "Events", "e", "M3 3v10M3 5h6M3 9h9m-3-4h0M12 9h0", "events"],
  ["letters", "Dead letters", "d", "M2 4h12v8H2zm0 0l6 5 6-5", "letters"],
];
const main = document.getElementById("main");
const live = new Live();
const state = { session: {}, leave: null, turn: 0 };

function route() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const parts = rest.map((one) => { try { return decodeURIComponent(one); } catch { return one; } });
  return { page: PAGES.some(([name]) => name === page) ? page : "", parts };
}

const NEEDS = { read: "read over some relation", administer: "admin over everything", observe: "observe", letters: "read over dead_letters, by its name,", events: "read over an event store, by its name," };
const FLAGS = { read: "--read RELATION", administer: "--admin '*'", observe: "--observe", letters: "--read dead_letters", events: "--read STORE" };
const isOpen = ([, , , , need]) => !need || state.session.may?.[need] !== false;

function closed([, title, , , need]) {
  return empty(`${title}: not with this key`, `This page takes the role ${NEEDS[need]}, which ${state.session.who ?? "this key"} does not have. Ask whoever administers the home for a key with it: headrace key create NAME ${FLAGS[need]}`,
    h("a.button", { href: "#/overview" }, "To the overview"));
}

async function show() {
  const { page, parts } = route();
  if (!page) { location.replace(`#/${await first()}`); return; }
  const turn = ++state.turn;
  state.leave?.();
  state.leave = null;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const asked = PAGES.find(([name]) => name === page);
  document.title = `${asked[1]} · Headrace`;
  if (!isOpen(asked)) { clear(main, h("div.page", { "data-page": page, "data-closed": "true", "data-ready": "true" }, closed(asked))); return; }
  try {
    const { render } = await import(`/console/pages/${page}.js`);
    if (turn !== state.turn) return;
    const leavings = [];
    const context = {
      parts, live, session: state.session, may: (what) => state.session.may?.[what] !== false,
      go: (path) => { location.hash = path; },
      onLeave: (run) => leavings.push(run),
      onEpoch: (run) => leavings.push(live.listen(run)),
      every: (ms, run) => { const timer = setInterval(() => !document.hidden && run(), ms); leavings.push(() => clearInterval(timer)); },
      isHere: () => turn === state.turn,
    };
    state.leave = () => leavings.forEach((run) => run());
    const root = h("div.page", { "data-page": page });
    clear(main, root);
    await render(root, context);
    root.dataset.ready = "true";
  } catch (error) {
    if (turn === state.turn && state.session.known !== false) clear(main, problem(error));
  }
}

async function first() {
  if (state.session.may?.administer === false) return "overview";
  try { return (await get("/v1/graph")).relations.some((one) => !one.system) ? "overview" : "start"; } catch { return "overview"; }
}

function frame() {
  clear(document.getElementById("nav"), PAGES.filter(isOpen).map(([name, title, key, sign]) =>
    h("a", { href: `#/${name}`, "data-page": name, title: `g ${key}` }, icon(sign), h("span", null, title), h("kbd", null, key))));
  const tools = document.getElementById("tools");
  clear(tools,
    h("button.icon", { onclick: help, title: "Keys of the keyboard (?)", "aria-label": "Keys of the keyboard" }, "?"),
    h("button.icon", { onclick: turnTheme, title: "Light or dark", "aria-label": "Light or dark", id: "theme" }, "◐"),
    state.session.needs_key && h("button", { onclick: signOut }, "Sign out"));
  document.getElementById("foot").textContent = [state.session.version && `Headrace ${state.session.version}`].filter(Boolean).join(" · ");
  if (state.session.signed_in && state.session.who) {
    const grants = state.session.grants ?? [];
    document.getElementById("foot").append(h("div", { id: "who", title: `Signed in as ${state.session.who}: ${grants.join(", ") || "no grants"}` }, state.session.who, h("div.quiet.mono", null, grants.slice(0, 4).join(", "), grants.length > 4 && `, and ${grants.length - 4} more`)));
  }
}

function icon(sign) {
  return s("svg.sign", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: sign }));
}

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("headrace.theme", root.dataset.theme); } catch { /* it holds until the page is left */ }
}

function help() {
  const dialog = h("dialog", { onclose: () => dialog.remove() },
    h("h2", null, "Keys"),
    h("dl.keys", null, PAGES.filter(isOpen).map(([, title, key]) => [h("dt", null, h("kbd", null, "g"), " ", h("kbd", null, key)), h("dd", null, title)]),
      h("dt", null, h("kbd", null, "/")), h("dd", null, "the page's first field"),
      h("dt", null, h("kbd", null, "Ctrl"), " ", h("kbd", null, "Enter")), h("dd", null, "run the SQL"),
      h("dt", null, h("kbd", null, "Ctrl"), " ", h("kbd", null, "Space")), h("dd", null, "complete a word"),
      h("dt", null, h("kbd", null, "Space")), h("dd", null, "pause the changes")),
    h("form", { method: "dialog" }, h("button.main", null, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

let chord = 0;
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (event.key === "?") { help(); return; }
  if (event.key === "/") {
    const field = main.querySelector("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (field) { event.preventDefault(); field.focus(); }
    return;
  }
  if (Date.now() - chord < 1200) {
    const found = PAGES.find((one) => one[2] === event.key && isOpen(one));
    chord = 0;
    if (found) { event.preventDefault(); location.hash = `/${found[0]}`; }
  } else if (event.key === "g") chord = Date.now();
});

live.states.add((what, epoch) => {
  const sign = document.getElementById("live");
  sign.className = `live ${what}`;
  sign.lastElementChild.textContent = what === "live" ? `Epoch ${number(epoch)}` : "Connection lost; trying again";
});

function askKey() {
  state.session.known = false;
  live.end();
  state.leave?.();
  state.leave = null;
  const field = h("input", { type: "password", name: "key", autocomplete: "current-password", required: true, id: "key" });
  const told = h("div");
  const form = h("form.signin.card", {
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        await send("/console/session", { key: field.value });
        field.value = "";
        await begin();
      } catch (error) { clear(told, problem(error)); field.select(); }
    },
  }, h("h1", null, "Sign in"), h("p.quiet", null, "This server asks for an API key."), h("label", { for: "key" }, "API key"), field,
  told, h("button.main", { type: "submit" }, "Sign in"),
  state.session.oidc && h("p.quiet", null, "Without a key: ", h("a", { href: "/auth/login", id: "oidc" }, "sign in with your account")));
  clear(main, form);
  document.body.dataset.known = "no";
  field.focus();
}

async function signOut() {
  try { await send("/console/session", undefined, { method: "DELETE" }); } catch (error) { failed(error); }
  askKey();
}

async function begin() {
  state.session = await get("/console/session");
  if (!state.session.known) { frame(); askKey(); return; }
  document.body.dataset.known = "yes";
  frame();
  live.begin();
  await show();
}

whenUnknown(() => { if (state.session.known !== false) { toast("The session has ended.", "bad"); askKey(); } });
addEventListener("hashchange", () => state.session.known && show());
begin().catch((error) => clear(main, problem(error), empty("Nothing to show", "The server did not say who you are.")));
