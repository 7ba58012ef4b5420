// Jobs, from the events of launchers and launch agents: the states of their nodes, and a timeline
// of each episode.

import { age, byId, clock, duration, el, plural, setText } from "./dom.js";
import { byName } from "./model.js";
import { Stream } from "./source.js";

const JOBS_MAX = 200;
const EPISODES_MAX = 100;
const NODES_MAX = 4096;
const SHOWN_MAX = 512;
/** Hung ranks of a job that are kept; a job with more is hung too. */
const HUNG_MAX = 4096;
const STATE_MAX = 64;
const RENEW_MS = 500;
const SINCE_S = 86400;

const STATES = {
  __proto__: null,
  MIGRATION_READY: ["works", "R", "clear"],
  MIGRATION_SPARE: ["spare", "P", "suspect"],
  MIGRATION_ARM: ["ranks leave", "M", "warning"],
  MIGRATION_INACTIVE: ["inactive", "I", "unknown"],
};
/** What begins an episode, or shows that it goes on. */
const STEPS = {
  __proto__: null,
  FTB_JL_LAUNCH: "start", FTB_JL_PREPARE: "checkpoint", FTB_CHECKPOINT: "checkpoint",
  FTB_MIGRATE: "migration", FTB_MIGRATE_IPT: "migration", FTB_JL_ROLLBACK: "rollback",
  FTB_JL_RESET: "restart", FTB_JL_KILL: "end",
};
const NAMES = [...Object.keys(STEPS), "FTB_JL_EPISODE", "FTB_JL_EVICT", "FTB_JL_HUNG",
  "FTB_JL_HANG_OVER", "FTB_NLA_STATE", "FTB_NLA_STOPPED", "FTB_NLA_EXITED"];
const FILTER = `event_space=ftb.jl|ftb.nla, event_name=${NAMES.join("|")}`;

export class Jobs {
  constructor(token, showsJobs, onRefused) {
    Object.assign(this, { token, showsJobs, onRefused });
    this.jobs = new Map();
    this.open = new Set();
    this.gaps = 0;
    this.hasGap = false;
    this.error = "";
    this.isLive = false;
    this.isPlanned = false;
  }

  start() {
    const query = new URLSearchParams({ filter: FILTER, since: String(SINCE_S) });
    this.stream = new Stream(this.token, `/page/events?${query}`,
      (kind, data) => this.take(kind, JSON.parse(data)), (state, error) => {
        this.error = state === "open" ? "" : state === "broken" ?
          `The stream is interrupted: what is below may be old (${error.message}). ` :
          error.message;
        this.isLive = state === "open";
        if (state === "refused" && error.status === 401) this.onRefused();
        this.plan();
      });
    this.ticker = setInterval(() => this.plan(), 10000);
    this.plan();
  }

  stop() {
    this.stream?.close();
    clearInterval(this.ticker);
  }

  take(kind, event) {
    // A gap of unknown size has no count.
    if (kind === "gap") Object.assign(this, { hasGap: true, gaps: this.gaps + (event.count ?? 0) });
    else if (event.job_id) this.onEvent(event);
    this.plan();
  }

  /** A job is an id and a user: nothing that another user publishes with the id belongs to it. */
  job(event) {
    const key = `${event.uid} ${event.job_id}`;
    let job = this.jobs.get(key);
    if (job === undefined) {
      job = {
        key, id: event.job_id, uid: event.uid, host: event.host, nodes: new Map(),
        episodes: new Map(), first: event.time_ns, ended: false, notices: 0,
        hung: new Set(),
      };
      this.jobs.set(key, job);
      if (this.jobs.size > JOBS_MAX) this.evict(job);
    }
    job.last = event.time_ns;
    return job;
  }

  /** Ended jobs go before those that run. */
  evict(added) {
    const all = [...this.jobs.values()];
    const oldest = all.find((one) => one.ended && one !== added) ?? all[0];
    this.jobs.delete(oldest.key);
  }

