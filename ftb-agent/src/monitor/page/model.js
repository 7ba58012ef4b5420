// What the page knows, and what follows from it. No elements, no requests.

/** How a node is, worst first: key, word, mark in its cell. */
export const LEVELS = [
  ["down", "lost or dead", "D"],
  ["fatal", "FATAL", "F"],
  ["error", "ERROR", "E"],
  ["warning", "WARNING", "W"],
  ["suspect", "suspect or moving", "S"],
  ["unknown", "unknown", "?"],
  ["absent", "absent", "A"],
  ["clear", "clear", ""],
].map(([key, word, mark], rank) => ({ key, word, mark, rank }));

const LEVEL = Object.fromEntries(LEVELS.map((level) => [level.key, level]));
const OF_STATE = {
  __proto__: null,
  dead: ["down", "D"], lost: ["down", "L"], suspect: ["suspect", "S"], moved: ["suspect", "M"],
  absent: ["absent", "A"],
};
const SEVERITIES = ["INFO", "WARNING", "ERROR", "FATAL"];
/** Nodes that stand together if no rack is known. */
const BLOCK = 64;

export const severityRank = (severity) => SEVERITIES.indexOf(severity);

/** Compares names as people count: node9 before node10. */
const collator = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => collator.compare(a, b);

/**
 * The worst of a node's state and of its conditions. Without whole documents, a node without a
 * finding is unknown, not clear.
 */
function judge(node, isWhole) {
  const [state, mark] = OF_STATE[node.state] ?? [];
  if (state === "down") return { level: LEVEL.down, mark };
  let level = isWhole && (node.state === "up" || state) ? LEVEL.clear : LEVEL.unknown;
  const take = (other) => { if (other.rank < level.rank) level = other; };
  for (const condition of node.conditions) {
    if (condition.state === "unknown") take(LEVEL.unknown);
    else if (condition.severity !== "INFO") {
      take(LEVEL[String(condition.severity).toLowerCase()] ?? LEVEL.unknown);
    }
  }
  if (state && LEVEL[state].rank < level.rank) return { level: LEVEL[state], mark };
  return { level, mark: level.mark };
}

/** A node in words: for screen readers and titles. */
export function words(node) {
  const seen = node.conditions.map((c) => [c.key, c.component].filter(Boolean).join(" "));
  const found = seen.length > 4 ? [...seen.slice(0, 4), `${seen.length - 4} more`] : seen;
  const state = node.state && node.state !== "up" ? node.state : "";
  const level = node.level.key === "down" || node.level.key === "absent" ? "" : node.level.word;
  return [node.host, state, level, found.join(", ")].filter(Boolean).join(", ");
}

/**
 * All nodes by name, from the tree and the conditions; either may be missing. Hosts with
 * conditions that are not in the tree are nodes too.
 */
export function nodesOf(tree, conditions) {
  const nodes = new Map();
  const add = (host, rest) => {
    const node = {
      host, state: null, rank: null, parent: null, conditions: [], children: [], ...rest,
    };
    nodes.set(host, node);
    return node;
  };
  for (const one of tree?.nodes ?? []) {
    add(one.host, {
      state: one.state, rank: one.rank, parent: one.parent, role: one.role, since: one.since_ns,
    });
  }
  for (const condition of conditions?.conditions ?? []) {
    (nodes.get(condition.host) ?? add(condition.host)).conditions.push(condition);
  }
  const isWhole = tree?.complete === true && conditions?.complete === true;
  const ranks = new Map();
  for (const node of nodes.values()) if (node.rank !== null) ranks.set(node.rank, node);
  for (const node of nodes.values()) {
    Object.assign(node, judge(node, isWhole));
    const parent = node.parent === null ? undefined : ranks.get(node.parent);
    node.parentNode = parent === node ? undefined : parent;
    node.parentNode?.children.push(node);
  }
  return nodes;
}

/** How many nodes are of each level. */
export function counts(nodes) {
  const counted = Object.fromEntries(LEVELS.map((level) => [level.key, 0]));
  for (const node of nodes.values()) counted[node.level.key] += 1;
  return counted;
}

/** The rack in a name with at least two numbers: `r07-node12` is in `r07`. */
function rackIn(host) {
  const found = /^(.*?\d+)\D+\d+.*$/.exec(host);
  return found ? found[1] : null;
}

/** First and last name of a block, as a host list if they differ in their number only. */
function span(block) {
  const [first, last] = [block[0].host, block[block.length - 1].host];
  const [one, other] = [first, last].map((host) => /^(\D*)(\d+)$/.exec(host));
  if (one && other && one[1] === other[1] && first !== last) {
    return `${one[1]}[${one[2]}-${other[2]}]`;
  }
  return first === last ? first : `${first} – ${last}`;
}

/** Racks and their nodes: from the agent's file, from names with two numbers, or blocks of 64. */
export function racksOf(nodes, named) {
  const left = new Map(nodes);
  const racks = [];
  for (const rack of named ?? []) {
    const here = rack.hosts.map((host) => left.get(host)).filter(Boolean);
    for (const node of here) left.delete(node.host);
    if (here.length > 0) racks.push({ name: rack.name, nodes: here });
  }
  const rest = [...left.values()].sort((a, b) => byName(a.host, b.host));
  const byRack = new Map();
  const others = [];
  for (const node of rest) {
    const name = rackIn(node.host);
    if (name === null) others.push(node);
    else if (byRack.has(name)) byRack.get(name).push(node);
    else byRack.set(name, [node]);
  }
  for (const [name, here] of byRack) racks.push({ name, nodes: here });
  for (let at = 0; at < others.length; at += BLOCK) {
    const block = others.slice(at, at + BLOCK);
    racks.push({ name: span(block), nodes: block });
  }
  return racks;
}
