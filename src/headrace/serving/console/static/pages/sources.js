// Sources and feeds: where changes come from and go to, how far behind, and what is wrong.

import { clear, compact, empty, failed, h, head, number, problem, seconds, toast } from "/console/dom.js";
import { get, named, send } from "/console/api.js";

/** The end of a path, which tells folders apart; the whole of it is in the title. */
const near = (location) => (location.startsWith("/") && location.split("/").length > 4 ? `…/${location.split("/").slice(-2).join("/")}` : location);
const KINDS = { Running: "good", Retrying: "warn", Paused: "warn", Error: "bad", Done: "" };
const badge = (state) => h(`span.badge${KINDS[state] ? "." + KINDS[state] : ""}`, null, state);
const isHeld = (one) => one.state === "Paused" || one.state === "Error";
const MOST_TABLES = 5;

/** The tables that a source brings; one of many may bring more than a cell has room for, or none yet. */
function tables(all) {
  if (!all.length) return h("span.quiet", null, "nothing yet");
  const shown = all.slice(0, MOST_TABLES).map((name, at) => [at > 0 && ", ", h("a.mono", { href: `#/view/${named(name)}` }, name)]);
  return [shown, all.length > MOST_TABLES && h("span.quiet", { title: all.join(", ") }, `, and ${number(all.length - MOST_TABLES)} more`)];
}

export async function render(root, page) {
  const into = h("div.page"), out = h("div.page");
  root.append(head("Sources and feeds", "Where changes come from, where they go, and how far behind each is."), h("h2", null, "Sources"), into, out);
  const may = page.may("administer");
  if (!may) root.firstChild.append(h("p.quiet", null, "This key sees them; to pause and resume takes the role admin."));
  let busy = false;

  async function refresh() {
    if (busy) return;
    busy = true;
    try {
      const { sources, feeds } = await get("/v1/graph");
      if (page.isHere()) { draw(sources); drawFeeds(feeds); }
    } catch (error) { clear(into, problem(error)); } finally { busy = false; }
  }

  function draw(sources) {
    if (!sources.length) {
      clear(into, empty("No sources yet", "CREATE SOURCE follows Kafka, a database, Delta tables or files; changes also come in by POST /v1/ingress."));
      return;
    }
    clear(into, h("div.card.scroll", null, h("table", null, h("thead", null, h("tr", null, ["Source", "Into", "State"].map((one) => h("th", null, one)), ["Behind", "Late by", "Received", "Applied", "Stale", "Dead", "Rate"].map((one) => h("th.num", null, one)), h("th"))),
      h("tbody", null, sources.map((one) => [h("tr", { "data-source": one.name },
        h("td", null, h("b.mono", null, one.name), h("div.quiet.path", { title: one.location }, `${one.connector} ${near(one.location)}`)),
        h("td", null, tables(one.tables)),
        h("td", null, badge(one.state)),
        h("td.num", null, compact(one.lag_records)), h("td.num", null, one.lag_seconds === null ? "–" : seconds(one.lag_seconds)),
        h("td.num", null, compact(one.received || one.rows)), h("td.num", null, compact(one.applied || one.rows)), h("td.num", null, number(one.stale)),
        h("td.num", null, one.dead ? h("a", { href: `#/letters/${named(one.name)}` }, number(one.dead)) : "0"), h("td.num", null, `${one.records_per_second.toFixed(1)}/s`),
        h("td", null, one.state !== "Done" && may && h("button", { onclick: () => act("sources", one) }, isHeld(one) ? "Resume" : "Pause"))),
      (one.error || one.warning) && h("tr", null, h("td", { colspan: "11" }, h(one.error ? "div.problem" : "div.note", null, one.error ?? one.warning)))])))));
  }

  function drawFeeds(feeds) {
    if (!feeds.length) { clear(out, h("h2", null, "Feeds"), h("p.quiet", null, "No feeds yet: CREATE CHANGEFEED sends every change of a relation on.")); return; }
    clear(out, h("h2", null, "Feeds"), h("div.card.scroll", null, h("table", null,
      h("thead", null, h("tr", null, ["Feed", "Of", "State"].map((one) => h("th", null, one)), ["Behind", "Delivered", "Waiting", "Parked", "At epoch"].map((one) => h("th.num", null, one)), h("th"))),
      h("tbody", null, feeds.map((one) => [h("tr", { "data-feed": one.name },
        h("td", null, h("b.mono", null, one.name), h("div.quiet.path", { title: one.location }, `${one.sink} ${near(one.location)}`)),
        h("td", null, h("a.mono", { href: `#/view/${named(one.table)}` }, one.table)),
        h("td", null, badge(one.retries ? "Retrying" : one.state)),
        h("td.num", null, compact(one.lag)), h("td.num", null, compact(one.events_delivered)), h("td.num", null, number(one.waiting)), h("td.num", null, number(one.parked)), h("td.num", null, number(one.epoch)),
        h("td", null, may && h("button", { onclick: () => act("changefeeds", one) }, isHeld(one) ? "Resume" : "Pause"))),
      one.error && h("tr", null, h("td", { colspan: "9" }, h("div.problem", null, one.error)))])))));
  }

  async function act(kind, one) {
    const verb = isHeld(one) ? "resume" : "pause";
    try {
      await send(`/v1/${kind}/${named(one.name)}/${verb}`, {});
      toast(`${one.name}: ${verb === "pause" ? "paused" : "goes on"}`);
      await refresh();
    } catch (error) { failed(error); }
  }

  page.onEpoch(() => refresh());
  page.every(3000, refresh);
  await refresh();
}
