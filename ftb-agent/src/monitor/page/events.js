// The stream of events: newest first, a bounded list. What comes faster than it can be shown is
// counted, not shown.

import { byId, clock, el, number, openDrawer, pairs, plural, say, setText } from "./dom.js";
import { severityRank } from "./model.js";
import { Stream } from "./source.js";

/** Rows of the list. */
export const ROWS_MAX = 300;
/** Texts of events that wait to be shown; older ones are counted only. */
const WAITING_MAX = ROWS_MAX;
/** The list is renewed at most this often. */
const RENEW_MS = 250;
const TEXT_MAX = 300;

export class Events {
  constructor(token, onRefused) {
    Object.assign(this, { token, onRefused });
    this.body = byId("events");
    this.count = { received: 0, skipped: 0, gaps: 0, missing: 0 };
    this.waiting = [];
    this.head = 0;
    this.paused = false;
    this.drawn = 0;
    this.isPlanned = false;
    this.isLive = false;
    this.spoken = { events: 0, worst: -1 };
    this.recent = [];
    byId("filter").addEventListener("submit", (event) => {
      event.preventDefault();
      this.start();
    });
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    byId("clear").addEventListener("click", () => this.clear());
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.ticker = setInterval(() => this.tick(), 1000);
  }

  /** The filter in the language of ftbctl. */
  filter() {
    const value = (id) => byId(id).value.trim();
    const parts = [
      value("f-severity") && `severity>=${value("f-severity")}`,
      value("f-space") && `event_space=${value("f-space")}`,
      value("f-name") && `event_name=${value("f-name")}`,
      value("f-host") && `hostname=${value("f-host")}`,
    ];
    return parts.filter(Boolean).join(", ");
  }

  start() {
    this.stop();
    this.clear();
    setText(byId("events-error"), "");
    const since = byId("f-since").value;
    const query = new URLSearchParams({ filter: this.filter() });
    if (since !== "") query.set("since", since);
    this.stream = new Stream(this.token, `/page/events?${query}`,
      (kind, data) => this.take(kind, data), (state, error) => this.onState(state, error));
  }

  stop() {
    this.stream?.close();
    this.stream = null;
    this.isLive = false;
  }

  onState(state, error) {
    const text = state === "open" ? "" : state === "broken" ?
      "The stream is interrupted; it goes on behind the last event as soon as the agent answers " +
      `(${error.message}).` :
      error.message;
    setText(byId("events-error"), text);
    if (this.isLive !== (state === "open")) {
      this.isLive = state === "open";
      this.note();
    }
    if (state === "refused" && error.status === 401) this.onRefused();
  }

  take(kind, data) {
    this.count.received += 1;
    this.spoken.events += 1;
    this.waiting.push([kind, data]);
    // The oldest go first; the list is cut rarely, so that each event costs little.
    if (this.waiting.length > 4 * WAITING_MAX) this.cut();
    this.plan();
  }

  cut() {
    const over = this.waiting.length - WAITING_MAX;
    if (over <= 0) return;
    for (const [kind, data] of this.waiting.splice(0, over)) {
      // A gap that is not shown is counted all the same.
      if (kind === "gap") this.countGap(JSON.parse(data));
      else this.count.skipped += 1;
    }
  }

  countGap(gap) {
    this.count.gaps += 1;
    this.count.missing += gap.count ?? 0;
  }

  plan() {
    if (this.isPlanned || this.paused) return;
    this.isPlanned = true;
    const wait = Math.max(0, this.drawn + RENEW_MS - performance.now());
    setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
  }

  draw() {
    this.isPlanned = false;
    if (this.paused) return;
    this.drawn = performance.now();
    this.cut();
    const rows = [];
    for (const [kind, data] of this.waiting) {
      const row = kind === "gap" ? this.gapRow(JSON.parse(data)) : this.eventRow(JSON.parse(data));
      rows.push(row);
    }
    this.waiting = [];
    this.body.prepend(...rows.reverse());
    while (this.body.childElementCount > ROWS_MAX) this.body.lastElementChild.remove();
    this.note();
  }

