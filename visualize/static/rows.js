// The list below the graph: many rows of one height, of which only those in sight are made.

import { all, closestTo, part } from "./elements.js";

/** @import { Item, MakeRow, RowSource } from "./types.d.ts" */

const HEIGHT = 22;

export class Rows {
  /**
   * @param {HTMLElement} box
   * @param {(item: Item) => void} onChoose hears the row that was clicked
   */
  constructor(box, onChoose) {
    this.box = box;
    this.inner = document.createElement("div");
    this.inner.className = "rows";
    this.inner.tabIndex = 0;
    this.inner.setAttribute("role", "listbox");
    this.inner.setAttribute("aria-label", "Rows");
    this.none = part("note", "");
    box.append(this.inner, this.none);
    this.onChoose = onChoose;
    this.inner.addEventListener("keydown", (event) => this.press(event));
    /** @type {Item[]} */
    this.items = [];
    /** @type {MakeRow<any>} */
    this.make = () => {};
    /** @type {HTMLElement | null} */
    this.head = null;
    this.offset = 0;
    /** @type {Map<number, HTMLElement>} number → element */
    this.elements = new Map();
    /** @type {string | null} */
    this.chosen = null;
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => {
      this.draw(true);
      this.thin();
    }).observe(box);
    this.inner.addEventListener("click", (event) => {
      const row = closestTo(event, ".row");
      if (row) onChoose(this.items[Number(row.dataset.row)]);
    });
  }

  /**
   * Items with the same `key` are the same row. `none`: what is said of no items.
   * @template {Item} T
   * @param {RowSource<T>} source
   */
  show([items, make, head = undefined], none = "") {
    this.items = items;
    this.none.textContent = items.length ? "" : none;
    this.make = make;
    this.inner.style.height = `${items.length * HEIGHT + (head ? HEIGHT : 0)}px`;
    this.offset = head ? HEIGHT : 0;
    this.head?.remove();
    this.head = head ?? null;
    head?.setAttribute("aria-hidden", "true");
    if (head) this.inner.append(head);
    this.draw(true);
    this.thin();
  }

  // Of the head's words those that stand free of the ones before them.
  thin() {
    let free = -Infinity;
    for (const tick of this.head ? all(".tick", this.head) : []) {
      tick.hidden = false;
      const { left, right } = tick.getBoundingClientRect();
      tick.hidden = left < free;
      if (!tick.hidden) free = right + 4;
    }
  }

  draw(again = false) {
    const from = Math.max(0, Math.floor((this.box.scrollTop - this.offset) / HEIGHT) - 4);
    const to = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + 4);
    for (const [number, element] of this.elements) {
      if (!again && number >= from && number < to) continue;
      element.remove();
      this.elements.delete(number);
    }
    for (let number = from; number < to; number += 1) {
      if (this.elements.has(number)) continue;
      const element = document.createElement("div");
      const item = this.items[number];
      element.className = `row ${item.key === this.chosen ? "chosen" : ""} ${item.class || ""}`;
      element.dataset.row = String(number);
      element.id = `row-${number}`;
      element.setAttribute("role", "option");
      element.setAttribute("aria-selected", String(item.key === this.chosen));
      element.setAttribute("aria-posinset", String(number + 1));
      element.setAttribute("aria-setsize", String(this.items.length));
      element.style.top = `${number * HEIGHT + this.offset}px`;
      this.make(item, element);
      this.elements.set(number, element);
      this.inner.append(element);
    }
  }

  /**
   * Arrows go from row to row.
   * @param {KeyboardEvent} event
   */
  press(event) {
    if (event.target !== this.inner || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.items.findIndex((item) => item.key === this.chosen);
    const last = this.items.length - 1;
    /** @type {Record<string, number | undefined>} */
    const places = { ArrowDown: now + 1, ArrowUp: Math.max(0, now - 1), Home: 0, End: last, PageDown: now + 10, PageUp: Math.max(0, now - 10) };
    const to = places[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    const item = this.items[Math.min(last, to)];
    this.onChoose(item);
    this.choose(item.key);
    this.draw();
  }

  /** @param {string | null} key */
  choose(key, bring = true) {
    this.chosen = key;
    for (const [number, element] of this.elements) {
      const isChosen = this.items[number].key === key;
      element.classList.toggle("chosen", isChosen);
      element.setAttribute("aria-selected", String(isChosen));
      if (isChosen) this.inner.setAttribute("aria-activedescendant", element.id);
    }
    const number = bring ? this.items.findIndex((item) => item.key === key) : -1;
    if (number < 0) return;
    const top = number * HEIGHT + this.offset;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop + this.offset) this.box.scrollTop = top - 2 * HEIGHT;
    else if (top + HEIGHT > scrollTop + clientHeight) this.box.scrollTop = top + 2 * HEIGHT - clientHeight;
  }
}
