// The page: token, views, and what is asked of the agent how often.

import {
  age, byId, clock, closeDrawer, drawerKey, el, number, openDrawer, pairs, plural, renewDrawer, say,
  setText,
} from "./dom.js";
import { Events } from "./events.js";
import { Grid } from "./grid.js";
import { Jobs } from "./jobs.js";
import { counts, nodesOf } from "./model.js";
import { Refused, document as ask } from "./source.js";
import { Tree } from "./tree.js";

const POLL_MS = 2000;
/** What is older than this is shown as old. */
const OLD_MS = 7000;
const VIEWS = ["nodes", "tree", "events", "jobs"];
const KEY = "ftb-page-token";
const THEMES = ["system", "light", "dark"];

const state = {
  token: "", about: null, tree: null, conditions: null, nodes: null, seen: 0, seenConditions: 0,
  failure: "", spoken: "", entering: false, measured: false,
};
let grid;
let tree;
let events;
let jobs;
let poller;

/** The token of `#token=…`, which leaves the address bar at once. */
function givenToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return null;
  history.replaceState(null, "", `${location.pathname}#nodes`);
  try {
    return decodeURIComponent(given[1]);
  } catch {
    return given[1];
  }
}

/** A token may also be given while the page is open. What the one before it showed goes. */
function onHash() {
  const given = givenToken();
  if (given === null || given === state.token) route();
  else if (state.token === "") login(given);
  else {
    sessionStorage.setItem(KEY, given);
    location.reload();
  }
}

function showLogin(line) {
  byId("shell").hidden = true;
  byId("login").hidden = false;
  setText(byId("login-error"), line);
  byId("token").value = "";
  byId("token").focus();
}

function forget(line) {
  clearTimeout(poller);
  events?.stop();
  jobs?.stop();
  sessionStorage.removeItem(KEY);
  state.token = "";
  // What was shown goes with the token.
  if (state.about) location.reload();
  else showLogin(line);
}

const onRefused = () => forget("The agent refuses this token.");

async function login(token) {
  if (state.entering) return;
  state.entering = true;
  try {
    state.about = null;
    const about = await ask(token, "/page/about.json");
    Object.assign(state, { token, about });
    sessionStorage.setItem(KEY, token);
  } catch (error) {
    const wrong = error instanceof Refused && error.status === 401;
    const line = wrong ? "The agent refuses this token." :
      `The agent does not answer: ${error.message}`;
    if (wrong) sessionStorage.removeItem(KEY);
    showLogin(line);
    return;
  } finally {
    state.entering = false;
  }
  byId("login").hidden = true;
  byId("shell").hidden = false;
  const { cluster, host, version, racks } = state.about;
  setText(byId("cluster"), cluster);
  setText(byId("served-by"), `by ${host}, ${version}`);
  document.title = `${cluster} · ftb`;
  grid ??= new Grid(openNode);
  tree ??= new Tree(openNode);
  events = new Events(token, onRefused);
  jobs = new Jobs(token, state.about.shows_jobs, onRefused);
  state.racks = racks;
  jobs.start();
  route();
  poll();
}

/** Asks for the tree and the conditions. Each counts alone: one may be missing. */
async function poll() {
  clearTimeout(poller);
  if (state.polls) return;
  state.polls = true;
  const [treeAsked, conditionsAsked] = await Promise.allSettled([
    ask(state.token, "/page/tree.json"), ask(state.token, "/page/conditions.json"),
  ]);
  state.polls = false;
  if (state.token === "") return;
  const failed = [treeAsked, conditionsAsked].filter((one) => one.status === "rejected");
  if (failed.some(({ reason }) => reason instanceof Refused && reason.status === 401)) {
    onRefused();
    return;
  }
  const now = Date.now();
  if (treeAsked.status === "fulfilled") Object.assign(state, { tree: treeAsked.value, seen: now });
  if (conditionsAsked.status === "fulfilled") {
    Object.assign(state, { conditions: conditionsAsked.value, seenConditions: now });
  }
  state.failure = failed[0]?.reason.message ?? "";
  if (failed.length < 2) refresh();
  freshness();
  poller = setTimeout(poll, POLL_MS);
}

/** Shows what is known now in the view that is open. */
function refresh() {
  const { tree: document, conditions } = state;
  state.nodes = nodesOf(document, conditions);
  const start = performance.now();
  if (!byId("view-nodes").hidden) grid.show(state.nodes, state.racks);
  if (!byId("view-tree").hidden) tree.show(state.nodes, document?.complete ?? false);
  if (!state.measured) performance.measure("ftb-render", { start });
  state.measured = true;
  const key = drawerKey();
  if (key?.startsWith("node ")) renewDrawer(key, nodeDetails(key.slice(5)));
  speak();
}

function speak() {
  const counted = counts(state.nodes);
  const bad = ["down", "fatal", "error", "warning", "unknown"].filter((key) => counted[key] > 0);
  const text = bad.map((key) => `${number(counted[key])} ${key}`).join(", ");
  if (text !== state.spoken) say(text === "" ? "No node has a finding." : `Nodes: ${text}`);
  state.spoken = text;
}

