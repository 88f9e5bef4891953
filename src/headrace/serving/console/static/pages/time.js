// Time: a relation as it was at any kept epoch, and what came and went between two.

import { clear, empty, h, head, moment, number, problem } from "/console/dom.js";
import { get, named, query, quoted } from "/console/api.js";
import { Grid } from "/console/grid.js";

// The newest epochs alone: a page that is open for days would hold all of them.
const MOST = 2000;

export async function render(root, page) {
  const graph = await get("/v1/graph");
  let { epochs } = await get(`/v1/epochs?limit=${MOST}`);
  if (!graph.relations.length || !epochs.length) { root.append(head("Time", "Any relation at any kept epoch."), empty("No past yet", "Epochs appear here as they are committed.", page.may("administer") && h("a.button", { href: "#/start" }, "Go to Start"))); return; }
  const preferred = ["gold_order_status_summary", ...graph.relations.filter((one) => one.kind === "view").map((one) => one.name)].find((name) => graph.relations.some((one) => one.name === name));
  const chosen = h("select", { "aria-label": "Relation", onchange: () => { location.hash = `/time/${named(chosen.value)}`; } }, graph.relations.map((one) => h("option", { value: one.name }, one.name)));
  chosen.value = graph.relations.some((one) => one.name === page.parts[0]) ? page.parts[0] : preferred ?? graph.relations[0].name;
  const changed = graph.relations.find((one) => one.name === chosen.value).changed_epoch ?? 0;
  const before = epochs.findLastIndex((one) => one.epoch < changed);
  const slider = (id, name, at) => h("input", { type: "range", id, min: "0", max: String(epochs.length - 1), value: String(at), "aria-label": name, oninput: () => later() });
  const from = slider("from", "Compared with", before >= 0 ? before : 0), to = slider("to", "Shown epoch", epochs.length - 1);
  const fromTold = h("span.mono"), toTold = h("b.mono", { id: "shown" }), rowsTold = h("span.quiet"), moved = h("span.quiet", { id: "moved" });
  const rows = h("div.page.grow"), difference = h("div.page.grow");
  root.append(head("Time", "Any relation at any kept epoch, and what came and went between two.", chosen),
    h("div.card.page", null, h("div", null, h("div.row", null, h("label", { for: "to" }, "Shown"), toTold), to), h("div", null, h("div.row", null, h("label", { for: "from" }, "Compared with"), fromTold), from)),
    h("div.split.grow", null, h("div.page", null, h("h2", null, "Rows ", rowsTold), rows), h("div.page", null, h("h2", null, "Difference ", moved), difference)));
  let timer = 0, turn = 0, grids = [];
  const at = (one) => epochs[Number(one.value)];

  function told() {
    for (const [input, words] of [[to, toTold], [from, fromTold]]) words.textContent = `epoch ${number(at(input).epoch)} · ${moment(at(input).committed_at)}`;
  }

  function later() {
    told();
    clearTimeout(timer);
    timer = setTimeout(read, 120);
  }

  async function read() {
    const mine = ++turn, shown = at(to).epoch, other = at(from).epoch;
    const [held, gone] = await Promise.allSettled([
      query(`SELECT * FROM ${quoted(chosen.value)}`, { epoch: shown, limit: 1000 }),
      get(`/v1/relations/${named(chosen.value)}/difference?from=${other}&to=${shown}&limit=1000`),
    ]);
    if (mine !== turn || !page.isHere()) return;
    for (const one of grids) one.close();
    grids = [];
    if (held.status === "fulfilled") {
      const titles = held.value.columns.map((one) => one.name);
      put(rows, titles, held.value.rows.map((row) => titles.map((name) => row[name])), "It held nothing then.");
      rowsTold.textContent = `${number(held.value.rows.length)}${held.value.truncated ? ", and more" : ""} at epoch ${number(shown)}`;
    } else { clear(rows, problem(held.reason)); rowsTold.textContent = ""; }
    if (gone.status === "fulfilled") {
      const { columns } = gone.value;
      const lines = gone.value.rows.map(({ weight, row }) => {
        const line = [weight > 0 ? `+${weight}` : `−${-weight}`, ...columns.map((name) => row[name])];
        line.kind = weight > 0 ? "insert" : "delete";
        return line;
      });
      put(difference, ["", ...columns], lines, "Nothing came or went between the two.");
      moved.textContent = `${number(lines.length)} rows${gone.value.truncated ? ", and more" : ""}`;
    } else { clear(difference, problem(gone.reason)); moved.textContent = ""; }
    root.dataset.shown = shown;
  }

  function put(place, titles, lines, nothing) {
    if (!lines.length) { clear(place, h("p.quiet", null, nothing)); return; }
    const grid = new Grid(titles);
    grid.fit(titles, lines);
    grids.push(grid);
    clear(place, grid.element);
  }

  page.onEpoch((live) => {
    const newest = to.value === to.max;
    epochs = [...epochs, ...live.epochs.filter((one) => one.epoch > (epochs.at(-1)?.epoch ?? -1))];
    const gone = Math.max(0, epochs.length - MOST), left = [to, from].map((one) => Number(one.value) - gone);
    epochs = epochs.slice(gone);
    to.max = from.max = String(epochs.length - 1);
    [to.value, from.value] = left.map((one) => String(Math.max(0, one)));
    if (newest && live.epochs.length) to.value = to.max;
    // Also where what was shown or compared with is no longer among them.
    if ((newest && live.epochs.length) || left.some((one) => one < 0)) later();
  });
  page.onLeave(() => { clearTimeout(timer); for (const one of grids) one.close(); });
  told();
  await read();
}
