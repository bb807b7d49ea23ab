// Everything by a few letters: Ctrl-K lists what the page can do, its links and its nodes. And `?` lists the keys.

import { all, closestTo, find, part, targetOf } from "./elements.js";

/** @import { Entry } from "./types.d.ts" */

const MOST_ENTRIES = 60; // Entries that are shown at once.

/**
 * How well words fit a text: null where one is missing, less is better. Letters may be left out, as in "rsm" for "resume".
 * @param {string} text
 * @param {string[]} words
 */
function fitOf(text, words) {
  const name = text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const at = name.indexOf(word);
    if (at >= 0) { sum += at === 0 || /\W/.test(name[at - 1]) ? at / 100 : 2 + at / 100; continue; }
    let from = -1;
    for (const letter of word) {
      from = name.indexOf(letter, from + 1);
      if (from < 0) return null;
    }
    sum += 20 + from / 100;
  }
  return sum + name.length / 1000;
}

/**
 * @template {{ name: string }} T
 * @param {T[]} entries
 * @param {string} text
 */
export function bestOf(entries, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return entries
    .flatMap((entry, number) => {
      const fit = fitOf(entry.name, words);
      return fit === null ? [] : [{ entry, number, fit }];
    })
    .sort((a, b) => (words.length ? a.fit - b.fit : 0) || a.number - b.number)
    .slice(0, MOST_ENTRIES)
    .map(({ entry }) => entry);
}

/** @type {Record<"run" | "list" | "all", [keys: string, words: string][]>} */
const KEYS = {
  run: [
    ["j  k", "the next node, and the one before"], ["/", "find a node; Enter goes to the next hit"],
    ["[  ]", "one event back, one event on"], ["+  −  0", "zoom in, zoom out, show everything"],
    ["↑ ↓ ← →", "in the graph: along the edges, and to the nodes beside"],
    ["Shift ↓  Shift ↑", "in the graph: into a container, and out of it"], ["Enter", "choose what has the focus"],
    ["o", "in the graph: fold or unfold a container"], ["t", "the tree instead of the graph"],
    ["f", "follow what runs"], ["Esc", "leave a field"],
  ],
  list: [["j  k", "the next row, and the one before"], ["Enter", "open it"], ["/", "search"]],
  all: [["Ctrl K", "everything by a few letters"], ["?", "these keys"]],
};

/** @param {HTMLElement} target */
function isTyping(target) {
  return /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && /** @type {HTMLInputElement} */ (target).type !== "range" || target.isContentEditable;
}

/** The list of entries, with a field that filters it. */
class EntryList {
  /** @param {() => Entry[]} collect */
  constructor(collect) {
    this.collect = collect;
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Entry[]} */
    this.matches = [];
    this.at = 0;
    this.dialog = document.createElement("dialog");
    this.dialog.className = "palette";
    this.dialog.setAttribute("aria-label", "Everything by a few letters");
    this.field = document.createElement("input");
    for (const [name, value] of Object.entries({
      type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list",
      "aria-label": "What to do, or where to go", placeholder: "A page, a node, an action …", autocomplete: "off", spellcheck: "false",
    })) this.field.setAttribute(name, value);
    this.list = document.createElement("div");
    this.list.id = "palette-list";
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "What fits");
    this.dialog.append(this.field, this.list);
    document.body.append(this.dialog);
    this.field.addEventListener("input", () => this.filter());
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("click", (event) => {
      const option = closestTo(event, "[role=option]");
      if (option) this.take(Number(option.dataset.number));
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  open() {
    if (this.dialog.open) { this.dialog.close(); return; }
    this.entries = this.collect();
    this.field.value = "";
    this.dialog.showModal();
    this.filter();
  }

  filter() {
    this.matches = bestOf(this.entries, this.field.value);
    this.list.replaceChildren(...this.matches.map((entry, number) => {
      const option = document.createElement("div");
      option.id = `palette-${number}`;
      option.dataset.number = String(number);
      option.setAttribute("role", "option");
      option.append(part("name", entry.name), part("soft", entry.kind));
      return option;
    }));
    if (!this.matches.length) {
      const none = document.createElement("div");
      none.id = "palette-none";
      none.setAttribute("role", "option");
      none.setAttribute("aria-disabled", "true");
      none.append(part("soft", "Nothing fits."));
      this.list.append(none);
    }
    this.mark(0);
  }

  /** @param {number} number */
  mark(number) {
    this.at = Math.max(0, Math.min(number, this.matches.length - 1));
    [...this.list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === this.at)));
    const option = this.list.children[this.at];
    this.field.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    /** @type {Record<string, (() => void) | undefined>} */
    const acts = {
      ArrowDown: () => this.mark(this.at + 1), ArrowUp: () => this.mark(this.at - 1), PageDown: () => this.mark(this.at + 8),
      PageUp: () => this.mark(this.at - 8), Enter: () => this.take(this.at),
    };
    const act = acts[event.key];
    event.stopPropagation();
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); this.dialog.close(); }
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** @param {number} number */
  take(number) {
    const entry = this.matches[number];
    if (!entry) return;
    this.dialog.close();
    entry.act();
  }
}