/** Old data are marked with their age, and never pass for the state of now. */
function freshness() {
  const now = Date.now();
  const oldest = Math.min(state.seen, state.seenConditions);
  const isOld = now - oldest > OLD_MS;
  const never = oldest === 0;
  const fresh = byId("fresh");
  fresh.dataset.state = never ? "waiting" : isOld ? "lost" : "live";
  const old = age((now - oldest) / 1000);
  setText(byId("fresh-text"), never ? "no data yet" : isOld ? `no answer for ${old}` : "live");
  document.body.classList.toggle("is-old", isOld);
  const lines = [];
  if (isOld && !never) {
    lines.push(`The agent has not answered since ${clock(oldest * 1e6)}. What is below is ` +
      "old: the present state of the nodes is unknown.");
  } else if (state.failure) lines.push(`The agent does not answer in full: ${state.failure}.`);
  if (never && state.failure) lines.push("No node is shown as clear until it does.");
  if (state.tree?.complete === false) {
    lines.push("The tree is not complete: this agent reaches no acting root, and shows its own " +
      "view.");
  }
  if (state.conditions?.complete === false) lines.push("The table of conditions is cut.");
  const isPart = [state.tree, state.conditions].some((one) => one?.complete === false);
  if (isPart) lines.push("A node without a known finding is shown as unknown.");
  if (state.conditions?.hidden > 0) {
    lines.push(`${plural(state.conditions.hidden, "condition")} not shown: not every user may ` +
      "read them.");
  }
  const banner = byId("banner");
  banner.classList.toggle("is-bad", isOld || state.failure !== "" || isPart);
  setText(banner, lines.join(" "));
}

function condition(one) {
  const since = one.onset_ns ? `since ${clock(one.onset_ns)}` : "";
  const unknown = one.state === "unknown";
  const rank = ["INFO", "WARNING", "ERROR", "FATAL"].indexOf(one.severity);
  return el("li", { class: "condition" },
    el("div", {}, el("span", { class: `tag ${unknown ? "is-unknown" : `sev-${rank}`}` },
      unknown ? "unknown" : one.severity), " ", el("b", {}, one.key), ` ${one.component}`),
    one.message ? el("div", { class: "text" }, one.message) : null,
    el("div", { class: "muted" }, [since, one.action && one.action !== "none" ?
      `recommended: ${one.action}` : "", `stated by ${one.publisher_host}, user ` +
      `${one.publisher_uid}`].filter(Boolean).join(" · ")));
}

function nodeLink(node) {
  const link = el("button", { type: "button", class: "link" }, node.host);
  link.addEventListener("click", () => openNode(node.host));
  return el("li", {}, el("span", { class: `swatch is-${node.level.key}`, "aria-hidden": "true" },
    node.mark), link, node.level.key === "clear" ? "" : ` ${node.level.word}`);
}

function nodeDetails(host) {
  const node = state.nodes.get(host);
  if (node === undefined) return [el("p", {}, "This node is not known any more.")];
  const found = node.conditions.length > 0 ?
    el("ul", { class: "conditions" }, ...node.conditions.map(condition)) :
    el("p", { class: "muted" }, state.conditions?.complete ?
      "No condition that every user may read." : "The conditions are not known in full.");
  const neighbours = [];
  if (node.parentNode) {
    neighbours.push(el("h3", {}, "Parent"), el("ul", {}, nodeLink(node.parentNode)));
  }
  if (node.children.length > 0) {
    neighbours.push(el("h3", {}, `Children: ${number(node.children.length)}`),
      el("ul", { class: "columns" }, ...node.children.slice(0, 256).map(nodeLink)));
  }
  return [
    el("p", {}, el("span", {
      class: `swatch is-${node.level.key}`, "aria-hidden": "true",
    }, node.mark), ` ${node.level.word}`),
    pairs([
      ["State", node.state ?? "not in the tree"], ["Role", node.role], ["Rank", node.rank],
      ["Since", node.since ? clock(node.since) : ""],
    ]),
    el("h3", {}, "Conditions"), found, ...neighbours,
    el("p", { class: "muted" }, "More: ", el("code", {}, `ftbctl node ${host}`)),
  ];
}

function openNode(host) {
  openDrawer(`node ${host}`, host, nodeDetails(host));
}

function route() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "nodes";
  for (const name of VIEWS) byId(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  closeDrawer();
  if (!state.about) return;
  if (view === "events" && !events.stream) events.start();
  if (view === "jobs") jobs.plan();
  if (state.nodes) refresh();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("ftb-page-theme", name);
  setText(byId("theme"), `Theme: ${name}`);
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  login(byId("token").value.trim());
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  scrollTo(0, 0);
  (byId("login").hidden ? byId("main") : byId("token")).focus();
});
byId("logout").addEventListener("click", () => forget(""));
byId("drawer-close").addEventListener("click", closeDrawer);
byId("theme").addEventListener("click", () => {
  const now = THEMES.indexOf(document.documentElement.dataset.theme);
  theme(THEMES[(now + 1) % THEMES.length]);
});
addEventListener("keydown", (event) => { if (event.key === "Escape") closeDrawer(); });
addEventListener("hashchange", onHash);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && state.token !== "") poll();
});
setInterval(() => { if (state.token !== "") freshness(); }, 1000);
const kept = localStorage.getItem("ftb-page-theme");
theme(THEMES.includes(kept) ? kept : "system");
const token = givenToken() ?? sessionStorage.getItem(KEY) ?? "";
if (token === "") showLogin("");
else login(token);
