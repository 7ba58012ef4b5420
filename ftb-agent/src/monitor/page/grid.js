// The nodes by rack: a cell for each, coloured and marked. One cell is in the order of Tab; arrow
// keys move between cells.

import { byId, el, number, plural, setText } from "./dom.js";
import { LEVELS, counts, racksOf, words } from "./model.js";

/** Up to this many nodes, cells have names. */
const NAMED_MAX = 256;
const OK = new Set(["clear"]);

export class Grid {
  constructor(open) {
    this.open = open;
    this.grid = byId("grid");
    this.cells = new Map();
    this.order = [];
    this.racks = [];
    this.shape = "";
    this.current = null;
    this.only = new Set();
    this.chips = new Map();
    this.makeChips();
    this.grid.addEventListener("click", (event) => this.onClick(event));
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    this.grid.addEventListener("focusin", (event) => this.onFocus(event));
    byId("find").addEventListener("input", () => this.show(this.nodes, this.named));
  }

  makeChips() {
    for (const level of LEVELS) {
      const count = el("b", {}, "0");
      const chip = el("button", { type: "button", class: "chip", "aria-pressed": "false" },
        el("span", { class: `swatch is-${level.key}`, "aria-hidden": "true" }, level.mark),
        count, ` ${level.word}`);
      chip.addEventListener("click", () => {
        if (!this.only.delete(level.key)) this.only.add(level.key);
        chip.setAttribute("aria-pressed", String(this.only.has(level.key)));
        this.show(this.nodes, this.named);
      });
      this.chips.set(level.key, { chip, count });
      byId("chips").append(chip);
    }
  }

  /** Whether the view's own choice has a node. */
  takes(node, text) {
    if (this.only.size > 0 && !this.only.has(node.level.key)) return false;
    return text === "" || words(node).toLowerCase().includes(text);
  }

  show(nodes, named) {
    if (!nodes) return;
    Object.assign(this, { nodes, named });
    const counted = counts(nodes);
    for (const [key, { chip, count }] of this.chips) {
      setText(count, number(counted[key]));
      chip.hidden = counted[key] === 0 && !this.only.has(key);
    }
    const text = byId("find").value.trim().toLowerCase();
    const taken = new Map([...nodes].filter(([, node]) => this.takes(node, text)));
    const racks = racksOf(taken, named);
    const found = [...nodes.values()].filter((node) => !OK.has(node.level.key)).length;
    const part = taken.size < nodes.size ? `${number(taken.size)} of ` : "";
    setText(byId("grid-note"), nodes.size === 0 ? "No node is known." :
      `${part}${plural(nodes.size, "node")}, ${number(found)} with findings`);
    const shape = JSON.stringify(racks.map((rack) => [rack.name, rack.nodes.map((n) => n.host)]));
    if (shape !== this.shape) this.build(racks, nodes.size > NAMED_MAX);
    this.shape = shape;
    for (const rack of this.racks) this.update(rack, nodes);
  }

  build(racks, dense) {
    const focused = this.grid.contains(document.activeElement);
    this.cells.clear();
    this.order = [];
    this.grid.classList.toggle("dense", dense);
    this.racks = racks.map((rack) => this.makeRack(rack));
    this.grid.replaceChildren(...this.racks.map((rack) => rack.row));
    if (!this.cells.has(this.current)) this.current = this.order[0] ?? null;
    const cell = this.cells.get(this.current);
    cell?.element.setAttribute("tabindex", "0");
    if (focused) cell?.element.focus();
  }

  makeRack(rack) {
    const note = el("span", { class: "muted" });
    const cells = el("div", { class: "cells", role: "presentation" });
    const head = el("div", { class: "rack-name", role: "rowheader" }, rack.name, " ", note);
    const row = el("div", { class: "rack", role: "row" }, head, cells);
    const hosts = rack.nodes.map((node) => node.host);
    for (const host of hosts) {
      const mark = el("span", { class: "mark" });
      const element = el("div", { class: "cell", role: "gridcell", tabindex: "-1" }, mark);
      element.append(el("span", { class: "name" }, host));
      element.dataset.host = host;
      this.cells.set(host, { element, mark, text: "" });
      this.order.push(host);
      cells.append(element);
    }
    return { row, note, hosts };
  }

  update(rack, nodes) {
    let bad = 0;
    for (const host of rack.hosts) {
      const node = nodes.get(host);
      const cell = this.cells.get(host);
      if (!OK.has(node.level.key)) bad += 1;
      const text = words(node);
      if (cell.text === text && cell.level === node.level.key) continue;
      Object.assign(cell, { text, level: node.level.key });
      cell.element.className = `cell is-${node.level.key}`;
      cell.element.setAttribute("aria-label", text);
      cell.element.title = text;
      cell.mark.textContent = node.mark;
    }
    const all = rack.hosts.length;
    setText(rack.note, bad > 0 ? `${bad} of ${all} affected` : plural(all, "node"));
  }

  hostOf(event) {
    return event.target.closest?.(".cell")?.dataset.host;
  }

  onClick(event) {
    const host = this.hostOf(event);
    if (host === undefined) return;
    this.focus(host);
    this.open(host);
  }

  onFocus(event) {
    const host = this.hostOf(event);
    if (host === undefined || host === this.current) return;
    this.cells.get(this.current)?.element.setAttribute("tabindex", "-1");
    this.current = host;
    event.target.setAttribute("tabindex", "0");
  }

  focus(host) {
    this.cells.get(host)?.element.focus();
  }

  /** How many cells are beside each other in the rack of a cell. */
  columns(hosts) {
    const top = (host) => this.cells.get(host).element.offsetTop;
    const first = top(hosts[0]);
    const wrapped = hosts.findIndex((host) => top(host) !== first);
    return wrapped < 0 ? hosts.length : wrapped;
  }

  /** The cell above or below, else in the rack before or after. */
  vertical(rack, at, step) {
    const { hosts } = this.racks[rack];
    const columns = this.columns(hosts);
    const next = at + step * columns;
    if (next >= 0 && next < hosts.length) return hosts[next];
    const other = this.racks[rack + step]?.hosts;
    if (other === undefined) return hosts[at];
    const width = this.columns(other);
    const column = Math.min(at % columns, other.length - 1);
    const last = Math.floor((other.length - 1) / width) * width;
    return other[step > 0 ? column : Math.min(last + column, other.length - 1)];
  }

  onKey(event) {
    const host = this.hostOf(event);
    if (host === undefined || event.altKey || event.metaKey) return;
    const at = this.order.indexOf(host);
    const rack = this.racks.findIndex((one) => one.hosts.includes(host));
    const { hosts } = this.racks[rack];
    const within = hosts.indexOf(host);
    const go = {
      ArrowRight: () => this.order[at + 1],
      ArrowLeft: () => this.order[at - 1],
      ArrowDown: () => this.vertical(rack, within, 1),
      ArrowUp: () => this.vertical(rack, within, -1),
      Home: () => (event.ctrlKey ? this.order[0] : hosts[0]),
      End: () => (event.ctrlKey ? this.order.at(-1) : hosts.at(-1)),
      PageDown: () => this.racks[rack + 1]?.hosts[0],
      PageUp: () => this.racks[rack - 1]?.hosts[0],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.open(host);
    else if (go) this.focus(go() ?? host);
    else return;
    event.preventDefault();
  }
}
