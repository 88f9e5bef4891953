// Start: a packaged pipeline at one click, or SQL of one's own.

import { clear, failed, h, head, number, problem, seconds, toast } from "/console/dom.js";
import { get, send } from "/console/api.js";
import { editor } from "/console/editor.js";

const OWN = `CREATE TABLE orders (id INT PRIMARY KEY, city STRING, amount DECIMAL(10,2));

CREATE MATERIALIZED VIEW revenue AS
SELECT city, count(*) AS orders, sum(amount) AS revenue FROM orders GROUP BY city;

INSERT INTO orders VALUES (1, 'Oslo', 12.50), (2, 'Rome', 8.00);`;

export async function render(root, page) {
  const card = h("div.card"), told = h("div");
  const write = editor({ value: OWN, run: () => runOwn() });
  const own = h("button.main", { onclick: () => runOwn(), id: "run-own", disabled: !page.session.definitions, title: page.session.definitions ? "" : "This server takes no definitions." }, "Run");
  clear(root, head("Start", "A pipeline that is always current: take the example, or write your own."),
    !page.session.definitions && h("div.note", null, "This server takes no definitions. Start it with ", h("code", null, "headrace serve --definitions"), " to make tables and views from here."),
    h("div.split", null, card, h("div.card", null, h("h2", null, "Your own SQL"), h("div.page", null, write.element, h("div.row", null, own), told))));
  let busy = false, state = "", timer = 0;

  async function refresh() {
    const [example] = await get("/v1/examples");
    if (!page.isHere()) return;
    const key = `${example.state} ${example.detail} ${example.hours_left}`;
    if (key !== state) { state = key; draw(example); }
    if (["generating", "filling"].includes(example.state)) timer = setTimeout(() => page.isHere() && refresh().catch(failed), 700);
  }

  function draw(example) {
    const making = ["generating", "filling"].includes(example.state);
    clear(card, h("h2", null, example.title), h("div.page", null, h("p", null, `${example.about}. One click makes its data on this machine, reads it, and fills every view.`),
      making && h("div", { id: "making" }, h("progress"), h("p.quiet", null, example.detail)),
      example.state === "failed" && problem({ problem: { message: "the example was not made", detail: example.detail } }),
      example.state === "ready"
        ? h("div.row", null, h("span.badge.good", { id: "ready" }, "Ready"), h("a.button", { href: "#/overview" }, "See it flow"), h("a.button", { href: "#/board" }, "Open the board"),
          example.hours_left > 0 && h("button", { onclick: () => push(), id: "push" }, "Push the next hour"), example.hours_left > 0 && h("span.quiet", null, `${number(example.hours_left)} hours left`))
        : h("div.row", null, h("button.main", { onclick: () => begin(), disabled: making || !page.session.definitions, id: "start" }, "Make the example"), h("span.quiet", null, "about a minute")),
      Object.entries(example.sql).map(([name, text]) => h("details", null, h("summary", null, name), h("pre.sql", null, text)))));
  }

  async function begin() {
    try { await send("/v1/examples/medallion/start", { scale: 0.01 }); await refresh(); } catch (error) { failed(error); }
  }

  async function push() {
    if (busy) return;
    busy = true;
    try {
      const receipt = await send("/v1/examples/medallion/push", {});
      toast(`Epoch ${number(receipt.epoch)}: every view current in ${seconds(receipt.seconds)}`);
      await refresh();
    } catch (error) { failed(error); } finally { busy = false; }
  }

  async function runOwn() {
    if (!page.session.definitions) return;
    own.disabled = true;
    clear(told, h("progress"));
    try {
      const made = await send("/v1/scripts", { sql: write.value });
      clear(told, h("p", null, h("span.badge.good", null, `Epoch ${number(made.epoch)}`), " ", h("a", { href: "#/overview" }, "See it in the overview")));
    } catch (error) { clear(told, problem(error)); } finally { own.disabled = false; }
  }

  page.onLeave(() => clearTimeout(timer));
  await refresh();
}
