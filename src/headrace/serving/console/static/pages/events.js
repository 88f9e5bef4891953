// Events: what happened, newest first; an aggregate's timeline, and its state at any moment of it.

import { clear, empty, h, head, number, problem } from "/console/dom.js";
import { get, named } from "/console/api.js";

const FIELDS = [["aggregate_type", "Aggregate type"], ["aggregate_id", "Aggregate id"], ["event_type", "Event type"]];
const TITLES = ["Aggregate", "Version", "Event", "At (UTC)", "Data", "Metadata", "Event id"];

export async function render(root, page) {
  const [store, kind, id] = page.parts;
  if (store && kind && id) { await aggregate(root, page, store, kind, id); return; }
  const stores = (await get("/v1/graph")).relations.filter((one) => one.event_store).map((one) => one.name);
  if (!stores.length) {
    root.append(head("Events", "What happened, in order."), empty("No event store yet", "CREATE EVENT STORE makes one; events are appended by POST /v1/events/{type}/{id}."));
    return;
  }
  const chosen = h("select", { "aria-label": "Store", onchange: () => page.go(`/events/${named(chosen.value)}`) }, stores.map((name) => h("option", { value: name }, name)));
  chosen.value = stores.includes(store) ? store : stores[0];
  const order = h("select", { "aria-label": "Order", id: "order", onchange: () => again() }, [["newest", "Newest first"], ["oldest", "Oldest first"]].map(([value, title]) => h("option", { value }, title)));
  const fields = FIELDS.map(([name, title]) => [name, h("input", { type: "search", placeholder: title, "aria-label": title, onchange: () => again(), onsearch: () => again() })]);
  const rows = h("tbody"), box = h("div.page");
  root.append(head("Events", "What happened; open one to see its aggregate's timeline.", chosen), h("div.row", { id: "search" }, fields.map(([, field]) => field), order), box);
  let next = null, edge = 0, turn = 0, asking = false;

  const asked = (more) => {
    const wanted = new URLSearchParams({ store: chosen.value, limit: "100", ...more });
    for (const [name, field] of fields) if (field.value.trim()) wanted.set(name, field.value.trim());
    return get(`/v1/events?${wanted}`);
  };
  const seen = (events) => { edge = Math.max(edge, ...events.map((one) => one.position)); };

  async function again() {
    const mine = ++turn;
    try {
      const told = await asked({ order: order.value });
      if (mine !== turn || !page.isHere()) return;
      ({ next } = told);
      edge = 0;
      seen(told.events);
      clear(rows, told.events.map((one) => line(page, chosen.value, one)));
      draw(told.hint);
    } catch (error) { if (mine === turn) clear(box, problem(error)); }
  }

  async function more() {
    const mine = turn;
    try {
      const told = await asked({ order: order.value, [order.value === "newest" ? "before" : "since"]: next });
      if (mine !== turn || !page.isHere()) return;
      ({ next } = told);
      seen(told.events);
      rows.append(...told.events.map((one) => line(page, chosen.value, one)));
      draw();
    } catch (error) { clear(box, problem(error)); }
  }

  /** What came meanwhile, on top where the newest are; below, "More" leads to it. */
  async function newer() {
    if (asking) return;
    if (order.value === "oldest" || !rows.children.length) { if (next === null) await again(); return; }
    asking = true;
    const mine = turn;
    try {
      const told = await asked({ order: "oldest", since: edge });
      if (mine !== turn || !page.isHere()) return;
      if (told.next !== null) { await again(); return; }
      seen(told.events);
      for (const one of told.events) rows.prepend(line(page, chosen.value, one));
    } catch { /* the next epoch asks again */ } finally { asking = false; }
  }

  function draw(hint) {
    if (!rows.children.length) {
      const searched = fields.some(([, field]) => field.value.trim());
      clear(box, searched ? empty("No such events", hint ?? "None has all of these names, as they are written here.") : empty("No events yet", "Append some by POST /v1/events/{type}/{id}."));
      return;
    }
    clear(box, h("div.card.scroll", null, h("table.plain", null, h("thead", null, h("tr", null, h("th.num", null, "Position"), TITLES.map((one) => h("th", null, one)))), rows)),
      next !== null && h("button", { onclick: more }, "More"));
  }

  page.onEpoch((live) => { if (live.epochs.length) newer(); });
  await again();
}