  note() {
    const { received, skipped, gaps, missing } = this.count;
    const parts = [plural(received - gaps, "event")];
    if (skipped > 0) parts.push(`${number(skipped)} came too fast to be shown`);
    if (gaps > 0) parts.push(`${number(missing)} are missing in ${plural(gaps, "gap")}`);
    if (this.paused) parts.push(`paused, ${number(this.waiting.length)} wait`);
    parts.push(`the list has the newest ${ROWS_MAX}`);
    const nothing = received === 0 && !this.paused;
    const empty = this.isLive ? "No event yet." : "";
    setText(byId("events-note"), nothing ? empty : parts.join(" · "));
  }

  eventRow(event) {
    const severity = String(event.severity);
    this.spoken.worst = Math.max(this.spoken.worst, severityRank(severity));
    const hosts = event.hosts ?? event.host ?? "";
    const text = event.payload ?? (event.payload_hex ? `hex ${event.payload_hex}` : "");
    const times = event.count > 1 ? ` ×${number(event.count)}` : "";
    const name = el("button", { type: "button", class: "link" }, `${event.name}${times}`);
    const row = el("tr", { class: "event" },
      el("td", { class: "time" }, clock(event.time_ns)),
      el("td", {}, el("span", { class: `tag sev-${severityRank(severity)}` }, severity)),
      el("td", { class: "what" }, name, el("span", { class: "muted" }, event.space)),
      el("td", { class: "host" }, String(hosts)),
      el("td", { class: "wide text" }, String(text).slice(0, TEXT_MAX)));
    row.event = event;
    return row;
  }

  gapRow(gap) {
    this.countGap(gap);
    const worst = gap.severity_max ? `, highest severity ${gap.severity_max}` : "";
    // A gap of unknown size has no count.
    const what = gap.count === null ? "events" : plural(gap.count, "event");
    const text = `GAP: ${what} lost (${gap.reason}${worst})`;
    return el("tr", { class: "gap" }, el("td", { colspan: "5" }, text));
  }

  onClick(event) {
    const row = event.target.closest?.("tr.event");
    if (row?.event) showEvent(row.event);
  }

  pause(paused) {
    this.paused = paused;
    const button = byId("pause");
    button.setAttribute("aria-pressed", String(paused));
    setText(button, paused ? "Resume" : "Pause");
    this.note();
    this.plan();
  }

  clear() {
    this.body.replaceChildren();
    this.waiting = [];
    this.count = { received: 0, skipped: 0, gaps: 0, missing: 0 };
    this.recent = [];
    this.note();
  }

  /** Each second: the rate, and what screen readers hear. */
  tick() {
    if (!this.stream) return;
    if (this.paused) {
      this.cut();
      this.note();
    }
    this.recent.push(this.count.received);
    if (this.recent.length > 6) this.recent.shift();
    const span = this.recent.length - 1;
    const rate = span > 0 ? (this.count.received - this.recent[0]) / span : 0;
    setText(byId("rate"), `${number(Math.round(rate))} events/s`);
    const { events, worst } = this.spoken;
    if (events > 0 && !byId("view-events").hidden && !this.paused) {
      const severity = ["INFO", "WARNING", "ERROR", "FATAL"][worst];
      say(`${plural(events, "new event")}${severity ? `, highest severity ${severity}` : ""}`);
      this.spoken = { events: 0, worst: -1 };
    }
  }
}

/** The details of an event. */
export function showEvent(event) {
  const tags = Object.entries(event.tags ?? {}).map(([key, value]) => `${key} = ${value}`);
  const { condition } = event;
  openDrawer(`event ${event.id}`, event.name, [
    pairs([
      ["Severity", event.severity], ["Space", event.space], ["Time", event.time],
      ["Host", event.hosts ?? event.host],
      ["Publisher", `${event.client}, user ${event.uid}, process ${event.pid}`],
      ["Signed", event.verified ? "verified" : ""],
      ["Job", event.job_id], ["Count", event.count > 1 ? number(event.count) : ""],
      ["Condition", condition ? `${condition.key} of ${condition.host} ${condition.component}: ` +
        condition.state : ""],
      ["Text", event.payload], ["Bytes", event.payload_hex],
      ["Tags", tags.length > 0 ? el("span", { class: "lines" }, tags.join("\n")) : ""],
      ["Id", event.id], ["Position", event.position],
    ]),
    el("p", { class: "muted" }, "The path of the event: ",
      el("code", {}, `ftbctl trace ${event.id}`)),
  ]);
}
