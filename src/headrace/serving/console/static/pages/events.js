// Events: an aggregate's timeline, and its state at any moment of it.

import { clear, empty, h, head, moment, number, problem } from "/console/dom.js";
import { get, named } from "/console/api.js";

export async function render(root, page) {
  const [store, kind, id] = page.parts;
  if (store && kind && id) { await aggregate(root, page, store, kind, id); return; }
  // Whatever has these columns is a store; its name is checked by the server.
  const stores = (await get("/v1/graph")).relations.filter((one) => ["event_data", "aggregate_type", "event_version", "position"].every((name) => one.columns.includes(name)) && one.kind === "table").map((one) => one.name);
  if (!stores.length) {
    root.append(head("Events", "What happened, in order."), empty("No event store yet", "CREATE EVENT STORE makes one; events are appended by POST /v1/events/{type}/{id}."));
    return;
  }
  const chosen = h("select", { "aria-label": "Store", onchange: () => page.go(`/events/${named(chosen.value)}`) }, stores.map((name) => h("option", { value: name }, name)));
  chosen.value = stores.includes(store) ? store : stores[0];
  const rows = h("tbody"), box = h("div.page");
  root.append(head("Events", "What happened, in order; open one to see its aggregate's timeline.", chosen), box);
  let since = 0;

  async function more() {
    try {
      const told = await get(`/v1/events?store=${named(chosen.value)}&since=${since}&limit=200`);
      if (!page.isHere()) return;
      if (!told.events.length && !rows.children.length) { clear(box, empty("No events yet", "Append some by POST /v1/events/{type}/{id}.")); return; }
      since = told.events.at(-1)?.position ?? since;
      rows.append(...told.events.map((one) => line(chosen.value, one)));
      clear(box, h("div.card.scroll", null, h("table.plain", null, h("thead", null, h("tr", null, h("th.num", null, "Position"), ["Aggregate", "Event", "At", "Data"].map((one) => h("th", null, one)))), rows)),
        told.next !== null && h("button", { onclick: more }, "More"));
    } catch (error) {
      clear(box, problem(error));
    }
  }

  page.onEpoch((live) => { if (live.epochs.length) more(); });
  await more();
}

function line(store, one) {
  return h("tr", null, h("td.num", null, number(one.position)), h("td", null, h("a.mono", { href: `#/events/${named(store)}/${named(one.aggregate_type)}/${named(one.aggregate_id)}` }, `${one.aggregate_type} ${one.aggregate_id}`)),
    h("td", null, h("span.badge.accent", null, one.event_type)), h("td", null, moment(when(one))), h("td.mono", null, cut(JSON.stringify(one.event_data))));
}

async function aggregate(root, page, store, kind, id) {
  const path = `/v1/events/${named(kind)}/${named(id)}`;
  const timeline = h("div.card.page"), shown = h("pre.explain", { id: "state" }), at = h("b.mono", { id: "at" }), told = h("div");
  const slider = h("input", { type: "range", min: "0", "aria-label": "Moment", id: "moment", oninput: () => later() });
  root.append(h("div.row", null, h("a", { href: `#/events/${named(store)}` }, "Events"), h("span.quiet", null, "/"), h("b.mono", null, `${kind} ${id}`)), head(`${kind} ${id}`, "Its events, oldest first, and what it was after each."), told);
  let events = [], timer = 0, turn = 0;
  try { ({ events } = await get(`${path}?store=${named(store)}&limit=1000`)); } catch (error) { clear(told, problem(error)); return; }
  if (!events.length) { clear(told, empty("No such aggregate", "Its first event makes it.")); return; }
  slider.max = String(events.length - 1);
  slider.value = slider.max;
  root.append(h("div.card.page", null, h("div.row", null, h("span.quiet", null, "As of"), at), slider), h("div.split", null, timeline, h("div.card", null, h("h2", null, "State"), shown)));

  function later() { mark(); clearTimeout(timer); timer = setTimeout(read, 100); }

  function mark() {
    const chosen = Number(slider.value);
    at.textContent = `position ${number(events[chosen].position)} · ${moment(when(events[chosen]))}`;
    clear(timeline, h("h2", null, `${number(events.length)} events`), h("div.history", null, events.map((one, index) => h("button", { "aria-pressed": String(index === chosen), onclick: () => { slider.value = String(index); later(); }, title: JSON.stringify(one.event_data) },
      `${moment(when(one))}  ${one.event_type}  ${cut(JSON.stringify(one.event_data))}`))));
  }

  async function read() {
    const mine = ++turn;
    try {
      const state = await get(`${path}/state?store=${named(store)}&as_of=${events[Number(slider.value)].position}`);
      if (mine === turn) shown.textContent = state.state === null ? "deleted" : JSON.stringify(state.state, null, 2);
    } catch (error) { if (mine === turn) clear(shown, problem(error)); }
  }

  page.onLeave(() => clearTimeout(timer));
  mark();
  await read();
}

const when = (one) => one.created_at;
const cut = (text) => (text && text.length > 140 ? `${text.slice(0, 140)}…` : text ?? "");
