// The tree of agents. Rows exist for what is open only.

import { byId, el, number, plural, setText } from "./dom.js";
import { byName } from "./model.js";

const isBad = (node) => node.level.key !== "clear";

export class Tree {
  constructor(open) {
    this.open = open;
    this.list = byId("tree");
    this.opened = new Set();
    this.known = new Set();
    this.rows = new Map();
    this.current = null;
    this.list.addEventListener("click", (event) => this.onClick(event));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    byId("tree-bad").addEventListener("change", () => this.render());
    byId("tree-open").addEventListener("click", () => this.all(true));
    byId("tree-close").addEventListener("click", () => this.all(false));
  }

  show(nodes, complete) {
    if (!nodes) return;
    this.nodes = nodes;
    this.complete = complete;
    this.below = new Map();
    const members = [...nodes.values()].filter((node) => node.rank !== null);
    this.roots = members.filter((node) => node.parentNode === undefined);
    // Members without a parent that are not up stand below a heading of their own.
    this.tops = this.roots.filter((node) => node.state === "up");
    this.apart = this.roots.filter((node) => node.state !== "up");
    for (const node of this.tops) this.openFirst(node, 0);
    const levels = this.tops.reduce((most, node) => Math.max(most, this.depth(node, 1)), 0);
    const up = members.filter((node) => node.state === "up").length;
    setText(byId("tree-note"), `${number(up)} of ${plural(members.length, "agent")} up, ` +
      `${plural(levels, "level")}${this.tops.length > 1 ? `, ${this.tops.length} roots` : ""}` +
      (complete ? "" : ". This is the view of this agent only: it reaches no acting root."));
    this.render();
  }

  /** The first two levels are open at first. */
  openFirst(node, level) {
    if (level > 1 || this.known.has(node.host)) return;
    this.known.add(node.host);
    if (level === 0 || this.nodes.size <= 100) this.opened.add(node.host);
    for (const child of node.children) this.openFirst(child, level + 1);
  }

  depth(node, level) {
    if (level > 64) return level;
    const deeper = node.children.map((child) => this.depth(child, level + 1));
    return deeper.reduce((most, one) => Math.max(most, one), level);
  }

  /** How many below a node have findings, and how many there are. */
  count(node, level = 0) {
    const known = this.below.get(node.host);
    if (known || level > 64) return known ?? [0, 0];
    const sum = [0, 0];
    for (const child of node.children) {
      const [bad, all] = this.count(child, level + 1);
      sum[0] += bad + (isBad(child) ? 1 : 0);
      sum[1] += all + 1;
    }
    this.below.set(node.host, sum);
    return sum;
  }

  all(open) {
    this.opened.clear();
    if (open) for (const node of this.nodes.values()) this.opened.add(node.host);
    else for (const node of this.tops) this.opened.add(node.host);
    this.render();
  }

  /** The rows that are open, in order. */
  * visible(nodes, level) {
    const onlyBad = byId("tree-bad").checked;
    const taken = nodes.filter((node) => !onlyBad || isBad(node) || this.count(node)[0] > 0);
    taken.sort((a, b) => a.rank - b.rank || byName(a.host, b.host));
    for (const [at, node] of taken.entries()) {
      yield { node, level, at, size: taken.length };
      if (level < 64 && this.opened.has(node.host)) yield* this.visible(node.children, level + 1);
    }
  }

  render() {
    if (!this.nodes) return;
    const rows = [...this.visible([...this.tops, ...this.apart], 1)];
    const hosts = new Set(rows.map((row) => row.node.host));
    for (const [host, row] of this.rows) {
      if (!hosts.has(host)) {
        row.element.remove();
        this.rows.delete(host);
      }
    }
    let before = null;
    for (const row of rows) {
      const element = this.row(row);
      const next = before === null ? this.list.firstChild : before.nextSibling;
      if (next !== element) this.list.insertBefore(element, next);
      before = element;
    }
    this.order = rows.map((row) => row.node.host);
    if (!hosts.has(this.current)) this.current = this.order[0] ?? null;
    for (const [host, row] of this.rows) {
      row.element.setAttribute("tabindex", host === this.current ? "0" : "-1");
    }
  }

  row({ node, level, at, size }) {
    let row = this.rows.get(node.host);
    if (row === undefined) {
      const [twig, dot] = [el("span", { class: "twig" }), el("span", { class: "swatch" })];
      const [name, rest] = [el("b", { class: "host" }, node.host), el("span", { class: "muted" })];
      twig.setAttribute("aria-hidden", "true");
      dot.setAttribute("aria-hidden", "true");
      const element = el("li", { role: "treeitem", class: "node" }, twig, dot, name, rest);
      element.dataset.host = node.host;
      row = { element, twig, dot, rest };
      this.rows.set(node.host, row);
    }
    const open = this.opened.has(node.host);
    const { element } = row;
    element.setAttribute("aria-level", level);
    element.setAttribute("aria-posinset", at + 1);
    element.setAttribute("aria-setsize", size);
    element.style.setProperty("--level", level - 1);
    if (node.children.length > 0) element.setAttribute("aria-expanded", String(open));
    else element.removeAttribute("aria-expanded");
    setText(row.twig, node.children.length === 0 ? "" : open ? "▾" : "▸");
    row.dot.className = `swatch is-${node.level.key}`;
    setText(row.dot, node.mark);
    setText(row.rest, this.about(node));
    return element;
  }

  about(node) {
    const [bad, all] = this.count(node);
    const level = node.level.key === "clear" ? "" : node.level.word;
    const keys = [...new Set(node.conditions.map((condition) => condition.key))];
    return [
      node.role ?? node.state, level, keys.slice(0, 3).join(" "),
      all > 0 ? `${number(all)} below` : "", bad > 0 ? `${number(bad)} with findings` : "",
    ].filter(Boolean).join(" · ");
  }

  toggle(host, open) {
    if (open) this.opened.add(host);
    else this.opened.delete(host);
    this.render();
  }

  focus(host) {
    if (host === undefined) return;
    this.current = host;
    for (const [other, row] of this.rows) {
      row.element.setAttribute("tabindex", other === host ? "0" : "-1");
    }
    this.rows.get(host)?.element.focus();
  }

  onClick(event) {
    const host = event.target.closest?.(".node")?.dataset.host;
    if (host === undefined) return;
    this.focus(host);
    if (event.target.classList.contains("twig")) this.toggle(host, !this.opened.has(host));
    else this.open(host);
  }

  onKey(event) {
    const host = event.target.closest?.(".node")?.dataset.host;
    const node = this.nodes?.get(host);
    if (node === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.order.indexOf(host);
    const isOpen = this.opened.has(host) && node.children.length > 0;
    switch (event.key) {
      case "ArrowDown": this.focus(this.order[at + 1]); break;
      case "ArrowUp": this.focus(this.order[at - 1]); break;
      case "Home": this.focus(this.order[0]); break;
      case "End": this.focus(this.order.at(-1)); break;
      case "ArrowRight":
        if (isOpen) this.focus(this.order[at + 1]);
        else if (node.children.length > 0) this.toggle(host, true);
        break;
      case "ArrowLeft":
        if (isOpen) this.toggle(host, false);
        else this.focus(node.parentNode?.host);
        break;
      case "Enter": case " ": this.open(host); break;
      default: return;
    }
    event.preventDefault();
  }
}