/** The keys of the page, in a dialog. */
function makeKeys() {
  const dialog = document.createElement("dialog");
  dialog.className = "keys";
  dialog.setAttribute("aria-label", "Keys");
  const table = document.createElement("table");
  const own = find("#head") ? KEYS.run : find("[data-list]") ? KEYS.list : [];
  for (const [keys, words] of [...own, ...KEYS.all]) {
    const row = table.insertRow();
    const cell = document.createElement("th");
    cell.scope = "row";
    for (const key of keys.split(/ {2}/)) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      cell.append(cap, " ");
    }
    row.append(cell);
    row.insertCell().textContent = words;
  }
  const title = document.createElement("h2");
  title.textContent = "Keys";
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.append(title, table, close);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  return dialog;
}

export class Palette {
  constructor() {
    /** @type {(() => Entry[])[]} functions that give further entries */
    this.sources = [];
    /** @type {EntryList | null} made when it is first opened */
    this.list = null;
    /** @type {HTMLDialogElement | null} made when it is first opened */
    this.keys = null;
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        this.open();
      } else if (event.key === "?" && !event.ctrlKey && !event.metaKey && !isTyping(targetOf(event))) {
        event.preventDefault();
        this.showKeys();
      }
    });
  }

  // What can be seen and pressed now, in the page as it is.
  collect() {
    /** @type {Map<string, Entry>} */
    const entries = new Map();
    for (const element of all("button, a[href], summary, input[type=search]")) {
      const { disabled = false, placeholder = "" } = /** @type {Partial<HTMLInputElement>} */ (element);
      if (disabled || !element.checkVisibility() || element.closest("dialog, .source, [data-list] tbody td:nth-child(n+3)")) continue;
      const words = element.getAttribute("aria-label") || element.textContent?.trim() || element.title || placeholder;
      const name = words.replace(/\s+/g, " ").slice(0, 100);
      const kind = element.matches("a[href]") ? "page" : "action";
      if (!name || entries.has(`${kind} ${name}`)) continue;
      const isField = element.matches("input");
      const act = () => { element.scrollIntoView({ block: "nearest" }); element.focus(); if (!isField) element.click(); };
      entries.set(`${kind} ${name}`, { kind, name, act });
    }
    return [...entries.values(), ...this.sources.flatMap((source) => source())];
  }

  open() {
    this.list ??= new EntryList(() => this.collect());
    this.list.open();
  }

  showKeys() {
    this.keys ??= makeKeys();
    if (!this.keys.open) this.keys.showModal();
  }

  // Two buttons for whoever does not know the keys yet.
  offer() {
    const place = find("nav.top") ?? find(".run-head .folds");
    if (!place) return;
    const make = (/** @type {string} */ words, /** @type {string} */ name, /** @type {() => void} */ act) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "offer";
      button.textContent = words;
      button.setAttribute("aria-label", name);
      button.addEventListener("click", act);
      return button;
    };
    const box = document.createElement("span");
    box.className = "offers";
    box.append(make("Ctrl K", "Ctrl K: everything by a few letters", () => this.open()), make("?", "?: the keys of this page", () => this.showKeys()));
    place.append(box);
  }
}
