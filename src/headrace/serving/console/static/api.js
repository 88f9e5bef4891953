// What the pages ask of the server: the same routes, with the same rights, as any other client has.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.message ?? `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** A number with more digits than JavaScript's numbers have: shown, and written as JSON, as it came. */
class Digits {
  constructor(source) { this.source = source; }
  toString() { return this.source; }
  valueOf() { return Number(this.source); }
  toJSON() { return JSON.rawJSON ? JSON.rawJSON(this.source) : this.source; }
}

const significant = (source) => source.replace(/e.*$/i, "").replace(/\D/g, "").replace(/^0+/, "").length;
const isKept = (value, source) => !Number.isFinite(value) || (Number.isInteger(value) ? !Number.isSafeInteger(value) : significant(source) > 17);
const exact = (_, value, context) => (typeof value === "number" && context?.source && isKept(value, context.source) ? new Digits(context.source) : value);

/** What a text of JSON says, with all digits of its numbers where the browser tells them; most texts have no long ones. */
export const parsed = (text) => (/\d[\d.]{15}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text));

let onUnknown = () => {};
export const whenUnknown = (run) => { onUnknown = run; };

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { message: "the server does not answer", hint: "look whether headrace serve is running" });
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({ message: `the server answered ${response.status}` }));
    if (response.status === 401 && path !== "/console/session") onUnknown();
    throw new Refused(response.status, problem);
  }
  return response;
}

export const get = async (path) => parsed(await (await answer(path)).text());

export async function send(path, content, { method = "POST", signal } = {}) {
  const body = content === undefined ? undefined : JSON.stringify(content);
  return parsed(await (await answer(path, { method, body, signal, headers: { "Content-Type": "application/json" } })).text());
}

export const query = (sql, more = {}, signal) => send("/v1/query", { sql, ...more }, { signal });

export async function file(sql, accept, signal) {
  const options = { method: "POST", body: JSON.stringify({ sql }), signal };
  return (await answer("/v1/query", { ...options, headers: { "Content-Type": "application/json", Accept: accept } })).blob();
}

export const named = (name) => encodeURIComponent(name);
/** A name as SQL takes it, whatever it holds. */
export const quoted = (name) => (/^[a-z_][a-z0-9_]*$/i.test(name) ? name : "`" + name.replaceAll("`", "``") + "`");

/** The epochs as they are committed; a page that nobody looks at does not listen. */
export class Live {
  constructor() {
    this.epoch = null;
    this.listeners = new Set();
    this.states = new Set();
    this.stream = null;
    this.wanted = false;
    this.timer = 0;
    this.turn = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    addEventListener("pagehide", () => this.close());
  }

  /** Listen from now on, whenever somebody looks. */
  begin() {
    this.wanted = true;
    this.open();
  }

  /** Listen no more, until it is begun again. */
  end() {
    this.wanted = false;
    this.close();
  }

  open() {
    if (this.stream || !this.wanted || document.hidden) return;
    clearTimeout(this.timer);
    this.stream = new EventSource("/v1/live");
    this.stream.addEventListener("epochs", (event) => {
      const told = parsed(event.data);
      this.epoch = told.epoch;
      for (const tell of this.states) tell("live", told.epoch);
      for (const tell of this.listeners) tell(told);
    });
    this.stream.onerror = () => {
      for (const tell of this.states) tell("lost", this.epoch);
      if (this.stream?.readyState === EventSource.CLOSED) this.refused();
    };
  }

  /** The server refuses the stream: because nobody is signed in any more, or for now. */
  async refused() {
    this.close();
    const mine = this.turn;
    const session = await get("/console/session").catch(() => null);
    if (mine !== this.turn || !this.wanted) return;
    if (session && !session.known) { onUnknown(); return; }
    this.timer = setTimeout(() => this.open(), 3000);
  }

  close() {
    clearTimeout(this.timer);
    this.turn += 1;
    this.stream?.close();
    this.stream = null;
  }

  listen(tell) {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  }
}
