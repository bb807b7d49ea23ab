// The layout of one's own: how wide the panel is, how high the rows are and whether they are shown. Kept by the browser,
// for all runs.

import { all, find, need, readStorage, writeStorage } from "./elements.js";

/** @typedef {"panel" | "below"} Area */
/** @typedef {{ panel: number | null, below: number | null, isFolded: boolean }} Sizes */

const STORAGE_KEY = "flowengine.layout";
/** @type {Record<Area, [least: number, share: number]>} */
const BOUNDS = { panel: [280, 0.75], below: [90, 0.8] }; // Pixels at least, and the share of the window at most.

/**
 * A size within its bounds.
 * @param {Area} name
 * @param {number} size
 * @param {number} room pixels of the window along it
 */
export function fitSize(name, size, room) {
  const [least, share] = BOUNDS[name];
  return Math.round(Math.max(least, Math.min(size, Math.max(least, room * share))));
}

/**
 * @param {string | null} text
 * @returns {Sizes}
 */
export function readSizes(text) {
  let value;
  try {
    value = JSON.parse(text ?? "null"); // An error costs a page 15 ms, so none is made where nothing is kept.
  } catch {
    value = null;
  }
  const size = (/** @type {Area} */ name) => (Number.isFinite(value?.[name]) ? value[name] : null);
  return { panel: size("panel"), below: size("below"), isFolded: value?.isFolded === true };
}

export class LayoutControl {
  /** @param {HTMLElement} main */
  constructor(main) {
    this.main = main;
    this.sizes = readSizes(readStorage(STORAGE_KEY));
    this.bars = all("[role=separator]", main);
    for (const bar of this.bars) this.listen(bar, this.areaOf(bar));
    this.fold = find("[data-fold]", main);
    this.fold?.addEventListener("click", () => this.change({ isFolded: !this.sizes.isFolded }));
    addEventListener("resize", () => this.apply());
    this.apply();
  }

  /** @param {HTMLElement} bar */
  areaOf(bar) {
    return /** @type {Area} */ (bar.dataset.size);
  }

  /** @param {Partial<Sizes>} sizes */
  change(sizes) {
    Object.assign(this.sizes, sizes);
    writeStorage(STORAGE_KEY, JSON.stringify(this.sizes));
    this.apply();
  }

  /** @param {Area} name */
  room(name) {
    return name === "panel" ? innerWidth : innerHeight;
  }

  /** @param {Area} name */
  size(name) {
    return name === "panel" ? need("#panel", this.main).offsetWidth : need(".below", this.main).offsetHeight;
  }

  apply() {
    for (const name of /** @type {Area[]} */ (["panel", "below"])) {
      const size = this.sizes[name];
      if (size === null) this.main.style.removeProperty(`--${name}`);
      else this.main.style.setProperty(`--${name}`, `${fitSize(name, size, this.room(name))}px`);
    }
    document.body.classList.toggle("folded", this.sizes.isFolded);
    if (this.fold) {
      this.fold.setAttribute("aria-expanded", String(!this.sizes.isFolded));
      this.fold.textContent = this.sizes.isFolded ? "▴ Show" : "▾ Hide";
    }
    for (const bar of this.bars) {
      const name = this.areaOf(bar);
      bar.setAttribute("aria-valuenow", String(Math.round((this.size(name) / this.room(name)) * 100)));
    }
  }

  /**
   * @param {HTMLElement} bar
   * @param {Area} name
   */
  listen(bar, name) {
    const along = (/** @type {PointerEvent} */ event) => (name === "panel" ? event.clientX : event.clientY);
    bar.addEventListener("pointerdown", (event) => {
      const [from, size] = [along(event), this.size(name)];
      bar.setPointerCapture(event.pointerId);
      const move = (/** @type {PointerEvent} */ to) => {
        this.change({ [name]: fitSize(name, size + from - along(to), this.room(name)), ...(name === "below" ? { isFolded: false } : {}) });
      };
      bar.addEventListener("pointermove", move);
      bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
      event.preventDefault();
    });
    bar.addEventListener("dblclick", () => this.change({ [name]: null }));
    bar.addEventListener("keydown", (event) => {
      /** @type {Record<string, number | undefined>} */
      const steps = { ArrowLeft: 24, ArrowUp: 24, ArrowRight: -24, ArrowDown: -24 };
      const by = steps[event.key];
      if (by === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.change({ [name]: fitSize(name, this.size(name) + by, this.room(name)) });
    });
  }
}
