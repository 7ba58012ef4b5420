// Elements from text. Nothing here makes markup from text: what hostile users publish stays text.

export const byId = (id) => document.getElementById(id);

/** Makes an element; `children` are elements or texts. `null` attributes are left out. */
export function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element, if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const AGES = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** A duration of seconds in its largest unit. */
export function age(seconds) {
  const [unit, word] = AGES.find(([unit]) => seconds >= unit) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / unit))} ${word}`;
}

export const number = (value) => value.toLocaleString("en");
export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** A time of the log, local: today without the date. */
export function clock(ns) {
  const date = new Date(Number(ns) / 1e6);
  const time = date.toLocaleTimeString("en-GB", { hour12: false });
  const day = date.toDateString() === new Date().toDateString();
  return day ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

/** Milliseconds as people read them. */
export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

let said = 0;
let waiting = null;

/** Says something to screen readers, at most once in five seconds; the last text counts. */
export function say(text) {
  const wait = Math.max(0, said + 5000 - performance.now());
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    said = performance.now();
    setText(byId("live"), text);
  }, wait);
}

let opener = null;
let openKey = null;

/** Shows details beside the view; `key` names what is shown. The focus goes there. */
export function openDrawer(key, title, content) {
  if (openKey === null) opener = document.activeElement;
  openKey = key;
  setText(byId("drawer-title"), title);
  byId("drawer-body").replaceChildren(...content);
  byId("drawer").hidden = false;
  document.body.classList.add("has-drawer");
  byId("drawer-title").focus();
}

/** Renews the details, if they are those of `key`. The focus stays. */
export function renewDrawer(key, content) {
  const body = byId("drawer-body");
  // A button that is being pressed would lose its click.
  if (openKey !== key || body.querySelector("button:active")) return;
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
  body.replaceChildren(...content);
  if (focused === null) return;
  const same = [...body.querySelectorAll("button")].find((one) => one.textContent === focused);
  (same ?? byId("drawer-title")).focus();
}

export const drawerKey = () => openKey;

export function closeDrawer() {
  if (openKey === null) return;
  openKey = null;
  byId("drawer").hidden = true;
  document.body.classList.remove("has-drawer");
  if (opener?.isConnected) opener.focus();
  else byId("main").focus();
}

/** Names and values, in pairs. */
export function pairs(rows) {
  const list = el("dl", { class: "pairs" });
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", {}, name), el("dd", {}, value));
  }
  return list;
}
