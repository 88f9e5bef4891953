// Relations: one view's definition, the rule of each operator, its state, its epochs; and whether it is right.

import { ago, clear, compact, empty, h, head, number, problem, seconds } from "/console/dom.js";
import { get, named, quoted, send } from "/console/api.js";
import { lines } from "/console/chart.js";

export async function render(root, page) {
  if (!page.parts[0]) { await list(root, page); return; }
  const name = page.parts[0];
  const said = h("div"), body = h("div.page");
  const check = h("button.main", { onclick: () => verify(), id: "verify" }, "Verify now");
  root.append(h("div.row", null, h("a", { href: "#/view" }, "Relations"), h("span.quiet", null, "/"), h("b.mono", null, name)), body);
  let told;

  async function refresh() {
    try { told = await get(`/v1/relations/${named(name)}`); } catch (error) { clear(body, problem(error)); return; }
    if (page.isHere()) draw();
  }

  async function verify() {
    check.disabled = true;
    clear(said, h("p.quiet", null, "Spark recomputes it in full and compares row by row."), h("progress"));
    try {
      const verdict = await send(`/v1/relations/${named(name)}/verify`, {});
      clear(said, h(verdict.ok ? "p.badge.good" : "div.problem", { id: "verdict" }, verdict.ok ? `Equal to its full recompute at epoch ${number(verdict.epoch)}` : h("pre.explain", null, verdict.text)));
    } catch (error) { clear(said, problem(error)); } finally { check.disabled = false; }
  }

  function draw() {
    const view = told.kind === "view";
    const kept = told.state.reduce((sum, one) => sum + one.signed_rows, 0);
    const took = told.epochs.map((one) => one.seconds).filter((one) => one > 0);
    clear(body,
      head(name, view ? `A view, ${told.incremental ? "kept current incrementally" : "recomputed when what it reads changes"}.` : told.event_store ? "An event store: a table to which events are only appended." : told.system ? "A table that Headrace keeps." : "A table.",
        h("a.button", { href: `#/sql/${named(`SELECT * FROM ${quoted(name)} LIMIT 100`)}` }, "Query"), h("a.button", { href: `#/changes/${named(name)}` }, "Changes"),
        told.event_store && page.may("events") && h("a.button", { href: `#/events/${named(name)}` }, "Events"),
        h("a.button", { href: `#/time/${named(name)}` }, "Time"), view && page.may("administer") && check),
      said,
      h("div.tiles", null, [["Rows", compact(told.rows), told.changed_epoch ? `changed ${ago(told.changed_at)}` : "never changed"],
        ["State", compact(kept), `signed rows in ${told.state.length} stores`],
        ["Last epoch", took.length ? seconds(took.at(-1)) : "–", `of ${told.epochs.length} that changed it`],
        ["Read by", number(told.read_by.length), "views"]].map(([title, value, more]) => h("div.tile", null, h("h3", null, title), h("b", null, value), h("small", null, more)))),
      h("div.split", null,
        view && told.sql !== null && h("div.card", null, h("h2", null, "How each operator follows a change"), h("pre.explain", { id: "explain" }, told.explain.map((line) => h(/^(because|note)/.test(line) ? "span.because" : "span", null, `${line}\n`)))),
        view && told.sql !== null && h("div.card", null, h("h2", null, "Definition"), h("pre.sql", null, told.sql)),
        h("div.card", null, h("h2", null, "Columns"), h("div.scroll", null, h("table.plain", null, h("tbody", null, told.columns.map((one) => h("tr", null, h("td.mono", null, one.name), h("td.quiet.mono", null, one.type), h("td", null, one.key && h("span.badge.accent", null, "key")))))))),
        h("div.page", null,
          h("div.card", null, h("h2", null, "Seconds of the epochs that changed it"), took.length > 1 ? lines({ series: [{ name: "seconds", values: told.epochs.map((one) => one.seconds) }], labels: told.epochs.map((one) => `epoch ${one.epoch}`), form: seconds, height: 150 }) : h("p.quiet", null, "Too few yet.")),
          h("div.card", null, h("h2", null, "State"), h("div.scroll", null, h("table.plain", null, h("thead", null, h("tr", null, h("th", null, "store"), h("th.num", null, "rows"), h("th.num", null, "signed rows"))),
            h("tbody", null, told.state.map((one) => h("tr", null, h("td.mono", null, one.name), h("td.num", null, number(one.rows)), h("td.num", null, number(one.signed_rows)))))))),
          h("div.card", null, h("h2", null, "Reads and is read by"), h("p", null, chips(told.reads), told.reads.length ? " → " : "", h("b.mono", null, name), told.read_by.length ? " → " : "", chips(told.read_by))))));
  }

  let due = 0;
  page.onEpoch((live) => {
    if (live.epochs.some((one) => name in one.changes) && Date.now() - due > 1000) { due = Date.now(); refresh(); }
  });
  await refresh();
}

const chips = (names) => names.map((one, at) => [at ? ", " : "", h("a.mono", { href: `#/view/${named(one)}` }, one)]);

async function list(root, page) {
  const graph = await get("/v1/graph");
  const rows = h("tbody");
  const filter = h("input", { type: "search", placeholder: "Find a relation", "aria-label": "Find a relation", oninput: () => draw() });
  root.append(head("Relations", "Tables and views, and how each view is kept current.", filter));
  if (!graph.relations.length) { root.append(page.may("administer") ? empty("No relation yet", "Make the example, or paste your own SQL.", h("a.button", { href: "#/start" }, "Go to Start")) : empty("No relation for this key", "It may read none that is there.")); return; }
  root.append(h("div.card.scroll", null, h("table", null, h("thead", null, h("tr", null, ["Name", "Kind", "Kept"].map((one) => h("th", null, one)), h("th.num", null, "Rows"), h("th.num", null, "Changes/s"), h("th", null, "Changed"))), rows)));
  function draw() {
    const word = filter.value.trim().toLowerCase();
    clear(rows, graph.relations.filter((one) => one.name.includes(word)).map((one) => h("tr", null, h("td", null, h("a.mono", { href: `#/view/${named(one.name)}` }, one.name)),
      h("td", null, one.event_store ? "event store" : one.system ? "system table" : one.kind), h("td", null, one.kind === "view" ? h(`span.badge.${one.incremental ? "good" : "warn"}`, null, one.incremental ? "incremental" : "recomputed") : ""),
      h("td.num", null, number(one.rows)), h("td.num", null, one.rate.toFixed(1)), h("td", null, ago(one.changed_at)))));
  }
  draw();
}