  onEvent(event) {
    const job = this.job(event);
    const tags = event.tags ?? {};
    if (event.name === "FTB_NLA_STATE") this.onState(job, tags.node ?? event.host, event);
    if (event.name === "FTB_NLA_EXITED" && event.severity !== "INFO") job.notices += 1;
    if (event.name === "FTB_JL_LAUNCH") this.onLaunch(job, event);
    if (event.name === "FTB_JL_EVICT" && tags.target) this.setState(job, tags.target, "lost");
    if (event.name === "FTB_JL_HUNG" && job.hung.size < HUNG_MAX) job.hung.add(tags.rank ?? "all");
    if (event.name === "FTB_JL_HANG_OVER") job.hung.delete(tags.rank ?? "all");
    if (event.name === "FTB_JL_EPISODE") this.onClosed(job, tags, event);
    else if (STEPS[event.name]) this.onStep(job, tags, event);
  }

  onState(job, node, event) {
    this.setState(job, node, String(event.payload ?? event.tags.state ?? "").split("->").at(-1));
  }

  /** `node01=0,1 node02=2`: where ranks start. A node says its state only when it changes. */
  onLaunch(job, event) {
    for (const part of String(event.payload ?? "").split(" ")) {
      const [node, ranks] = part.split("=");
      if (node && ranks) this.setState(job, node, "MIGRATION_READY");
    }
  }

  setState(job, node, state) {
    if (job.nodes.size < NODES_MAX || job.nodes.has(node)) {
      job.nodes.set(node, state.slice(0, STATE_MAX));
    }
  }

  episode(job, number, event) {
    let episode = job.episodes.get(number);
    if (episode === undefined) {
      episode = { number, begun: event.time_ns, kind: STEPS[event.name] ?? "", phases: [] };
      job.episodes.set(number, episode);
      if (job.episodes.size > EPISODES_MAX) job.episodes.delete(job.episodes.keys().next().value);
    }
    return episode;
  }

  onStep(job, tags, event) {
    if (tags.episode === undefined) return;
    const episode = this.episode(job, tags.episode, event);
    episode.step = event.name;
    job.ended = false;
  }

  onClosed(job, tags, event) {
    const episode = this.episode(job, tags.episode ?? "?", event);
    const phases = String(tags.phases ?? "").split(" ").map((part) => part.split("="));
    Object.assign(episode, {
      kind: tags.kind ?? episode.kind, outcome: tags.outcome ?? "", end: event.time_ns,
      text: event.payload ?? "", why: tags.why ?? "", cause: tags.cause ?? "", rule: tags.rule,
      phases: phases.map(([name, ms]) => [name, Number(ms)]).filter(([, ms]) => ms >= 0)
        .slice(0, 20),
    });
    job.ended = episode.kind === "end";
  }

  plan() {
    if (this.isPlanned || byId("view-jobs").hidden) return;
    this.isPlanned = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.isPlanned = false;
      this.draw();
    }), RENEW_MS);
  }

  draw() {
    const jobs = [...this.jobs.values()].sort((a, b) => b.last - a.last);
    const closed = this.showsJobs ? "" : "The events of jobs are private to their users. This " +
      "page reads what every user may read: rules in [[access]] of agent.toml with " +
      "subscribe = \"everyone\" for ftb.jl and ftb.nla show jobs here. ";
    const missing = this.gaps === 0 ? "events" : plural(this.gaps, "event");
    const gap = this.hasGap ? `${missing} of jobs are missing: states may be old. ` : "";
    // Only who has read everything knows that there is none.
    const isRead = this.showsJobs && this.isLive && this.error === "" && !this.hasGap;
    const none = jobs.length === 0 && isRead ? "No job in the last 24 hours." : "";
    setText(byId("jobs-note"), closed + gap + this.error + none);
    const list = byId("jobs");
    // What is being pressed would lose its click.
    if (list.querySelector("summary:active")) {
      this.plan();
      return;
    }
    const focused = list.contains(document.activeElement) ?
      document.activeElement.closest("details")?.dataset.job : undefined;
    list.replaceChildren(...jobs.map((job) => this.jobElement(job)));
    if (focused === undefined) return;
    const same = [...list.children].find((one) => one.dataset.job === focused);
    (same?.querySelector("summary") ?? byId("main")).focus({ preventScroll: true });
  }

  jobElement(job) {
    const old = age(Math.max(0, Date.now() / 1000 - job.last / 1e9));
    const isHung = job.hung.size > 0;
    const state = job.ended ? "ended" : isHung ? "hung" : "running";
    const level = job.ended ? "sev-0" : isHung ? "sev-1" : "is-clear";
    const details = el("details", { class: "job", open: this.isOpen(job) },
      el("summary", {}, el("b", {}, job.id), " ",
        el("span", { class: `tag ${level}` }, state),
        el("span", { class: "muted" }, ` user ${job.uid} · ${plural(job.nodes.size, "node")} · ` +
          `${plural(job.episodes.size, "episode")} · last event ${old} ago`)));
    details.dataset.job = job.key;
    details.addEventListener("toggle", () => {
      const wanted = details.open;
      if (wanted !== this.isOpen(job)) this.open[wanted === !job.ended ? "delete" : "add"](job.key);
    });
    details.append(nodesElement(job), timeline(job));
    return details;
  }

  /** Running jobs are open at first, others closed; `open` has those that a person turned. */
  isOpen(job) {
    return this.open.has(job.key) ? job.ended : !job.ended;
  }
}

