// Shows a value in the form that reads best (text, Markdown, a tree, a table, a chat), with what one does to a value:
// copy, download, show all of it, search in it. The server gives the raw text; everything else is made of that.

import { all, copyText, find, need, part } from "./elements.js";
import { parseJson, Real, toJson } from "./exact_json.js";
import { isMarkdown, showMarkdown } from "./markdown.js";
import { COUNT } from "./texts.js";

/** @typedef {"markdown" | "chat" | "table" | "tree" | "text" | "raw"} Form */

const SHORT = 5000; // Characters of a long text that are shown at first.
/** @type {Record<Form, string>} */
const FORMS = { markdown: "Markdown", chat: "Chat", table: "Table", tree: "Tree", text: "Text", raw: "Raw" };
/** @type {Record<string, Form>} what kind of value → the form that was chosen for it last */
const preferences = {};

/** @param {unknown} value */
function isLeaf(value) {
  return value === null || typeof value !== "object" || value instanceof Real;
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isObject(value) {
  return !isLeaf(value) && !Array.isArray(value);
}

/** @param {unknown} value */
function isChat(value) {
  return Array.isArray(value) && value.length > 0 && value.every((message) => isObject(message) && typeof message.role === "string"
    && ("content" in message || "tool_calls" in message));
}

/** @param {unknown} value */
function isTable(value) {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isObject)) return false;
  return columnsOf(value).length <= 12;
}

/** @param {Record<string, unknown>[]} rows */
export function columnsOf(rows) {
  return [...new Set(rows.slice(0, 1000).flatMap((row) => Object.keys(row)))];
}

/**
 * The forms that a value can be shown in, the best one first. `kind`: "json", "text" or "source", as the server knows it.
 * @param {string} text
 * @param {string | undefined} kind
 * @returns {{ value: any, forms: Form[] }}
 */
export function formsOf(text, kind) {
  const value = kind === "json" || (kind === "text" && /^\s*[[{]/.test(text)) ? parseJson(text) : undefined;
  if (isLeaf(value)) return { value, forms: kind === "text" && isMarkdown(text) ? ["markdown", "text"] : ["text"] };
  /** @type {Form[]} */
  const forms = ["tree", "raw"];
  if (isTable(value)) forms.unshift("table");
  if (isChat(value)) forms.unshift("chat");
  return { value, forms };
}

class ValueView {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    this.raw = need("pre", box);
    this.text = this.raw.textContent ?? "";
    const { value, forms } = formsOf(this.text, box.dataset.value);
    this.value = value;
    this.forms = forms;
    this.isWhole = this.text.length <= SHORT;
    this.bar = document.createElement("div");
    this.bar.className = "value-tools";
    this.view = document.createElement("div");
    this.view.className = "value-view";
    box.prepend(this.bar);
    this.raw.after(this.view);
    this.form = preferences[forms.join()] ?? forms[0];
    this.show(this.form);
  }

  /** @param {Form} form */
  show(form) {
    this.form = form;
    const isPlain = form === "text" || form === "raw";
    this.raw.hidden = !isPlain;
    this.raw.textContent = isPlain && !this.isWhole ? `${this.text.slice(0, SHORT)}…` : this.text;
    this.view.replaceChildren(...(isPlain ? [] : [this.make(form)]));
    this.view.hidden = isPlain;
    this.drawBar();
  }

  /** @param {Form} form */
  make(form) {
    if (form === "markdown") return showMarkdown(this.isWhole ? this.text : `${this.text.slice(0, SHORT)}…`);
    if (form === "chat") return showChat(this.value);
    if (form === "table") return showTable(this.value);
    return showTree(this.value);
  }

  drawBar() {
    const isLong = ["text", "raw", "markdown"].includes(this.form) && this.text.length > SHORT;
    const forms = this.forms.length > 1 ? this.forms.map((form) => this.button(FORMS[form], () => {
      preferences[this.forms.join()] = form;
      this.show(form);
    }, form === this.form)) : [];
    const whole = `Show all ${COUNT.format(this.text.length)} characters`;
    this.bar.replaceChildren(
      ...forms,
      part("gap", ""),
      ...(isLong ? [this.button(this.isWhole ? "Show less" : whole, () => { this.isWhole = !this.isWhole; this.show(this.form); })] : []),
      this.button("Search", () => this.openSearch()),
      this.button("Copy", (button) => this.copy(button)),
      this.button("Download", () => this.download()),
    );
  }

  /**
   * @param {string} words
   * @param {(button: HTMLButtonElement) => unknown} act
   * @param {boolean | null} [isChosen] null: it is no choice
   */
  button(words, act, isChosen = null) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    if (isChosen !== null) button.setAttribute("aria-pressed", String(isChosen));
    button.addEventListener("click", () => act(button));
    return button;
  }

  /** @param {HTMLButtonElement} button */
  async copy(button) {
    button.textContent = (await copyText(this.text)) ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  download() {
    const isJson = this.value === null || !isLeaf(this.value);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.text], { type: "text/plain" }));
    link.download = isJson ? "value.json" : isMarkdown(this.text) ? "value.md" : "value.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  openSearch() {
    if (find("input[type=search]", this.box)) return;
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Search in it";
    field.setAttribute("aria-label", "Search in the value");
    const count = part("found", "");
    count.setAttribute("role", "status");
    let at = 0;
    const search = (/** @type {number} */ by) => {
      if (!this.isWhole) { this.isWhole = true; this.show(this.form); }
      openAll(this.view);
      const ranges = field.value ? rangesOf(this.view.hidden ? this.raw : this.view, field.value) : [];
      at = ranges.length ? (at + by + ranges.length) % ranges.length : 0;
      count.textContent = field.value ? `${ranges.length ? at + 1 : 0} of ${ranges.length}` : "";
      markRanges(ranges, at);
    };
    field.addEventListener("input", () => { at = 0; search(0); });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); search(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { markRanges([], 0); field.remove(); count.remove(); }
    });
    this.bar.after(field, count);
    field.focus();
  }
}

