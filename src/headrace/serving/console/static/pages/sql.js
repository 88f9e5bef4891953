// SQL: an editor with completion and history, a grid of results, export, plan, cancel.

import { clear, failed, h, head, number, problem, seconds } from "/console/dom.js";
import { file, get, query } from "/console/api.js";
import { editor } from "/console/editor.js";
import { Grid } from "/console/grid.js";

const KEPT = "headrace.sql", DRAFT = "headrace.draft", MOST = 100;
const FORMS = { CSV: ["text/csv", "csv"], JSON: ["application/json", "json"], Arrow: ["application/vnd.apache.arrow.stream", "arrows"] };

export async function render(root, page) {
  let names = new Map(), running = null, last = "", grid = null;
  const limit = h("select", { "aria-label": "Rows" }, [["200", "200 rows"], ["1000", "1,000 rows"], ["10000", "10,000 rows"], ["", "all rows"]].map(([value, text]) => h("option", { value }, text)));
  const start = h("button.main", { onclick: () => run() }, "Run");
  const cancel = h("button", { onclick: () => running?.abort(), disabled: true }, "Cancel");
  const told = h("span.quiet", { role: "status" }), result = h("div.page.grow"), kept = h("div.history");
  const write = editor({ value: page.parts[0] ?? read(DRAFT) ?? "SELECT 1 AS one", names: () => names, run: () => run(), change: (text) => keep(DRAFT, text) });
  root.append(head("SQL", "Ctrl Enter runs it, Ctrl Space completes a word."), write.element,
    h("div.row", null, start, cancel, h("button", { onclick: () => run(true) }, "Plan"), limit,
      h("span.grow", null, told), Object.keys(FORMS).map((name) => h("button", { onclick: () => save(name) }, name))),
    result, h("details", null, h("summary", null, "History"), kept));
  page.onLeave(() => { running?.abort(); grid?.close(); });
  history();

  async function run(plan = false) {
    const sql = write.value.trim().replace(/;\s*$/, "");
    if (!sql || running) return;
    remember(sql);
    running = new AbortController();
    start.disabled = true;
    cancel.disabled = false;
    const begun = performance.now();
    const watch = setInterval(() => { told.textContent = `Running, ${seconds((performance.now() - begun) / 1000)}`; }, 100);
    try {
      const more = /^\s*(select|with|from|values|table)\b/i.test(sql) && limit.value && !plan ? { limit: Number(limit.value) } : {};
      const answer = await query(plan && !/^\s*explain\b/i.test(sql) ? `EXPLAIN ${sql}` : sql, more, running.signal);
      last = sql;
      show(answer, (performance.now() - begun) / 1000);
    } catch (error) {
      told.textContent = "";
      grid?.close();
      clear(result, error.name === "AbortError" ? h("p.quiet", null, "Cancelled.") : problem(error));
    } finally {
      clearInterval(watch);
      running = null;
      start.disabled = false;
      cancel.disabled = true;
    }
  }

  function show(answer, took) {
    grid?.close();
    if (!answer.columns) {
      const applied = Object.entries(answer.applied ?? {}).map(([name, count]) => `${number(count)} in ${name}`).join(", ");
      told.textContent = "";
      clear(result, h("div.card", null, h("b", null, `Epoch ${number(answer.epoch)}`), h("p.quiet", null, applied ? `${applied}, in ${seconds(took)}` : `done in ${seconds(took)}`)));
      return;
    }
    const titles = answer.columns.map((one) => one.name);
    told.textContent = `${number(answer.rows.length)} rows${answer.truncated ? ", and more" : ""} of epoch ${number(answer.epoch)} in ${seconds(took)}`;
    if (titles.length === 1 && titles[0] === "plan") {
      clear(result, h("div.card", null, h("pre.explain", null, answer.rows.map((one) => one.plan).join("\n"))));
      return;
    }
    grid = new Grid(titles);
    grid.fit(titles, answer.rows.map((row) => titles.map((name) => row[name])));
    clear(result, grid.element);
  }

  async function save(form) {
    const [accept, ending] = FORMS[form];
    try {
      const blob = await file(last || write.value.trim().replace(/;\s*$/, ""), accept);
      const link = h("a", { href: URL.createObjectURL(blob), download: `headrace.${ending}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (error) { failed(error); }
  }

  function remember(sql) {
    const all = [sql, ...past().filter((one) => one !== sql)].slice(0, MOST);
    keep(KEPT, JSON.stringify(all));
    history();
  }

  function history() {
    const all = past();
    clear(kept, all.length ? all.map((sql) => h("button", { onclick: () => { write.value = sql; write.area.focus(); }, title: sql }, sql.replace(/\s+/g, " "))) : h("p.quiet", null, "Nothing was run yet."));
  }

  try {
    const graph = await get("/v1/graph");
    names = new Map(graph.relations.map((one) => [one.name, one.columns]));
    write.paint();
  } catch (error) { failed(error); }
  if (page.parts[0]) run(); else write.area.focus();
}

function past() {
  try { const all = JSON.parse(read(KEPT) ?? "[]"); return Array.isArray(all) ? all.filter((one) => typeof one === "string") : []; } catch { return []; }
}
function read(name) { try { return localStorage.getItem(name); } catch { return null; } }
function keep(name, text) { try { localStorage.setItem(name, text); } catch { /* without a store there is no history */ } }
