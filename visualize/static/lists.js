// The lists of runs and flows: keys, and the list that renews itself.

import { all, closestTo, find } from "./elements.js";

/** @import { SelectionBar } from "./selection.js" */

function openRows() {
  return all("[data-list] tbody tr");
}

/** @param {number} by */
function moveIn(by) {
  const rows = openRows();
  const number = rows.findIndex((row) => row.classList.contains("chosen"));
  const to = Math.min(rows.length - 1, Math.max(0, number + by));
  if (!rows.length) return;
  if (number >= 0) rows[number].classList.remove("chosen");
  rows[to].classList.add("chosen");
  rows[to].scrollIntoView({ block: "nearest" });
}

/** @param {KeyboardEvent} event */
export function pressInList(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || closestTo(event, "input, textarea, select, dialog")) return;
  const link = find("[data-list] tr.chosen a");
  /** @type {Record<string, (() => void) | undefined>} */
  const acts = {
    x: () => find("[data-list] tr.chosen [name=run]")?.click(),
    j: () => moveIn(1), k: () => moveIn(-1), "/": () => find("[type=search]")?.focus(),
    // What has the focus is pressed itself.
    Enter: link && !closestTo(event, "a, button, summary") ? () => link.click() : undefined,
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

const RENEW_EVERY = 2000;
const LOST_AFTER = 10_000;

/** Puts the rows of the same page, asked for again, in place of the list's own. */
export class LiveList {
  /**
   * @param {HTMLElement} list
   * @param {SelectionBar | null} selectionBar
   */
  constructor(list, selectionBar) {
    this.list = list;
    this.selectionBar = selectionBar;
    this.renewedAt = new Date();
    /** @type {HTMLElement | null} */
    this.banner = null; // that the list is not renewed, once that was so
    this.last = ""; // the rows as the server sent them last
  }

  /** @param {string} why the list is not renewed; "" where it is again */
  showAway(why) {
    if (!this.banner && why) {
      this.banner = document.createElement("div");
      this.banner.className = "banner";
      this.banner.setAttribute("role", "status");
      this.list.before(this.banner);
    }
    const text = why && `${why}. The list is as it was at ${this.renewedAt.toLocaleTimeString()}; it is tried again.`;
    if (!this.banner || this.banner.textContent === text) return;
    this.banner.textContent = text;
    this.banner.hidden = !why;
  }

  // The same page again, parsed; null, and why on the page, where there is none.
  async fetchPage() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(LOST_AFTER) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok && page.querySelector("[data-list]")) return page;
      this.showAway(`The server answers ${answer.status}, and gives no list`);
    } catch {
      this.showAway("The server cannot be reached");
    }
    return null;
  }

  // What is chosen stays chosen.
  async renew() {
    const { list } = this;
    const focus = document.activeElement;
    const isBox = focus !== null && "type" in focus && focus.type === "checkbox";
    if (document.hidden || (list.contains(focus) && !isBox)) return;
    const page = await this.fetchPage();
    if (!page) return;
    this.renewedAt = new Date();
    this.showAway("");
    const fresh = page.querySelector("[data-list]");
    const presets = page.getElementById("presets");
    if (presets) document.getElementById("presets")?.replaceChildren(...presets.childNodes);
    if (!fresh || fresh.innerHTML === this.last) return;
    this.last = fresh.innerHTML;
    const href = find("[data-list] tr.chosen a")?.getAttribute("href");
    list.replaceChildren(...fresh.childNodes);
    this.selectionBar?.paint();
    if (isBox) all("[name=run]", list).find((box) => /** @type {HTMLInputElement} */ (box).value === /** @type {HTMLInputElement} */ (focus).value)?.focus();
    for (const row of openRows()) row.classList.toggle("chosen", href !== undefined && row.querySelector("a")?.getAttribute("href") === href);
  }

  // One request after the other, so that a slow server is not asked for several at once.
  keepRenewing() {
    setTimeout(() => this.renew().finally(() => this.keepRenewing()), RENEW_EVERY);
  }
}

/** @param {SelectionBar | null} selectionBar */
export function startList(selectionBar) {
  const list = find("[data-list]");
  if (!list) return;
  document.addEventListener("keydown", pressInList);
  if (list.dataset.list === "live") new LiveList(list, selectionBar).keepRenewing();
}