// --- searching

const MOST_RANGES = 2000;

/**
 * The places of a text in an element.
 * @param {HTMLElement} root
 * @param {string} words
 */
function rangesOf(root, words) {
  /** @type {Range[]} */
  const ranges = [];
  const search = words.toLowerCase();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ranges.length < MOST_RANGES) {
    const node = /** @type {Text} */ (walker.currentNode);
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(search); at >= 0 && ranges.length < MOST_RANGES; at = text.indexOf(search, at + search.length)) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, Math.min(at + search.length, node.length));
      ranges.push(range);
    }
  }
  return ranges;
}

/**
 * @param {Range[]} ranges
 * @param {number} at the one that is looked at
 */
function markRanges(ranges, at) {
  if (globalThis.CSS?.highlights) {
    CSS.highlights.set("found", new Highlight(...ranges));
    CSS.highlights.set("found-now", new Highlight(...ranges.slice(at, at + 1)));
  }
  ranges[at]?.startContainer.parentElement?.scrollIntoView({ block: "nearest" });
}

/** @type {WeakMap<HTMLDetailsElement, () => void>} what is folded → what makes its inside */
const fillers = new WeakMap();

/** @param {HTMLElement} root */
function openAll(root) {
  const queue = [root];
  for (let count = 0, element; count < 5000 && (element = queue.pop()); count += 1) {
    if (element instanceof HTMLDetailsElement && !element.open) {
      element.open = true;
      fillers.get(element)?.();
    }
    queue.push(.../** @type {Iterable<HTMLElement>} */ (element.children));
  }
}

// --- the forms

/** @param {unknown} value */
export function leafOf(value) {
  const isExact = typeof value === "bigint" || value instanceof Real;
  const name = value === null ? "null" : isExact ? "number" : typeof value;
  const element = document.createElement(typeof value === "string" && value.includes("\n") ? "pre" : "span");
  element.className = `leaf ${name}`;
  element.textContent = typeof value === "string" ? value : toJson(value) ?? "";
  return element;
}

