// Changes: what happens to a relation, as it happens; a few thousand rows a second do not hold the page up.

import { clear, clock, empty, failed, h, head, number } from "/console/dom.js";
import { get, named, parsed } from "/console/api.js";
import { Grid } from "/console/grid.js";

const MOST = 20_000;
const SIGNS = { insert: "+", delete: "−", update_preimage: "−", update_postimage: "+" };

export async function render(root, page) {
  let stream = null, all = [], waiting = [], columns = [], paused = false, count = 0, rate = 0, rateAt = performance.now();
  const graph = await get("/v1/graph");
  const relations = graph.relations.map((one) => one.name);
  const chosen = h("select", { "aria-label": "Relation", onchange: () => page.go(`/changes/${named(chosen.value)}`) }, relations.map((name) => h("option", { value: name }, name)));
  const since = h("input", { type: "number", min: "0", placeholder: "now", "aria-label": "Go on after this epoch", title: "Go on after this epoch; empty is from now on" });
  since.style.width = "110px";
  const word = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", oninput: () => sift() });
  const hold = h("button", { onclick: () => pause(!paused), "aria-pressed": "false", id: "pause" }, "Pause");
  const told = h("span.quiet", { role: "status", id: "told" });
  const grid = new Grid(["", "epoch"], { follow: true });
  root.append(head("Changes", "Every row that comes or goes, as epochs commit."),
    h("div.row", null, chosen, h("label.field", null, "after epoch", since), h("button", { onclick: () => follow(since.value) }, "Follow"), word, hold,
      h("button", { onclick: () => { all = []; sift(); } }, "Clear"), h("span.grow"), told), grid.element);
  page.onLeave(() => { stream?.close(); grid.close(); });
  if (!relations.length) { clear(root, empty("No relation to follow", "Make a table first.", h("a.button", { href: "#/start" }, "Go to Start"))); return; }
  if (relations.includes(page.parts[0])) chosen.value = page.parts[0];
  else chosen.value = [...graph.relations].sort((a, b) => (b.changed_epoch ?? 0) - (a.changed_epoch ?? 0) || (a.kind < b.kind ? 1 : -1))[0].name;
  columns = graph.relations.find((one) => one.name === chosen.value).columns;
  titles();

  function titles() {
    grid.retitle(["", "epoch", "at", ...columns], ["34px", "74px", "84px", ...columns.map((name) => `${Math.min(220, Math.max(96, 28 + name.length * 8))}px`)]);
  }

  function line(kind, epoch, at, row) {
    const made = [SIGNS[kind], epoch, at, ...columns.map((name) => row[name])];
    made.kind = kind;
    return made;
  }

  function note(text, epoch) {
    const made = ["·", epoch ?? "", "", text];
    made.kind = "told";
    waiting.push(made);
  }

  function follow(after) {
    stream?.close();
    all = [];
    waiting = [];
    const from = String(after ?? "").trim() === "" ? graph.epoch : Number(after);
    stream = new EventSource(`/v1/changes/${named(chosen.value)}?since=${from}`);
    stream.addEventListener("changes", (event) => {
      const step = parsed(event.data), at = clock(step.committed_at);
      for (const one of step.changes) waiting.push(line(one._change_type, step.epoch, at, one));
      count += step.changes.length;
    });
    stream.addEventListener("reset", (event) => {
      const step = parsed(event.data);
      columns = step.columns.map((one) => one.name);
      titles();
      note("the relation was replaced or altered: what it holds now follows", step.epoch);
    });
    stream.addEventListener("snapshot", (event) => {
      const step = parsed(event.data);
      for (const one of step.rows) waiting.push(line("insert", step.epoch, "", one));
    });
    stream.addEventListener("problem", (event) => { failed({ problem: parsed(event.data) }); stream.close(); });
    stream.onerror = () => { if (stream.readyState === EventSource.CLOSED) refused(from); };
    told.textContent = `Following from epoch ${number(from)}`;
  }

  async function refused(from) {
    const answer = await fetch(`/v1/changes/${named(chosen.value)}?since=${from}`).catch(() => null);
    if (answer?.ok) answer.body.cancel();
    else if (answer) failed({ problem: await answer.json().catch(() => ({ message: `the server answered ${answer.status}` })) });
  }

  function pause(to) {
    paused = to;
    hold.setAttribute("aria-pressed", String(paused));
    hold.textContent = paused ? "Go on" : "Pause";
    if (!paused) take();
  }

  /** What came since is taken a few times a second, not row by row. */
  function take() {
    const now = performance.now();
    if (now - rateAt >= 1000) { rate = count / ((now - rateAt) / 1000); count = 0; rateAt = now; }
    told.textContent = `${number(all.length)} rows kept · ${number(Math.round(rate))}/s${paused ? ` · ${number(waiting.length)} waiting` : ""}`;
    if (paused) { if (waiting.length > MOST) waiting = waiting.slice(-MOST); return; }
    if (!waiting.length) return;
    const fresh = waiting;
    waiting = [];
    all = all.length + fresh.length > MOST ? [...all, ...fresh].slice(-MOST) : all.concat(fresh);
    if (word.value.trim()) sift(); else grid.set(all);
  }

  function sift() {
    const wanted = word.value.trim().toLowerCase();
    grid.set(wanted ? all.filter((one) => one.some((value) => String(typeof value === "object" ? JSON.stringify(value) : value).toLowerCase().includes(wanted))) : all);
  }

  const timer = setInterval(take, 200);
  const space = (event) => {
    if (event.key === " " && !event.target.closest("input, select, textarea, button")) { event.preventDefault(); pause(!paused); }
  };
  addEventListener("keydown", space);
  page.onLeave(() => { clearInterval(timer); removeEventListener("keydown", space); });
  follow(page.parts[1] ?? since.value);
}