function nodesElement(job) {
  const names = [...job.nodes.keys()].sort(byName).slice(0, SHOWN_MAX);
  const items = names.map((name) => {
    const state = job.nodes.get(name);
    const [word, mark, level] = STATES[state] ?? [state === "lost" ? "lost" : state, "L", "down"];
    return el("li", { class: `jobnode is-${level}` },
      el("span", { class: "mark", "aria-hidden": "true" }, mark), `${name} `,
      el("span", {}, word));
  });
  const more = job.nodes.size - names.length;
  if (more > 0) items.push(el("li", { class: "muted" }, `and ${more} more`));
  const list = el("ul", { class: "jobnodes", "aria-label": `Nodes of ${job.id}` }, ...items);
  return items.length > 0 ? list : el("p", { class: "muted" }, "No state of a node was seen.");
}

/** Begin and end of an episode, in nanoseconds. */
function span(episode) {
  const ms = episode.phases.reduce((sum, [, part]) => sum + part, 0);
  const end = episode.end ?? Math.max(Date.now() * 1e6, episode.begun);
  return [episode.end === undefined ? episode.begun : Math.min(episode.begun, end - ms * 1e6), end];
}

/** All episodes, newest first: when, what, a bar of phases, and the same in words. */
function timeline(job) {
  const episodes = [...job.episodes.values()].sort((a, b) => b.begun - a.begun);
  if (episodes.length === 0) return el("p", { class: "muted" }, "No episode was seen.");
  const list = el("ol", { class: "timeline", "aria-label": `Episodes of ${job.id}` });
  for (const episode of episodes) list.append(episodeElement(episode));
  return list;
}

function episodeElement(episode) {
  const [begin, end] = span(episode);
  const isOpen = episode.end === undefined;
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  const total = Math.max((end - begin) / 1e6, 1);
  const phases = isOpen || episode.phases.length === 0 ? [["", total]] : episode.phases;
  for (const [at, [name, ms]] of phases.entries()) {
    const part = el("span", { class: `phase phase-${at % 6}${isOpen ? " is-open" : ""}` }, name);
    part.style.flexGrow = String(Math.max(ms, 1));
    part.title = `${name} ${duration(ms)}`;
    bar.append(part);
  }
  const words = episode.phases.map(([name, ms]) => `${name} ${duration(ms)}`).join(" · ");
  const outcome = isOpen ? "open" : episode.outcome;
  const level = isOpen ? "is-suspect" : outcome === "done" ? "is-clear" : "is-error";
  const why = [episode.cause && `cause: ${episode.cause}`, episode.rule && `rule: ${episode.rule}`,
    episode.why].filter(Boolean).join(" · ");
  return el("li", { class: "episode" },
    el("div", { class: "episode-head" }, el("span", { class: "time" }, clock(begin)),
      el("b", {}, episode.kind || "episode"), el("span", { class: `tag ${level}` }, outcome),
      el("span", { class: "muted" }, duration(total)), el("span", {}, episode.text ?? "")),
    bar,
    words ? el("div", { class: "muted" }, words) : null,
    why ? el("div", { class: "muted" }, why) : null);
}
