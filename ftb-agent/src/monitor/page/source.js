// What the agent serves: documents, and streams of events that resume where they ended.

const ANSWER_MS = 8000;
/** The agent sends a comment at least every 15 s: a stream that is silent for longer is broken. */
const SILENCE_MS = 40000;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];
/** How long text is taken apart before the browser gets its turn. */
const TURN_MS = 8;
/** Characters of one event of a stream; the agent's are smaller. */
const EVENT_MAX = 8 * 1024 * 1024;

/** A request was answered with a status that is not 200. */
export class Refused extends Error {
  constructor(status, line) {
    super(line || `status ${status}`);
    this.status = status;
  }
}

const headers = (token, more) => ({ Authorization: `Bearer ${token}`, ...more });

async function refuse(answer) {
  const line = (await answer.text().catch(() => "")).trim().slice(0, 500);
  throw new Refused(answer.status, line);
}

/** A document of the agent. */
export async function document(token, path) {
  const answer = await fetch(path, {
    headers: headers(token), cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS),
  });
  if (!answer.ok) await refuse(answer);
  return answer.json();
}

/** Takes the blocks of a stream apart: `[kind, id, data]`. */
export class Blocks {
  constructor() {
    this.rest = "";
  }

  /** The whole blocks up to the end of a text. */
  * take(text) {
    this.rest += text;
    let from = 0;
    for (;;) {
      const end = this.rest.indexOf("\n\n", from);
      if (end < 0) break;
      let [kind, id, data] = ["message", null, null];
      for (const line of this.rest.slice(from, end).split("\n")) {
        if (line.startsWith("data: ")) data = line.slice(6);
        else if (line.startsWith("id: ")) id = line.slice(4);
        else if (line.startsWith("event: ")) kind = line.slice(7);
      }
      from = end + 2;
      if (data !== null) yield [kind, id, data];
    }
    this.rest = this.rest.slice(from);
    if (this.rest.length > EVENT_MAX) throw new Error("an event is too long");
  }
}

/** Lets the browser draw and answer; a timer would wait for some milliseconds more. */
const turn = () => globalThis.scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until the tab is shown. */
function shown() {
  const page = globalThis.document;
  return new Promise((resolve) => {
    const look = () => {
      if (page.hidden) return;
      page.removeEventListener("visibilitychange", look);
      resolve();
    };
    page.addEventListener("visibilitychange", look);
    look();
  });
}

/**
 * A stream of events. It begins anew after a failure, behind the last event that it has seen; so it
 * does when a hidden tab is shown again, which holds none of the agent's streams meanwhile.
 * `onBlock(kind, data)` gets the text of each event; `onState(state, error)`: `open`, `broken`, or
 * `refused`, after which nothing follows.
 */
export class Stream {
  constructor(token, path, onBlock, onState) {
    Object.assign(this, { token, path, onBlock, onState });
    this.last = null;
    this.failures = 0;
    this.ended = false;
    this.onHidden = () => { if (globalThis.document.hidden) this.abort?.abort(); };
    globalThis.document.addEventListener("visibilitychange", this.onHidden);
    this.run();
  }

  close() {
    this.ended = true;
    globalThis.document.removeEventListener("visibilitychange", this.onHidden);
    this.abort?.abort();
  }

  async run() {
    while (!this.ended) {
      await shown();
      if (this.ended) return;
      try {
        await this.read();
        throw new Error("the stream ended");
      } catch (error) {
        if (this.ended) return;
        if (globalThis.document.hidden) {
          this.onState("broken", new Error("the tab was hidden"));
          continue;
        }
        const final = error instanceof Refused && [400, 401, 403, 404].includes(error.status);
        this.onState(final ? "refused" : "broken", error);
        if (final) return;
        await pause(RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)]);
        this.failures += 1;
      }
    }
  }

  async read() {
    this.abort = new AbortController();
    let watch = setTimeout(() => this.abort.abort(), SILENCE_MS);
    try {
      const more = this.last === null ? {} : { "Last-Event-ID": this.last };
      const answer = await fetch(this.path, {
        headers: headers(this.token, more), cache: "no-store", signal: this.abort.signal,
      });
      if (!answer.ok) await refuse(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const blocks = new Blocks();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.ended) return;
        clearTimeout(watch);
        watch = setTimeout(() => this.abort.abort(), SILENCE_MS);
        this.onState("open", null);
        await this.pass(blocks.take(value));
      }
    } finally {
      clearTimeout(watch);
      this.abort.abort();
    }
  }

  async pass(blocks) {
    let begun = performance.now();
    for (const [kind, id, data] of blocks) {
      if (this.ended) return;
      if (kind === "error") throw new Error(JSON.parse(data));
      this.failures = 0;
      this.onBlock(kind, data);
      if (id !== null) this.last = id;
      if (performance.now() - begun > TURN_MS) {
        await turn();
        begun = performance.now();
      }
    }
  }
}
