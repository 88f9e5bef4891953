// Overview: sources, tables, views and feeds, with rows, rate and freshness, as epochs commit.

import { ago, clear, compact, empty, h, head, number, problem, s } from "/console/dom.js";
import { get, named } from "/console/api.js";
import { layout, way } from "/console/layout.js";

export async function render(root, page) {
  const tiles = h("div.tiles"), drawing = h("div.graph", { role: "img", "aria-label": "What flows into what" });
  const filter = h("input", { type: "search", placeholder: "Find a relation", "aria-label": "Find a relation", oninput: () => mark() });
  root.append(head("Overview", "What flows into what, and how fresh it is.", filter), tiles, drawing,
    h("div.legend", null, [["s", "source"], ["e", "event store"], ["t", "table"], ["v", "view"], ["f", "feed"]].map(([kind, name]) => h(`span.${kind}`, null, h("i"), name))));
  let graph, shape = "", parts = new Map(), lines = [], busy = false;

  async function refresh(moved = new Set()) {
    if (busy) return;
    busy = true;
    try { graph = await get("/v1/graph"); } catch (error) { clear(tiles, problem(error)); return; } finally { busy = false; }
    if (!page.isHere()) return;
    const wanted = nodesOf(graph);
    const now = wanted.map((one) => `${one.id}<${one.reads}`).join(";");
    if (!wanted.length) {
      shape = now;
      clear(drawing, page.may("administer") ? empty("Nothing flows yet", "Make the example, or paste your own SQL.", h("a.button", { href: "#/start" }, "Go to Start")) : empty("Nothing for this key", "It may read none of what is there."));
    } else if (now !== shape) { shape = now; draw(wanted); }
    tell(wanted, moved);
  }

  function draw(nodes) {
    const size = layout(nodes);
    parts = new Map();
    lines = size.edges.map((edge) => ({ ...edge, path: s("path.edge", { d: way(size.places.get(edge.from), size.places.get(edge.to), size) }) }));
    const boxes = nodes.map((node) => {
      const at = size.places.get(node.id);
      const sub = s("text.sub", { x: 16, y: 37 });
      const box = s(`g.node.${node.kind}`, {
        transform: `translate(${at.x} ${at.y})`, tabindex: "0", role: "link", "aria-label": `${node.kind === "events" ? "event store" : node.kind} ${node.name}`,
        onclick: () => page.go(node.href), onkeydown: (event) => event.key === "Enter" && page.go(node.href),
        onmouseenter: () => near(node.id), onmouseleave: () => near(null), onfocus: () => near(node.id), onblur: () => near(null),
      }, s("title", null, node.name), s("rect.box", { width: size.nodeWidth, height: size.nodeHeight, rx: 7 }),
      s("rect.kind", { x: 0, y: 8, width: 4, height: size.nodeHeight - 16, rx: 2 }),
      s("text", { x: 16, y: 20 }, node.name.length > 27 ? `${node.name.slice(0, 26)}…` : node.name), sub);
      parts.set(node.id, { box, sub });
      return box;
    });
    // What is narrower than the page is drawn as large as it is, and not blown up until it is cut off.
    clear(drawing, s(`svg${size.width < 1040 ? ".small" : ""}`, { width: size.width, viewBox: `0 0 ${size.width} ${size.height}` }, lines.map((one) => one.path), boxes));
    mark();
  }

  function near(id) {
    const reached = new Set([id]);
    for (const [one, other] of [["from", "to"], ["to", "from"]]) {
      const walk = [id];
      while (walk.length) {
        const at = walk.pop();
        for (const line of lines) if (line[one] === at && !reached.has(line[other] + one)) { reached.add(line[other] + one); reached.add(line[other]); walk.push(line[other]); }
      }
    }
    for (const [name, { box }] of parts) box.classList.toggle("dim", id !== null && !reached.has(name));
    for (const line of lines) {
      const on = id !== null && reached.has(line.from) && reached.has(line.to);
      line.path.classList.toggle("on", on);
      line.path.classList.toggle("dim", id !== null && !on);
    }
  }

  function mark() {
    const word = filter.value.trim().toLowerCase();
    for (const [id, { box }] of parts) {
      box.classList.toggle("on", Boolean(word) && id.includes(word));
      box.classList.toggle("dim", Boolean(word) && !id.includes(word));
    }
  }

  function tell(nodes, moved) {
    for (const node of nodes) {
      const part = parts.get(node.id);
      if (!part) continue;
      part.sub.textContent = node.sub;
      part.sub.classList.toggle("bad", Boolean(node.bad));
      if (moved.has(node.name) && node.kind !== "source") { part.box.classList.remove("moved"); part.box.getBBox(); part.box.classList.add("moved"); }
    }
    const views = graph.relations.filter((one) => one.kind === "view");
    const rate = graph.relations.reduce((sum, one) => sum + one.rate, 0);
    clear(tiles, [
      ["Epoch", number(graph.epoch), ago(graph.committed_at)],
      ["Rows", compact(graph.relations.reduce((sum, one) => sum + one.rows, 0)), `${graph.relations.length} relations`],
      ["Changes", `${rate < 10 ? rate.toFixed(1) : compact(Math.round(rate))}/s`, "over the last minute"],
      ["Views", number(views.length), `${views.filter((one) => one.incremental).length} incremental`],
      ["Sources and feeds", number(graph.sources.length + graph.feeds.length), stateTold([...graph.sources, ...graph.feeds])],
    ].map(([name, value, more]) => h("div.tile", null, h("h3", null, name), h("b", null, value), h("small", null, more))));
  }

  page.onEpoch((told) => refresh(new Set(told.epochs.flatMap((one) => Object.keys(one.changes)))));
  page.every(5000, () => refresh());
  await refresh();
}

function stateTold(all) {
  const wrong = all.filter((one) => one.error).length;
  if (wrong) return `${wrong} with an error`;
  return `${all.filter((one) => one.state === "Running").length} running`;
}

function nodesOf(graph) {
  const bySource = graph.sources.map((one) => ({
    id: `source ${one.name}`, name: one.name, kind: "source", reads: [], href: "/sources", bad: Boolean(one.error), into: one.tables,
    sub: `${one.connector} · ${one.state.toLowerCase()}${one.lag_records ? ` · ${compact(one.lag_records)} behind` : ""}`,
  }));
  const relations = graph.relations.filter((one) => !one.system).map((one) => ({
    id: one.name, name: one.name, kind: one.event_store ? "events" : one.kind, href: `/view/${named(one.name)}`,
    reads: [...one.reads, ...bySource.filter((from) => from.into.includes(one.name)).map((from) => from.id)], first: bySource.length ? 1 : 0,
    sub: `${compact(one.rows)} ${one.event_store ? "events" : "rows"}${one.rate >= 0.05 ? ` · ${one.rate.toFixed(1)}/s` : ""} · ${ago(one.changed_at)}${one.incremental ? "" : " · recomputed"}`,
  }));
  const feeds = (graph.feeds ?? []).map((one) => ({
    id: `feed ${one.name}`, name: one.name, kind: "feed", href: "/sources", reads: one.table ? [one.table] : [], bad: one.state === "Error",
    sub: `${one.sink} · ${one.state.toLowerCase()}${one.lag ? ` · ${compact(one.lag)} behind` : ""}`,
  }));
  return [...bySource, ...relations, ...feeds];
}
