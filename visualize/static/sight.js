// Of a large graph, only what is in sight is displayed: the browser lays out nothing else. Boxes out of sight stand in an
// element of their own, behind all lines, where it does not even work out how they look.

/** @import { Graph } from "./graph.js" */
/** @import { View } from "./types.d.ts" */

/** @typedef {{ group: SVGElement, left: number, right: number, top: number, bottom: number, isShown: boolean }} Area */
/** @typedef {Area & { number: number, isFrame: boolean }} NodeArea a node with the point that it is at */

/** @param {string | null} text */
function numbersIn(text) {
  return text?.match(/-?[\d.]+/g)?.map(Number) ?? [];
}

export class Sight {
  /**
   * @param {Graph} graph
   * @param {HTMLElement} box
   * @param {Element} unseen
   */
  constructor(graph, box, unseen) {
    this.box = box;
    this.graph = graph;
    this.unseen = unseen;
    /** @type {View | null} */
    this.last = null;
    /** @type {NodeArea[]} */
    this.nodes = [];
    /** @type {Area[]} */
    this.lines = [];
    /** @type {Set<Area>} */
    this.shown = new Set();
    this.measure();
    new ResizeObserver(() => this.look(this.last)).observe(box);
  }

  // Where the nodes are; to be told when they move.
  measure() {
    this.nodes = this.graph.groups.flatMap((group, number) => {
      const [x, y] = numbersIn(group.getAttribute("transform")); // Quicker than to ask the browser for its place.
      if (group.parentNode === this.unseen) group.setAttribute("display", "none");
      if (this.graph.isHidden(number)) return [];
      const isShown = !group.hasAttribute("display");
      return [{ group, number, left: x, right: x, top: y, bottom: y, isFrame: group.classList.contains("frame"), isShown }];
    });
    this.lines = this.graph.isCompact ? [] : this.graph.edges.flatMap((edge) => this.reach(edge));
    this.shown = new Set([...this.nodes, ...this.lines].filter((area) => area.isShown));
    this.look(this.last);
  }

  /**
   * An edge with the box round it; none where it is folded.
   * @param {SVGElement} edge
   * @returns {Area[]}
   */
  reach(edge) {
    const path = edge.getAttribute("d");
    if (!path || this.graph.isFoldedEdge(Number(edge.dataset.edge))) return [];
    const numbers = numbersIn(path);
    const [xs, ys] = [numbers.filter((_, at) => at % 2 === 0), numbers.filter((_, at) => at % 2)];
    const box = { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    return [{ group: edge, ...box, isShown: !edge.hasAttribute("display") }];
  }

  /**
   * What was shown and is out of sight is hidden, and the other way round.
   * @param {View | null} view null: not known yet
   */
  look(view) {
    this.last = view;
    if (!view) return;
    const { x, y, scale } = view;
    const [left, top] = [-x / scale - 200, -y / scale - 60];
    const [right, bottom] = [left + this.box.clientWidth / scale + 400, top + this.box.clientHeight / scale + 120];
    const isInside = (/** @type {Area} */ area) => area.left <= right && area.right >= left && area.top <= bottom && area.bottom >= top;
    /** @type {Set<Area>} */
    const now = new Set([...this.nodes.filter((node) => node.isFrame || isInside(node)), ...this.lines.filter(isInside)]);
    for (const area of this.shown) {
      if (now.has(area)) continue;
      area.group.setAttribute("display", "none");
      if (this.isBox(area)) this.unseen.append(area.group);
    }
    for (const area of now) {
      if (this.shown.has(area)) continue;
      area.group.removeAttribute("display");
      if (this.isBox(area)) this.unseen.parentNode?.append(area.group);
      if ("number" in area) this.graph.placeName(/** @type {NodeArea} */ (area).number);
    }
    this.shown = now;
  }

  /** @param {Area} area */
  isBox(area) {
    return "number" in area && !this.graph.isContainer[/** @type {NodeArea} */ (area).number];
  }
}
