// A layered layout: everything stands to the right of what it reads, and near it.

const WIDTH = 192, HEIGHT = 50, ACROSS = 34, DOWN = 14, MARGIN = 16;

/** Places of nodes ({id, reads}) and the ways between them. */
export function layout(nodes) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const edges = nodes.flatMap((node) => node.reads.filter((id) => known.has(id)).map((id) => ({ from: id, to: node.id })));
  const layer = layersOf(nodes, known);
  const layers = [];
  for (const node of nodes) (layers[layer.get(node.id)] ??= []).push(node.id);
  order(layers, edges);
  const tallest = Math.max(...layers.map((one) => one.length), 1);
  const places = new Map();
  layers.forEach((ids, at) => {
    const room = (tallest - ids.length) * (HEIGHT + DOWN) / 2;
    ids.forEach((id, row) => places.set(id, { x: MARGIN + at * (WIDTH + ACROSS), y: MARGIN + room + row * (HEIGHT + DOWN) }));
  });
  return {
    places, edges, nodeWidth: WIDTH, nodeHeight: HEIGHT,
    width: MARGIN * 2 + layers.length * (WIDTH + ACROSS) - ACROSS,
    height: MARGIN * 2 + tallest * (HEIGHT + DOWN) - DOWN,
  };
}

function layersOf(nodes, known) {
  const layer = new Map();
  const visit = (id, path) => {
    if (layer.has(id)) return layer.get(id);
    if (path.has(id)) return 0;
    path.add(id);
    const below = known.get(id).reads.filter((one) => known.has(one)).map((one) => visit(one, path));
    path.delete(id);
    layer.set(id, below.length ? Math.max(...below) + 1 : known.get(id).first ?? 0);
    return layer.get(id);
  };
  for (const node of nodes) visit(node.id, new Set());
  return layer;
}

/** Put each node near the middle of its neighbours, from left to right and back, which leaves few crossings. */
function order(layers, edges) {
  const sides = [edges.map((one) => [one.to, one.from]), edges.map((one) => [one.from, one.to])];
  const at = new Map(layers.flatMap((ids) => ids.map((id, row) => [id, (row + 0.5) / ids.length])));
  for (let sweep = 0; sweep < 12; sweep += 1) {
    const pairs = sides[sweep % 2];
    for (const ids of sweep % 2 ? [...layers].reverse() : layers) {
      const middle = new Map(ids.map((id) => {
        const near = pairs.filter(([one]) => one === id).map(([, other]) => at.get(other));
        return [id, near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : at.get(id)];
      }));
      ids.sort((a, b) => middle.get(a) - middle.get(b));
      ids.forEach((id, row) => at.set(id, (row + 0.5) / ids.length));
    }
  }
}

export function way(from, to, size) {
  const x1 = from.x + size.nodeWidth, y1 = from.y + size.nodeHeight / 2, x2 = to.x, y2 = to.y + size.nodeHeight / 2;
  const bend = Math.max(24, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
