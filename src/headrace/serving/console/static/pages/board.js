// Board: the gold views that the medallion ships, moving as epochs commit.

import { clear, compact, empty, failed, h, head, number, problem, seconds, toast } from "/console/dom.js";
import { get, query, send } from "/console/api.js";
import { legend, lines } from "/console/chart.js";

const REVENUE = "gold_weekly_revenue_trend", ALERTS = "gold_realtime_inventory_alerts", CANCELLED = "gold_cancellation_impact", STATUS = "gold_order_status_summary";

export async function render(root, page) {
  const graph = await get("/v1/graph");
  const there = new Set(graph.relations.map((one) => one.name));
  if (![REVENUE, ALERTS, CANCELLED].every((name) => there.has(name))) {
    root.append(head("Board", "Charts of the gold views."), empty("No gold views yet", "The board shows those of the medallion, as far as they may be read.", page.may("administer") && h("a.button", { href: "#/start" }, "Make the example")));
    return;
  }
  const category = h("select", { "aria-label": "Category", onchange: () => drawTrend() });
  const push = h("button.main", { onclick: () => next(), id: "push" }, "Push the next hour");
  const told = h("span.quiet", { role: "status", id: "told" });
  const tiles = h("div.tiles"), revenue = h("div.card"), rate = h("div.card"), alerts = h("div.card"), status = h("div.card");
  root.append(head("Board", "Weekly revenue, alerts and cancellations: at every epoch what the whole past says.", told, category, page.may("administer") && push), tiles,
    h("div.split", null, revenue, rate, alerts, status));
  let trend = [], impact = [], busy = false, again = false;

  async function all(name) { return (await query(`SELECT * FROM ${name}`)).rows; }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const critical = await query(`SELECT * FROM ${ALERTS}`);
      trend = await all(REVENUE);
      impact = await all(CANCELLED);
      const states = there.has(STATUS) ? await all(STATUS) : [];
      if (!page.isHere()) return;
      told.textContent = `Epoch ${number(critical.epoch)}`;
      root.dataset.epoch = critical.epoch;
      drawTrend();
      drawAlerts(critical.rows);
      drawStates(states);
    } catch (error) { clear(tiles, problem(error)); } finally {
      busy = false;
      if (again && page.isHere()) { again = false; refresh(); }
    }
  }

  function drawTrend() {
    const names = [...new Set(trend.map((one) => one.category))].sort();
    const kept = category.value;
    clear(category, h("option", { value: "" }, "All categories"), names.map((name) => h("option", { value: name }, name)));
    category.value = names.includes(kept) ? kept : "";
    const mine = (one) => !category.value || one.category === category.value;
    const weeks = byWeek(trend.filter(mine), (sum, one) => ({ net: (sum.net ?? 0) + Number(one.weekly_net_revenue), average: (sum.average ?? 0) + Number(one.revenue_4wk_moving_avg), orders: (sum.orders ?? 0) + Number(one.order_count) }));
    const gone = byWeek(impact.filter(mine), (sum, one) => ({ cancelled: (sum.cancelled ?? 0) + Number(one.weekly_cancelled_orders), orders: (sum.orders ?? 0) + Number(one.weekly_total_orders) }));
    const rates = gone.map(([, one]) => (one.orders ? one.cancelled / one.orders : null));
    const rolling = gone.map((_, at) => { const part = gone.slice(Math.max(0, at - 3), at + 1).map(([, one]) => one); const of = part.reduce((sum, one) => sum + one.orders, 0); return of ? part.reduce((sum, one) => sum + one.cancelled, 0) / of : null; });
    clear(revenue, h("h2", null, "Weekly net revenue"), weeks.length ? [lines({ bars: weeks.map(([, one]) => one.net), series: [{ name: "week", values: weeks.map(() => null) }, { name: "4-week moving average", values: weeks.map(([, one]) => one.average) }], labels: weeks.map(([week]) => week.slice(5, 10)), name: "Weekly net revenue" }), legend(["week", "4-week moving average"])] : none());
    const percent = (value) => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
    clear(rate, h("h2", null, "Cancellation rate"), gone.length ? [lines({ series: [{ name: "week", values: rates }, { name: "4 weeks", values: rolling }], labels: gone.map(([week]) => week.slice(5, 10)), form: percent, name: "Cancellation rate" }), legend(["week", "4 weeks"])] : none());
    const total = weeks.reduce((sum, [, one]) => sum + one.net, 0), orders = weeks.reduce((sum, [, one]) => sum + one.orders, 0);
    tile("revenue", "Net revenue", compact(Math.round(total)), `${number(Math.round(total))} in ${weeks.length} weeks`);
    tile("orders", "Orders with items sold", number(orders), "summed by category");
    tile("rate", "Cancelled, 4 weeks", rolling.length ? percent(rolling.at(-1) ?? 0) : "–", "of all orders");
  }

  function tile(id, name, value, more) {
    const made = h("div.tile", { id: `tile-${id}` }, h("h3", null, name), h("b", null, value), h("small", null, more));
    const old = tiles.querySelector(`#tile-${id}`);
    if (old) old.replaceWith(made); else tiles.append(made);
  }

  function drawAlerts(rows) {
    tile("alerts", "Critical stock", number(rows.length), "products");
    const urgent = [...rows].sort((a, b) => Number(a.days_of_stock_remaining) - Number(b.days_of_stock_remaining)).slice(0, 8);
    clear(alerts, h("h2", null, "Inventory alerts"), rows.length ? h("div.scroll", null, h("table.plain", null, h("thead", null, h("tr", null, h("th", null, "Product"), h("th", null, "Supplier"), h("th.num", null, "Stock"), h("th.num", null, "Days left"))),
      h("tbody", null, urgent.map((one) => h("tr", null, h("td", null, one.product_name), h("td", null, one.supplier_name), h("td.num", null, number(Number(one.total_stock_all_warehouses))), h("td.num", null, Number(one.days_of_stock_remaining).toFixed(1))))))) : h("p.quiet", null, "No product is about to run out."));
  }

  function drawStates(rows) {
    const most = Math.max(...rows.map((one) => Number(one.order_count)), 1);
    clear(status, h("h2", null, "Orders by status"), rows.length ? h("table.plain", null, h("tbody", null, [...rows].sort((a, b) => b.order_count - a.order_count).map((one) => {
      const bar = h("progress", { max: most, value: Number(one.order_count), "aria-label": one.order_status });
      return h("tr", null, h("td", null, one.order_status), h("td", null, bar), h("td.num", null, number(one.order_count)));
    }))) : none());
  }

  async function next() {
    push.disabled = true;
    try {
      const receipt = await send("/v1/examples/medallion/push", {});
      toast(`Epoch ${number(receipt.epoch)}: every view current in ${seconds(receipt.seconds)}`);
    } catch (error) { failed(error); } finally { push.disabled = false; }
  }

  page.onEpoch((live) => {
    if (live.epochs.some((one) => [REVENUE, ALERTS, CANCELLED, STATUS].some((name) => name in one.changes))) refresh();
  });
  await refresh();
}

const none = () => h("p.quiet", null, "No rows yet.");

function byWeek(rows, add) {
  const weeks = new Map();
  for (const one of rows) { const week = String(one.week_start); weeks.set(week, { ...(weeks.get(week) ?? {}), ...add(weeks.get(week) ?? {}, one) }); }
  return [...weeks].sort(([a], [b]) => (a < b ? -1 : 1));
}
