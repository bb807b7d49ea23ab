// Shows a value in the form that reads best (text, Markdown, a tree, a table, a chat), with what one does to a value:
// copy, download, show all of it, search in it. The server gives the raw text; everything else is made of that.

import { copyText, part } from "./elements.js";
import { parseJson, Real, toJson } from "./exact_json.js";
import { isMarkdown, showMarkdown } from "./markdown.js";
import { COUNT } from "./texts.js";

const SHORT = 5000; // Characters of a long text that are shown at first.
const FORMS = { markdown: "Markdown", chat: "Chat", table: "Table", tree: "Tree", text: "Text", raw: "Raw" };
const liked = {}; // what kind of value → the form that was chosen for it last

function isLeaf(value) {
  return value === null || typeof value !== "object" || value instanceof Real;
}

function isObject(value) {
  return !isLeaf(value) && !Array.isArray(value);
}

function isChat(value) {
  return Array.isArray(value) && value.length > 0 && value.every((each) => isObject(each) && typeof each.role === "string"
    && ("content" in each || "tool_calls" in each));
}

function isTable(value) {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isObject)) return false;
  return columnsOf(value).length <= 12;
}

export function columnsOf(rows) {
  return [...new Set(rows.slice(0, 1000).flatMap((row) => Object.keys(row)))];
}

// The forms that a value can be shown in, the best one first. `kind`: "json", "text" or "source", as the server knows it.
export function formsOf(text, kind) {
  const value = kind === "json" || (kind === "text" && /^\s*[[{]/.test(text)) ? parseJson(text) : undefined;
  if (isLeaf(value)) {
    return { value, forms: kind === "text" && isMarkdown(text) ? ["markdown", "text"] : ["text"] };
  }
  const forms = [isChat(value) ? "chat" : null, isTable(value) ? "table" : null, "tree", "raw"];
  return { value, forms: forms.filter(Boolean) };
}

class ValueView {
  constructor(box) {
    this.box = box;
    this.raw = box.querySelector("pre");
    this.text = this.raw.textContent;
    const { value, forms } = formsOf(this.text, box.dataset.value);
    Object.assign(this, { value, forms, isWhole: this.text.length <= SHORT });
    this.bar = document.createElement("div");
    this.bar.className = "value-tools";
    this.view = document.createElement("div");
    this.view.className = "value-view";
    box.prepend(this.bar);
    this.raw.after(this.view);
    const chosen = liked[forms.join()];
    this.show(chosen || forms[0]);
  }

  show(form) {
    this.form = form;
    const isPlain = form === "text" || form === "raw";
    this.raw.hidden = !isPlain;
    this.raw.textContent = isPlain && !this.isWhole ? `${this.text.slice(0, SHORT)}…` : this.text;
    this.view.replaceChildren(...(isPlain ? [] : [this.make(form)]));
    this.view.hidden = isPlain;
    this.drawBar();
  }

  make(form) {
    if (form === "markdown") return showMarkdown(this.isWhole ? this.text : `${this.text.slice(0, SHORT)}…`);
    if (form === "chat") return showChat(this.value);
    if (form === "table") return showTable(this.value);
    return showTree(this.value);
  }

  drawBar() {
    const isLong = ["text", "raw", "markdown"].includes(this.form) && this.text.length > SHORT;
    const forms = this.forms.length > 1 ? this.forms.map((form) => this.button(FORMS[form], () => {
      liked[this.forms.join()] = form;
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

  button(words, act, isChosen = null) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    if (isChosen !== null) button.setAttribute("aria-pressed", String(isChosen));
    button.addEventListener("click", () => act(button));
    return button;
  }

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
    if (this.box.querySelector("input[type=search]")) return;
    const find = document.createElement("input");
    find.type = "search";
    find.placeholder = "Search in it";
    find.setAttribute("aria-label", "Search in the value");
    const count = part("found", "");
    count.setAttribute("role", "status");
    let at = 0;
    const look = (by) => {
      if (!this.isWhole) { this.isWhole = true; this.show(this.form); }
      openAll(this.view);
      const found = find.value ? rangesOf(this.view.hidden ? this.raw : this.view, find.value) : [];
      at = found.length ? (at + by + found.length) % found.length : 0;
      count.textContent = find.value ? `${found.length ? at + 1 : 0} of ${found.length}` : "";
      markRanges(found, at);
    };
    find.addEventListener("input", () => { at = 0; look(0); });
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); look(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { markRanges([], 0); find.remove(); count.remove(); }
    });
    this.bar.after(find, count);
    find.focus();
  }
}

// --- searching

const MOST_FOUND = 2000;

function rangesOf(root, words) {
  const found = [];
  const wanted = words.toLowerCase();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && found.length < MOST_FOUND) {
    const text = walker.currentNode.data.toLowerCase();
    for (let at = text.indexOf(wanted); at >= 0 && found.length < MOST_FOUND; at = text.indexOf(wanted, at + wanted.length)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, Math.min(at + wanted.length, walker.currentNode.length));
      found.push(range);
    }
  }
  return found;
}

