// What the pages ask of the server: the same routes, with the same rights, as any other client has.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.message ?? `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

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

export const get = async (path) => (await answer(path)).json();

export async function send(path, content, { method = "POST", signal } = {}) {
  const body = content === undefined ? undefined : JSON.stringify(content);
  return (await answer(path, { method, body, signal, headers: { "Content-Type": "application/json" } })).json();
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
    document.addEventListener("visibilitychange", () => (document.hidden ? this.end() : this.begin()));
    addEventListener("pagehide", () => this.end());
  }

  begin() {
    if (this.stream) return;
    this.stream = new EventSource("/v1/live");
    this.stream.addEventListener("epochs", (event) => {
      const told = JSON.parse(event.data);
      this.epoch = told.epoch;
      for (const tell of this.states) tell("live", told.epoch);
      for (const tell of this.listeners) tell(told);
    });
    this.stream.onerror = () => {
      for (const tell of this.states) tell("lost", this.epoch);
      if (this.stream?.readyState === EventSource.CLOSED) { this.end(); setTimeout(() => !document.hidden && this.begin(), 3000); }
    };
  }

  end() {
    this.stream?.close();
    this.stream = null;
  }

  listen(tell) {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  }
}
