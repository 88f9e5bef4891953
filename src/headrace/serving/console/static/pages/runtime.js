// Runtime: epochs per minute, time by stage, memory, state and disk, over time; and Spark's jobs.

import { ago, bytes, clear, clock, compact, h, head, number, problem, seconds } from "/console/dom.js";
import { get } from "/console/api.js";
import { legend, lines } from "/console/chart.js";

const STATES = { running: ".accent", succeeded: ".good", failed: ".bad" };
const STAGES = ["intake", "views", "ledger"];

export async function render(root, page) {
  const tiles = h("div.tiles"), charts = h("div.split"), told = h("div"), jobs = h("div.card", { id: "jobs" });
  root.append(head("Runtime", "How epochs went since the server began, and what it uses."), told, tiles, charts, jobs);
  let busy = false, due = 0;

  async function refresh() {
    if (busy) return;
    busy = true;
    try { const answer = await get("/v1/runtime?limit=500"); if (page.isHere()) draw(answer); } catch (error) { clear(told, problem(error)); } finally { busy = false; }
  }

  function draw({ epochs, samples, ...now }) {
    const timed = epochs.filter((one) => one.seconds > 0);
    const took = timed.map((one) => one.seconds).sort((a, b) => a - b);
    const at = (share) => (took.length ? took[Math.min(took.length - 1, Math.floor(took.length * share))] : null);
    const last = samples.at(-1);
    const wrong = Object.entries(now.failures);
    clear(told, wrong.length > 0 && h("div.problem", null, wrong.map(([name, text]) => h("p", null, h("b", null, name.replace("_", " ")), `: ${text}`))));
    clear(tiles, [
      ["Epochs", number(epochs.filter((one) => Date.now() - Date.parse(one.committed_at) < 60_000).length), "in the last minute"],
      ["Epoch, median", seconds(at(0.5)), `95 of 100 within ${seconds(at(0.95))}`],
      ["Process", bytes(last?.process_bytes), "resident memory"], ["Spark", bytes(last?.spark_bytes), "resident memory of its JVM"],
      ["State", compact(last?.state_rows), "signed rows"], ["Disk", bytes(last?.disk_bytes), `${bytes(now.ledger_bytes)} of ledger`],
      ["Under way", number(now.queries_under_way), `queries; ${now.pushes_under_way} pushes, ${now.streams_open} streams`],
    ].map(([name, value, more]) => h("div.tile", null, h("h3", null, name), h("b", null, value), h("small", null, more))));
    const shown = timed.slice(-120);
    clear(charts,
      card("Seconds of each epoch, by stage", shown.length > 1 && [lines({ stacked: true, form: seconds, labels: shown.map((one) => `${one.epoch}`), series: STAGES.map((name) => ({ name, values: shown.map((one) => one.stages[name] ?? 0) })) }), legend(STAGES)]),
      card("Epochs a minute", minutes(epochs)),
      card("Rows changed by each epoch", shown.length > 1 && lines({ labels: shown.map((one) => `${one.epoch}`), series: [{ name: "rows", values: shown.map((one) => Object.values(one.changes).reduce((sum, n) => sum + n, 0)) }] })),
      card("Memory", samples.length > 1 && [lines({ form: bytes, labels: samples.map((one) => clock(one.at).slice(0, 5)), series: [{ name: "process", values: samples.map((one) => one.process_bytes) }, { name: "Spark", values: samples.map((one) => one.spark_bytes) }] }), legend(["process", "Spark"])]),
      card("State, in signed rows", samples.length > 1 && lines({ labels: samples.map((one) => clock(one.at).slice(0, 5)), series: [{ name: "signed rows", values: samples.map((one) => one.state_rows) }] })),
      card("Disk", samples.length > 1 && lines({ form: bytes, labels: samples.map((one) => clock(one.at).slice(0, 5)), series: [{ name: "bytes", values: samples.map((one) => one.disk_bytes) }] })));
  }

  async function refreshJobs() {
    let found;
    try { found = (await get("/v1/jobs")).jobs; } catch (error) { clear(jobs, h("h2", null, "Spark jobs"), problem(error)); return; }
    if (!page.isHere()) return;
    clear(jobs, h("h2", null, "Spark jobs"), found.length ? h("div.scroll", null, h("table.plain", null,
      h("thead", null, h("tr", null, h("th.num", null, "Job"), ["What", "State", "Began"].map((one) => h("th", null, one)), ["Took", "Stages", "Tasks"].map((one) => h("th.num", null, one)))),
      h("tbody", null, found.map((one) => h("tr", { "data-job": one.id }, h("td.num", null, number(one.id)), h("td.mono", null, one.name), h("td", null, h(`span.badge${STATES[one.status] ?? ""}`, null, one.status)), h("td", null, ago(one.submitted_at)),
        h("td.num", null, one.submitted_at && one.completed_at ? seconds((Date.parse(one.completed_at) - Date.parse(one.submitted_at)) / 1000) : "–"), h("td.num", null, number(one.stages)), h("td.num", null, `${number(one.completed_tasks)} of ${number(one.tasks)}`)))))) : h("p.quiet", null, "None yet: most epochs need no job; fills, verifying and large changes do."));
  }

  page.onEpoch(() => { if (Date.now() - due > 2000) { due = Date.now(); refresh(); } });
  page.every(5000, () => { refresh(); refreshJobs(); });
  await Promise.all([refresh(), refreshJobs()]);
}

const card = (title, chart) => h("div.card", null, h("h2", null, title), chart || h("p.quiet", null, "Too little has happened yet."));

function minutes(epochs) {
  if (!epochs.length) return null;
  const first = Math.floor(Date.parse(epochs[0].committed_at) / 60_000), now = Math.floor(Date.now() / 60_000);
  const begin = Math.max(first, now - 59), counts = new Array(Math.max(2, now - begin + 1)).fill(0);
  for (const one of epochs) { const at = Math.floor(Date.parse(one.committed_at) / 60_000) - begin; if (at >= 0) counts[at] += 1; }
  return lines({ bars: counts, series: [], labels: counts.map((_, at) => clock((begin + at) * 60_000).slice(0, 5)), name: "Epochs a minute" });
}