function markRanges(found, at) {
  if (globalThis.CSS?.highlights) {
    CSS.highlights.set("found", new Highlight(...found));
    CSS.highlights.set("found-now", new Highlight(...found.slice(at, at + 1)));
  }
  found[at]?.startContainer.parentElement.scrollIntoView({ block: "nearest" });
}

function openAll(root) {
  for (let todo = [root], count = 0; todo.length && count < 5000; count += 1) {
    const each = todo.pop();
    if (each.tagName === "DETAILS" && !each.open) { each.open = true; each.fill?.(); }
    todo.push(...each.children);
  }
}

// --- the forms

export function leafOf(value) {
  const isExact = typeof value === "bigint" || value instanceof Real;
  const name = value === null ? "null" : isExact ? "number" : typeof value;
  const element = document.createElement(typeof value === "string" && value.includes("\n") ? "pre" : "span");
  element.className = `leaf ${name}`;
  element.textContent = typeof value === "string" ? value : toJson(value);
  return element;
}

function entriesOf(value) {
  return Array.isArray(value) ? value.map((each, number) => [number, each]) : Object.entries(value);
}

const PAGE = 200; // Entries of one object that are made at a time.

function showTree(value, depth = 0) {
  if (isLeaf(value)) return leafOf(value);
  const list = document.createElement("ul");
  list.className = "tree";
  const entries = entriesOf(value);
  const add = (from) => {
    for (const [name, each] of entries.slice(from, from + PAGE)) list.append(showEntry(name, each, depth));
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

function showEntry(name, value, depth) {
  const line = document.createElement("li");
  const isInner = !isLeaf(value) && entriesOf(value).length > 0;
  if (!isInner) {
    line.append(part("key", String(name)), ": ", leafOf(value));
    return line;
  }
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const count = entriesOf(value).length;
  summary.append(part("key", String(name)), part("soft", Array.isArray(value) ? ` [${count}]` : ` {${count}}`));
  details.append(summary);
  details.fill = () => { if (details.children.length < 2) details.append(showTree(value, depth + 1)); };
  details.addEventListener("toggle", () => details.open && details.fill());
  if (depth < 2 && count <= 20) { details.open = true; details.fill(); }
  line.append(details);
  return line;
}

function showTable(rows) {
  const columns = columnsOf(rows);
  const box = document.createElement("div");
  box.className = "scrolls";
  const table = document.createElement("table");
  const rowOf = (cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };
  const cell = (tag, child) => {
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

function showChat(messages) {
  const box = document.createElement("div");
  box.className = "chat";
  for (const message of messages) {
    const said = document.createElement("div");
    said.className = `message ${message.role === "assistant" ? "answer" : ""}`;
    said.append(part("role", message.role));
    const { content } = message;
    if (typeof content === "string") said.append(isMarkdown(content) ? showMarkdown(content) : leafOf(content));
    else if (content !== null && content !== undefined) said.append(showTree(content));
    for (const call of message.tool_calls || []) {
      const given = call.function?.arguments ?? call.arguments;
      said.append(part("key", `→ ${call.function?.name ?? call.name ?? "a tool"}`), showTree(parseJson(given) ?? given ?? null));
    }
    box.append(said);
  }
  return box;
}

export function dressValues(root) {
  for (const box of root.querySelectorAll(".value:not(.dressed)")) {
    box.classList.add("dressed");
    const view = () => box.view ??= new ValueView(box);
    const fold = box.closest("details:not([open])");
    // What is folded is made when it is opened.
    if (fold) fold.addEventListener("toggle", () => { if (!box.closest("details:not([open])")) view(); });
    else view();
  }
}
