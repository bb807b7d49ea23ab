// The runs that are chosen in the list: kept while pages and filters are changed, until something is done with them.

import { all, closestTo, find, need, targetOf } from "./elements.js";
import { SHARED } from "./shared.js";

const STORED_RUNS = "flowengine-chosen "; // And the path of the page.
const MOST_CHOSEN = 500;
const RUN_BOX = ".selecting [name=run]";

class Selection {
  /** @param {Storage | undefined} store */
  constructor(store) {
    this.store = store;
    this.key = STORED_RUNS + location.pathname;
    /** @type {Set<string>} */
    this.ids = new Set(this.read());
  }

  read() {
    try {
      const value = JSON.parse(this.store?.getItem(this.key) ?? "[]");
      return Array.isArray(value) ? value.filter((id) => typeof id === "string").slice(0, MOST_CHOSEN) : [];
    } catch {
      return []; // What is kept there is not ours.
    }
  }

  /**
   * @param {string} id
   * @param {boolean} isChosen
   */
  choose(id, isChosen) {
    if (isChosen && this.ids.size < MOST_CHOSEN) this.ids.add(id);
    if (!isChosen) this.ids.delete(id);
    this.keep();
  }

  clear() {
    this.ids.clear();
    this.keep();
  }

  keep() {
    try {
      this.store?.setItem(this.key, JSON.stringify([...this.ids]));
    } catch {
      // It is full, or forbidden: what is chosen stays on this page.
    }
  }
}

export class SelectionBar {
  /** @param {Selection} selection */
  constructor(selection) {
    this.selection = selection;
    /** @type {string | null} the row that was chosen last, for Shift */
    this.last = null;
    document.addEventListener("change", (event) => this.hear(/** @type {HTMLInputElement} */ (event.target)));
    document.addEventListener("click", (event) => this.click(event));
    document.addEventListener("submit", (event) => this.addFields(event));
    this.paint();
  }

  /** @returns {HTMLInputElement[]} */
  boxes() {
    return all(RUN_BOX);
  }

  /** @param {HTMLInputElement} target */
  hear(target) {
    if (target.id === "choose-all") {
      for (const box of this.boxes()) this.selection.choose(box.value, target.checked);
    } else if (target.matches(RUN_BOX)) {
      this.selection.choose(target.value, target.checked);
    } else {
      return;
    }
    this.paint();
  }

  /**
   * With Shift, all rows from the one before.
   * @param {MouseEvent} event
   */
  click(event) {
    if (closestTo(event, "[data-choose=none]")) {
      this.selection.clear();
      this.paint();
    }
    const target = /** @type {HTMLInputElement} */ (event.target);
    if (!target.matches(RUN_BOX)) return;
    const boxes = this.boxes();
    const here = boxes.indexOf(target);
    const from = boxes.findIndex((box) => box.value === this.last);
    if (event.shiftKey && from >= 0) {
      for (const box of boxes.slice(Math.min(from, here), Math.max(from, here) + 1)) {
        this.selection.choose(box.value, target.checked);
      }
      this.paint();
    }
    this.last = target.value;
  }

  /**
   * Those on other pages go along.
   * @param {SubmitEvent} event
   */
  addFields(event) {
    const form = targetOf(event);
    if (!form.matches(".selecting")) return;
    for (const old of all("[data-brought]", form)) old.remove();
    const here = new Set(this.boxes().map((box) => box.value));
    for (const id of this.selection.ids) {
      if (here.has(id)) continue;
      const field = Object.assign(document.createElement("input"), { type: "hidden", name: "run", value: id });
      field.dataset.brought = "";
      form.append(field);
    }
    if (event.submitter?.getAttribute("value") === "cancel") this.selection.clear();
  }

  paint() {
    const boxes = this.boxes();
    for (const box of boxes) box.checked = this.selection.ids.has(box.value);
    const count = this.selection.ids.size;
    const here = boxes.filter((box) => box.checked).length;
    /** @type {HTMLInputElement | null} */
    const every = find("#choose-all");
    if (every) {
      every.checked = here > 0 && here === boxes.length;
      every.indeterminate = here > 0 && here < boxes.length;
    }
    const bar = find(".selection");
    if (!bar) return;
    bar.hidden = count === 0;
    const elsewhere = count - here;
    need("#chosen-count").textContent = `${count} chosen${elsewhere ? `, ${elsewhere} of them elsewhere` : ""}`;
    /** @type {HTMLButtonElement} */
    const compare = need("[value=compare]", bar);
    compare.disabled = count < 2 || count > SHARED.mostCompared;
  }
}

// What has been forgotten is chosen no more.
function forgetChosen() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(STORED_RUNS)) sessionStorage.removeItem(key);
  } catch {
    // Nothing is kept there, then.
  }
}

/** The bar of the page; null where nothing can be chosen. */
export function startSelection() {
  if (find("[name=sure]")) document.addEventListener("submit", forgetChosen);
  return find(".selecting, [data-list=live]") ? new SelectionBar(new Selection(globalThis.sessionStorage)) : null;
}
