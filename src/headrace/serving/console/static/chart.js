// Small charts as SVG: lines, bars and stacks, on one axis from zero.

import { compact, h, s } from "/console/dom.js";

const WIDTH = 640, LEFT = 46, BOTTOM = 20, TOP = 8, RIGHT = 6;

/** Lines over bars, or a stack: series of values by label; null is a gap. */
export function lines({ series, labels, bars = null, stacked = false, form = compact, height = 200, name = "" }) {
  const count = labels.length, floor = height - BOTTOM;
  const sums = stacked ? labels.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0)) : [];
  const most = nice(Math.max(...(stacked ? sums : series.flatMap((one) => one.values.filter((value) => value !== null))), ...(bars ?? []), 0));
  const wide = (WIDTH - LEFT - RIGHT) / Math.max(1, count);
  const x = (at) => bars ? LEFT + (at + 0.5) * wide : LEFT + (count < 2 ? (WIDTH - LEFT - RIGHT) / 2 : (at * (WIDTH - LEFT - RIGHT)) / (count - 1));
  const y = (value) => floor - (Math.max(0, value) / most) * (floor - TOP);
  const parts = [];
  for (let step = 0; step <= 4; step += 1) {
    const value = (most * step) / 4;
    parts.push(s("line.axis", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }), s("text", { x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, form(value)));
  }
  for (const [at, value] of (bars ?? []).entries()) parts.push(s("rect.bar", { x: x(at) - wide * 0.36, y: y(value), width: wide * 0.72, height: floor - y(value) }, s("title", null, `${labels[at]}: ${form(value)}`)));
  if (stacked) parts.push(...stack(series, count, x, y));
  else series.forEach((one, index) => parts.push(s(`path.lineof.line${index % 4}`, { d: path(one.values, x, y) })));
  const every = Math.max(1, Math.ceil(count / 6));
  for (let at = 0; at < count; at += every) parts.push(s("text", { x: x(at), y: height - 5, "text-anchor": at || bars ? (at > count - 2 && !bars ? "end" : "middle") : "start" }, labels[at]));
  const chart = s("svg.chart", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": name || series.map((one) => one.name).join(", ") }, parts);
  const hover = s("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: floor - TOP, fill: "transparent" });
  const tip = s("title");
  hover.append(tip);
  hover.addEventListener("mousemove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = Math.round((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / ((WIDTH - LEFT - RIGHT) / Math.max(1, count - 1)));
    if (at >= 0 && at < count) tip.textContent = [labels[at], ...(bars ? [form(bars[at])] : []), ...series.filter((one) => one.values[at] !== null || !bars).map((one) => `${one.name}: ${one.values[at] === null ? "–" : form(one.values[at])}`)].join("\n");
  });
  chart.append(hover);
  return chart;
}

function path(values, x, y) {
  let text = "", down = false;
  values.forEach((value, at) => {
    if (value === null || value === undefined) { down = false; return; }
    text += `${down ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    down = true;
  });
  return text;
}

function stack(series, count, x, y) {
  const base = new Array(count).fill(0);
  return series.map((one, index) => {
    const low = base.map((value, at) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    one.values.forEach((value, at) => { base[at] += value ?? 0; });
    const high = base.map((value, at) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    return s(`path.stack.area${index % 4}`, { d: `M${high.join("L")}L${low.reverse().join("L")}Z` });
  });
}

function nice(value) {
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((one) => one * size).find((one) => one >= value);
}

export const legend = (names) => h("div.legend", null, names.map((name, at) => h("span", null, h(`span.swatch.c${at % 4}`), name)));