function line(page, store, one) {
  const path = `/events/${named(store)}/${named(one.aggregate_type)}/${named(one.aggregate_id)}`;
  return h("tr.opens", { "data-position": one.position, onclick: (event) => { if (!event.target.closest("a") && !String(getSelection())) page.go(path); } },
    h("td.num", null, number(one.position)), h("td", null, h("a.mono", { href: `#${path}` }, `${one.aggregate_type} ${one.aggregate_id}`)),
    h("td.num", null, number(one.event_version)), h("td", null, h("span.badge.accent", null, one.event_type)), h("td", null, at(one)),
    h("td.mono", { title: JSON.stringify(one.event_data) }, cut(JSON.stringify(one.event_data))), h("td.mono", { title: JSON.stringify(one.metadata) }, cut(bare(one.metadata), 60)), h("td.mono.quiet", null, one.event_id));
}

async function aggregate(root, page, store, kind, id) {
  const path = `/v1/events/${named(kind)}/${named(id)}`;
  const timeline = h("div.card.page"), shown = h("pre.explain", { id: "state" }), now = h("b.mono", { id: "at" }), told = h("div"), event = h("pre.explain", { id: "event" });
  const slider = h("input", { type: "range", min: "0", "aria-label": "Moment", id: "moment", oninput: () => later() });
  root.append(h("div.row", null, h("a", { href: `#/events/${named(store)}` }, "Events"), h("span.quiet", null, "/"), h("b.mono", null, `${kind} ${id}`)), head(`${kind} ${id}`, "Its events, oldest first, and what it was after each."), told);
  let events = [], timer = 0, turn = 0;
  try {
    const found = await get(`${path}?store=${named(store)}&order=newest&limit=1000`);
    events = found.events.reverse();
    if (!events.length) { clear(told, empty("No such aggregate", found.hint ?? "Its first event makes it.")); return; }
    if (found.next !== null) clear(told, h("div.note", null, `It has more: these are the newest ${number(events.length)}.`));
  } catch (error) { clear(told, problem(error)); return; }
  slider.max = String(events.length - 1);
  slider.value = slider.max;
  root.append(h("div.card.page", null, h("div.row", null, h("span.quiet", null, "As of"), now), slider),
    h("div.split", null, timeline, h("div.page", null, h("div.card", null, h("h2", null, "State"), shown), h("div.card", null, h("h2", null, "Event"), event))));

  function later() { mark(); clearTimeout(timer); timer = setTimeout(read, 100); }

  function mark() {
    const chosen = Number(slider.value), one = events[chosen];
    now.textContent = `version ${number(one.event_version)} · position ${number(one.position)} · ${at(one)} UTC`;
    event.textContent = JSON.stringify(one, null, 2);
    clear(timeline, h("h2", null, `${number(events.length)} events`), h("div.history", null, events.map((other, index) => h("button", { "aria-pressed": String(index === chosen), onclick: () => { slider.value = String(index); later(); }, title: JSON.stringify(other.event_data) },
      `${number(other.event_version)}  ${at(other)} UTC  ${other.event_type}  ${cut(JSON.stringify(other.event_data))}`))));
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

const at = (one) => new Date(one.created_at).toISOString().replace("T", " ").slice(0, 23);
const bare = (metadata) => (metadata && Object.keys(metadata).length ? JSON.stringify(metadata) : "");
const cut = (text, most = 140) => (text && text.length > most ? `${text.slice(0, most)}…` : text ?? "");