/**
 * @param {any} value an object or a list
 * @returns {[name: string | number, item: any][]}
 */
function entriesOf(value) {
  return Array.isArray(value) ? value.map((item, number) => [number, item]) : Object.entries(value);
}

const PAGE = 200; // Entries of one object that are made at a time.

/**
 * @param {any} value
 * @returns {HTMLElement}
 */
function showTree(value, depth = 0) {
  if (isLeaf(value)) return leafOf(value);
  const list = document.createElement("ul");
  list.className = "tree";
  const entries = entriesOf(value);
  const add = (/** @type {number} */ from) => {
    for (const [name, item] of entries.slice(from, from + PAGE)) list.append(showEntry(name, item, depth));
    if (entries.length <= from + PAGE) return;
    const more = document.createElement("button");
    more.type = "button";
    more.textContent = `${COUNT.format(entries.length - from - PAGE)} more`;
    more.addEventListener("click", () => { more.remove(); add(from + PAGE); });
    list.append(more);
  };
  add(0);
  return list;
}

/**
 * @param {string | number} name
 * @param {any} value
 * @param {number} depth
 */
function showEntry(name, value, depth) {
  const line = document.createElement("li");
  const count = isLeaf(value) ? 0 : entriesOf(value).length;
  if (!count) {
    line.append(part("key", String(name)), ": ", leafOf(value));
    return line;
  }
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(part("key", String(name)), part("soft", Array.isArray(value) ? ` [${count}]` : ` {${count}}`));
  details.append(summary);
  const fill = () => { if (details.children.length < 2) details.append(showTree(value, depth + 1)); };
  fillers.set(details, fill);
  details.addEventListener("toggle", () => details.open && fill());
  if (depth < 2 && count <= 20) { details.open = true; fill(); }
  line.append(details);
  return line;
}

/** @param {Record<string, unknown>[]} rows */
function showTable(rows) {
  const columns = columnsOf(rows);
  const box = document.createElement("div");
  box.className = "scrolls";
  const table = document.createElement("table");
  const rowOf = (/** @type {HTMLElement[]} */ cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };
  const cell = (/** @type {string} */ tag, /** @type {Node | string} */ child) => {
    const element = document.createElement(tag);
    element.append(child);
    return element;
  };
  table.append(rowOf(columns.map((name) => cell("th", name))));
  for (const row of rows.slice(0, 1000)) {
    table.append(rowOf(columns.map((name) => cell("td", name in row ? showTree(row[name], 3) : ""))));
  }
  box.append(table);
  if (rows.length > 1000) box.append(part("note", `The first 1,000 of ${COUNT.format(rows.length)} rows.`));
  return box;
}

/** @param {Record<string, any>[]} messages */
function showChat(messages) {
  const box = document.createElement("div");
  box.className = "chat";
  for (const message of messages) {
    const element = document.createElement("div");
    element.className = `message ${message.role === "assistant" ? "answer" : ""}`;
    element.append(part("role", message.role));
    const { content } = message;
    if (typeof content === "string") element.append(isMarkdown(content) ? showMarkdown(content) : leafOf(content));
    else if (content !== null && content !== undefined) element.append(showTree(content));
    for (const call of message.tool_calls || []) {
      const callArguments = call.function?.arguments ?? call.arguments;
      element.append(part("key", `→ ${call.function?.name ?? call.name ?? "a tool"}`), showTree(parseJson(callArguments) ?? callArguments ?? null));
    }
    box.append(element);
  }
  return box;
}

/** @param {ParentNode} root */
export function dressValues(root) {
  for (const box of all(".value:not(.dressed)", root)) {
    box.classList.add("dressed");
    const fold = box.closest("details:not([open])");
    if (!fold) { new ValueView(box); continue; }
    // What is folded is made when it is opened.
    const make = () => {
      if (box.closest("details:not([open])")) return;
      fold.removeEventListener("toggle", make);
      new ValueView(box);
    };
    fold.addEventListener("toggle", make);
  }
}
