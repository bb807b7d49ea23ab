// The runs that are chosen in the list: kept while pages and filters are changed, until something is done with them.

import { SHARED } from "./shared.js";

const CHOSEN_KEY = "flowengine-chosen "; // And the path of the page.
const MOST_CHOSEN = 500;

class Selection {
  constructor(store) {
    this.store = store;
    this.key = CHOSEN_KEY + location.pathname;
    this.ids = new Set(this.read());
  }

  read() {
    try {
      const found = JSON.parse(this.store?.getItem(this.key) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string").slice(0, MOST_CHOSEN) : [];
    } catch {
      return []; // What is kept there is not ours.
    }
  }

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

class SelectionBar {
  constructor(selection) {
    this.selection = selection;
    this.last = null; // the row that was chosen last, for Shift
    document.addEventListener("change", (event) => this.hear(event));
    document.addEventListener("click", (event) => this.click(event));
    document.addEventListener("submit", (event) => this.bring(event));
    this.paint();
  }

  boxes() {
    return [...document.querySelectorAll(".selecting [name=run]")];
  }

  hear(event) {
    if (event.target.id === "choose-all") {
      for (const box of this.boxes()) this.selection.choose(box.value, event.target.checked);
    } else if (event.target.matches(".selecting [name=run]")) {
      this.selection.choose(event.target.value, event.target.checked);
    } else {
      return;
    }
    this.paint();
  }

  // With Shift, all rows from the one before.
  click(event) {
    if (event.target.closest("[data-choose=none]")) {
      this.selection.clear();
      this.paint();
    }
    if (!event.target.matches(".selecting [name=run]")) return;
    const boxes = this.boxes();
    const here = boxes.indexOf(event.target);
    const from = boxes.findIndex((box) => box.value === this.last);
    if (event.shiftKey && from >= 0) {
      for (const box of boxes.slice(Math.min(from, here), Math.max(from, here) + 1)) {
        this.selection.choose(box.value, event.target.checked);
      }
      this.paint();
    }
    this.last = event.target.value;
  }

  // Those on other pages go along.
  bring(event) {
    const form = event.target;
    if (!form.matches(".selecting")) return;
    for (const old of form.querySelectorAll("[data-brought]")) old.remove();
    const here = new Set(this.boxes().map((box) => box.value));
    for (const id of this.selection.ids) {
      if (here.has(id)) continue;
      const field = Object.assign(document.createElement("input"), { type: "hidden", name: "run", value: id });
      field.dataset.brought = "";
      form.append(field);
    }
    if (event.submitter?.value === "cancel") this.selection.clear();
  }

  paint() {
    const boxes = this.boxes();
    for (const box of boxes) box.checked = this.selection.ids.has(box.value);
    const count = this.selection.ids.size;
    const every = document.getElementById("choose-all");
    const here = boxes.filter((box) => box.checked).length;
    if (every) {
      every.checked = here > 0 && here === boxes.length;
      every.indeterminate = here > 0 && here < boxes.length;
    }
    const bar = document.querySelector(".selection");
    if (!bar) return;
    bar.hidden = count === 0;
    const elsewhere = count - here;
    document.getElementById("chosen-count").textContent =
      `${count} chosen${elsewhere ? `, ${elsewhere} of them elsewhere` : ""}`;
    bar.querySelector("[value=compare]").disabled = count < 2 || count > SHARED.mostCompared;
  }
}

// What has been forgotten is chosen no more.
function forgetChosen() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(CHOSEN_KEY)) sessionStorage.removeItem(key);
  } catch {
    // Nothing is kept there, then.
  }
}

// The bar of the page; null where nothing can be chosen.
export function startSelection() {
  if (document.querySelector("[name=sure]")) document.addEventListener("submit", forgetChosen);
  return document.querySelector(".selecting, [data-list=live]") ? new SelectionBar(new Selection(globalThis.sessionStorage)) : null;
}
