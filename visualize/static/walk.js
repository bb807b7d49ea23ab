// The graph by keyboard: arrows go along its edges.

import { closestTo } from "./elements.js";

/** @import { RunPage } from "./run.js" */
/** @import { Level } from "./types.d.ts" */

export class Walk {
  /** @param {RunPage} page knows what is drawn and what is chosen */
  constructor(page) {
    this.page = page;
    this.graph = page.graph;
    this.at = 0;
    /** @type {number[][]} */
    this.outs = page.head.drawn.map(() => []);
    /** @type {number[][]} */
    this.ins = page.head.drawn.map(() => []);
    for (const [source, target] of page.head.edges.length ? page.head.edges : this.deepEdges()) {
      this.outs[source].push(target);
      this.ins[target].push(source);
    }
    this.graph.groups[0]?.setAttribute("tabindex", "0");
    this.graph.svg.addEventListener("focusin", (event) => {
      const group = closestTo(event, "[data-node]");
      if (group) this.mark(Number(group.dataset.node));
    });
    this.graph.svg.addEventListener("keydown", (event) => this.press(event));
  }

  // Of a graph whose edges are not in its head, since they are too many to be painted.
  deepEdges() {
    /** @type {[source: number, target: number][]} */
    const edges = [];
    const walk = (/** @type {Level} */ level) => {
      const numberOf = (/** @type {string} */ id) => this.graph.numbers.get(level.sites.get(id)?.path ?? "");
      for (const [source, target] of level.edges) {
        const [before, after] = [numberOf(source), numberOf(target)];
        if (before !== undefined && after !== undefined) edges.push([before, after]);
      }
      for (const site of level.containers) walk(site.body);
    };
    walk(this.page.newest.top);
    return edges;
  }

  /** @param {number} number */
  mark(number) {
    this.graph.groups[this.at]?.setAttribute("tabindex", "-1");
    this.at = number;
    this.graph.groups[number].setAttribute("tabindex", "0");
  }

  /** @param {number | null | undefined} number */
  go(number) {
    if (number === undefined || number === null) return;
    const { x, y } = this.graph.placeOf(number);
    this.page.zoom.show(x, y, 0.3);
    this.mark(number);
    this.graph.groups[number].focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.acts(event.shiftKey)[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /**
   * @param {boolean} isShifted
   * @returns {Record<string, (() => void) | undefined>}
   */
  acts(isShifted) {
    const choose = () => this.page.choose(this.page.pathOfSite(this.page.head.drawn[this.at]));
    const { folding } = this.page;
    return {
      ArrowDown: () => this.go(isShifted ? this.inside()[0] : this.first(this.outs[this.at])),
      ArrowUp: () => this.go(isShifted ? folding.parents[this.at] : this.first(this.ins[this.at])),
      ArrowRight: () => this.go(this.beside(1)),
      ArrowLeft: () => this.go(this.beside(-1)),
      Home: () => this.go(0),
      End: () => this.go(this.graph.groups.findLastIndex((_, number) => !folding.isHidden(number))),
      Enter: choose,
      " ": choose,
      o: () => { folding.toggle(this.at); this.graph.groups[this.at].focus({ preventScroll: true }); },
    };
  }

  /**
   * Of several ways the one that was taken, else the leftmost.
   * @param {number[]} ends
   * @returns {number | undefined}
   */
  first(ends) {
    const shown = ends.filter((end) => !this.page.folding.isHidden(end));
    const rank = (/** @type {number} */ number) => {
      const status = this.graph.statuses.get(this.page.head.drawn[number]);
      return status === "pending" || status === "skipped" ? 1 : 0;
    };
    return shown.sort((a, b) => rank(a) - rank(b) || this.graph.placeOf(a).x - this.graph.placeOf(b).x)[0];
  }

  inside() {
    const { folding } = this.page;
    const numbers = folding.parents.flatMap((parent, number) => (parent === this.at && !folding.isHidden(number) ? [number] : []));
    return numbers.sort((a, b) => this.graph.placeOf(a).y - this.graph.placeOf(b).y);
  }

  /**
   * The next node of the same row.
   * @param {1 | -1} by to the right or to the left
   */
  beside(by) {
    const { folding } = this.page;
    const here = this.graph.placeOf(this.at);
    /** @type {number | null} */
    let best = null;
    let gap = Infinity;
    for (const [number, parent] of folding.parents.entries()) {
      if (parent !== folding.parents[this.at] || number === this.at || folding.isHidden(number)) continue;
      const { x, y } = this.graph.placeOf(number);
      const far = (x - here.x) * by;
      const reach = (this.graph.sizeOf(number)[1] + this.graph.sizeOf(this.at)[1]) / 2;
      if (far > 0 && far < gap && Math.abs(y - here.y) < reach) [best, gap] = [number, far];
    }
    return best;
  }
}
