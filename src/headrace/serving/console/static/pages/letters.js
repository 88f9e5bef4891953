// Dead letters: what could not be applied, why, and what becomes of it.

import { ago, clear, confirmed, empty, failed, h, head, number, problem, toast } from "/console/dom.js";
import { get, named, send } from "/console/api.js";

export async function render(root, page) {
  const box = h("div.page");
  const source = h("input", { type: "search", placeholder: "Source", "aria-label": "Source", value: page.parts[0] ?? "", onchange: () => refresh() });
  const many = [["Replay", h("button", { onclick: () => chosen("replay") })], ["Discard", h("button.danger", { onclick: () => chosen("discard") })]];
  root.append(head("Dead letters", "What could not be applied, with its reason. Nothing else waits for it.", source, page.may("administer") && many.map(([, button]) => button)), box);
  let letters = [], next = null;
  const picked = new Set();

  async function refresh(cursor = null) {
    const wanted = new URLSearchParams({ limit: "100" });
    if (source.value.trim()) wanted.set("source", source.value.trim());
    if (cursor) wanted.set("cursor", cursor);
    try {
      const told = await get(`/v1/dead-letters?${wanted}`);
      letters = cursor ? [...letters, ...told.letters] : told.letters;
      next = told.next;
      if (page.isHere()) draw();
    } catch (error) { clear(box, problem(error)); }
  }

  /** How many are chosen of those that are shown: nothing is done with what nobody sees. */
  function count() {
    for (const [verb, button] of many) {
      button.textContent = `${verb} chosen${picked.size ? ` (${number(picked.size)})` : ""}`;
      button.disabled = !picked.size;
    }
  }

  function draw() {
    const here = new Set(letters.map((one) => one.id));
    for (const id of picked) if (!here.has(id)) picked.delete(id);
    count();
    if (!letters.length) { clear(box, empty("No dead letters", "Everything that came could be applied.")); return; }
    clear(box, h("div.card.scroll", null, h("table", null,
      h("thead", null, h("tr", null, h("th"), ["Source", "Stage", "Reason", "Payload", "Arrived"].map((one) => h("th", null, one)), h("th"))),
      h("tbody", null, letters.map((one) => h("tr", { "data-letter": one.id },
        h("td", null, h("input", { type: "checkbox", checked: picked.has(one.id), "aria-label": "Choose", onchange: (event) => { if (event.target.checked) picked.add(one.id); else picked.delete(one.id); count(); } })),
        h("td", null, h("b.mono", null, one.source), h("div.quiet", null, one.position ?? "")), h("td", null, h("span.badge.warn", null, one.stage ?? "")),
        h("td", null, one.reason ?? ""), h("td.mono", null, cut(one.payload)), h("td", null, ago(one.arrived_at)),
        h("td", null, h("button", { onclick: () => open(one) }, "Open"))))))), next && h("button", { onclick: () => refresh(next) }, "More"));
  }

  function open(letter) {
    const area = h("textarea", { rows: "10", "aria-label": "Payload", value: pretty(letter.payload), id: "payload" });
    const told = h("div"), before = area.value;
    const dialog = h("dialog", { onclose: () => dialog.remove(), "aria-label": "Dead letter" },
      h("div.page", null, h("h2", null, `${letter.source}: ${letter.stage ?? ""}`), h("p", null, letter.reason ?? ""), h("p.quiet.mono", null, letter.id), area, told,
        h("div.row", null,
          page.may("administer") && h("button.main", { id: "replay", onclick: () => act(() => send(`/v1/dead-letters/${named(letter.id)}/replay`, area.value === before ? {} : { payload: area.value }), "replay", dialog, told) }, "Replay"),
          page.may("administer") && h("button.danger", { onclick: () => act(() => send("/v1/dead-letters/discard", { ids: [letter.id] }), "discard", dialog, told) }, "Discard"),
          h("button", { onclick: () => dialog.close() }, "Close"))));
    document.body.append(dialog);
    dialog.showModal();
    page.onLeave(() => dialog.remove());
  }

  async function act(run, verb, dialog, told) {
    try {
      const receipt = await run();
      const dead = Object.values(receipt.dead).reduce((sum, one) => sum + one, 0);
      if (dead && told) { clear(told, problem({ problem: { message: "it was refused again", detail: "What was sent is kept with its new reason." } })); await refresh(); return; }
      toast(dead ? `${number(dead)} refused again` : verb === "replay" ? `Applied in epoch ${number(receipt.epoch)}` : "Discarded", dead ? "bad" : "");
      dialog?.close();
      picked.clear();
      await refresh();
    } catch (error) { if (told) clear(told, problem(error)); else failed(error); }
  }

  async function chosen(verb) {
    const ids = [...picked];
    if (!ids.length) return;
    const which = ids.length === 1 ? "this dead letter" : `these ${number(ids.length)} dead letters`;
    if (verb === "discard" && !(await confirmed(`Discard ${which}?`, "What they say is lost for good.", "Discard"))) return;
    act(() => send(`/v1/dead-letters/${verb}`, { ids }), verb);
  }

  page.onEpoch((live) => { if (live.epochs.some((one) => "dead_letters" in one.changes)) refresh(); });
  await refresh();
}

const cut = (text) => (text && text.length > 160 ? `${text.slice(0, 160)}…` : text ?? "");
function pretty(text) {
  // As it came, if it is no JSON or its numbers would lose digits on the way through JavaScript.
  try { const value = JSON.parse(text); return JSON.stringify(value) === text.replace(/\s+/g, "") ? JSON.stringify(value, null, 2) : text; } catch { return text ?? ""; }
}
