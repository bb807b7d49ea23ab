// The layout of one's own: how wide the panel is, how high the rows are and whether they are shown. Kept by the browser,
// for all runs.

const KEPT = "flowengine.layout";
const BOUNDS = { panel: [280, 0.75], below: [90, 0.8] }; // Pixels at least, and the share of the window at most.

// A size within its bounds. `room`: pixels of the window along it.
export function fitSize(name, size, room) {
  const [least, share] = BOUNDS[name];
  return Math.round(Math.max(least, Math.min(size, Math.max(least, room * share))));
}

export function readKept(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = null;
  }
  const kept = { panel: null, below: null, isFolded: found?.isFolded === true };
  for (const name of ["panel", "below"]) if (Number.isFinite(found?.[name])) kept[name] = found[name];
  return kept;
}

export class Layout {
  constructor(main, onChange = () => {}) {
    this.main = main;
    this.onChange = onChange;
    this.kept = readKept(this.load());
    for (const bar of main.querySelectorAll("[role=separator]")) this.listen(bar);
    this.fold = main.querySelector("[data-fold]");
    this.fold?.addEventListener("click", () => this.change({ isFolded: !this.kept.isFolded }));
    addEventListener("resize", () => this.apply());
    this.apply();
  }

  load() {
    try {
      return localStorage.getItem(KEPT);
    } catch { // A page from a disk may have no place of its own.
      return null;
    }
  }

  change(what) {
    Object.assign(this.kept, what);
    try {
      localStorage.setItem(KEPT, JSON.stringify(this.kept));
    } catch {
      // It holds for this page alone.
    }
    this.apply();
  }

  room(name) {
    return name === "panel" ? innerWidth : innerHeight;
  }

  size(name) {
    const area = this.main.querySelector(name === "panel" ? "#panel" : ".below");
    return name === "panel" ? area.offsetWidth : area.offsetHeight;
  }

  apply() {
    for (const name of ["panel", "below"]) {
      if (this.kept[name] === null) this.main.style.removeProperty(`--${name}`);
      else this.main.style.setProperty(`--${name}`, `${fitSize(name, this.kept[name], this.room(name))}px`);
    }
    document.body.classList.toggle("folded", this.kept.isFolded);
    if (this.fold) {
      this.fold.setAttribute("aria-expanded", String(!this.kept.isFolded));
      this.fold.textContent = this.kept.isFolded ? "▴ Show" : "▾ Hide";
    }
    for (const bar of this.main.querySelectorAll("[role=separator]")) {
      const share = (this.size(bar.dataset.size) / this.room(bar.dataset.size)) * 100;
      bar.setAttribute("aria-valuenow", String(Math.round(share)));
    }
    this.onChange();
  }

  listen(bar) {
    const name = bar.dataset.size;
    const along = (event) => (name === "panel" ? event.clientX : event.clientY);
    bar.addEventListener("pointerdown", (event) => {
      const [from, size] = [along(event), this.size(name)];
      bar.setPointerCapture(event.pointerId);
      const move = (to) => this.change({ [name]: fitSize(name, size + from - along(to), this.room(name)), ...(name === "below" ? { isFolded: false } : {}) });
      bar.addEventListener("pointermove", move);
      bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
      event.preventDefault();
    });
    bar.addEventListener("dblclick", () => this.change({ [name]: null }));
    bar.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: 24, ArrowUp: 24, ArrowRight: -24, ArrowDown: -24 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.change({ [name]: fitSize(name, this.size(name) + by, this.room(name)) });
    });
  }
}
