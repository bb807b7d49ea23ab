// Places the boxes of a graph: the same rules as visualize/layout.py, which a test holds them to. The server places
// what is shown first; this places everything anew when a container is folded or unfolded. It knows sizes and edges only.

import { listAt } from "./fold.js";
import { SHARED } from "./shared.js";

/** @import { Arrangement, Box, Layout, Point, Size } from "./types.d.ts" */

/** @typedef {readonly [source: number, target: number, ...unknown[]]} Pair */

/**
 * @param {number} count
 * @param {Pair[]} edges
 */
function ranksOf(count, edges) {
  const children = Array.from({ length: count }, () => /** @type {number[]} */ ([]));
  const parents = /** @type {number[]} */ (new Array(count).fill(0));
  for (const [source, target] of edges) {
    if (source === target) continue;
    children[source].push(target);
    parents[target] += 1;
  }
  const ranks = /** @type {number[]} */ (new Array(count).fill(0));
  const ready = [...ranks.keys()].filter((node) => !parents[node]);
  for (const node of ready) {
    for (const child of children[node]) {
      ranks[child] = Math.max(ranks[child], ranks[node] + 1);
      parents[child] -= 1;
      if (!parents[child]) ready.push(child);
    }
  }
  return ranks;
}

/**
 * Node → row; a rank of many nodes takes several rows.
 * @param {number[]} ranks
 */
function rowsOf(ranks) {
  /** @type {Map<number, number[]>} */
  const members = new Map();
  ranks.forEach((rank, node) => listAt(members, rank).push(node));
  const rows = /** @type {number[]} */ (new Array(ranks.length).fill(0));
  let row = 0;
  for (const [, nodes] of [...members].sort(([a], [b]) => a - b)) {
    nodes.forEach((node, at) => { rows[node] = row + Math.floor(at / SHARED.spacing.inRow); });
    row += Math.floor((nodes.length - 1) / SHARED.spacing.inRow) + 1;
  }
  return rows;
}

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);
/** @param {number[]} values */
const mean = (values) => sum(values) / values.length;

/** Boxes and bends in rows; numbers from `sizes.length` on are bends. */
class Grid {
  /**
   * @param {Size[]} sizes
   * @param {Pair[]} edges
   */
  constructor(sizes, edges) {
    this.sizes = sizes;
    this.rowOf = rowsOf(ranksOf(sizes.length, edges));
    this.widths = sizes.map(([width]) => width);
    /** @type {number[][]} */
    this.above = sizes.map(() => []);
    /** @type {number[][]} */
    this.below = sizes.map(() => []);
    this.chains = this.bendEdges(edges);
    /** @type {number[][]} */
    this.rows = Array.from({ length: Math.max(-1, ...this.rowOf) + 1 }, () => []);
    this.rowOf.forEach((row, item) => this.rows[row].push(item));
    /** @type {number[]} */
    this.x = new Array(this.rowOf.length).fill(0);
    for (let sweep = 0; sweep < SHARED.spacing.sweeps; sweep += 1) this.order(sweep % 2 === 0);
    this.place();
  }

  /**
   * Edge → the boxes and bends that it goes along.
   * @param {Pair[]} edges
   */
  bendEdges(edges) {
    const spans = edges.map(([source, target]) => Math.max(0, this.rowOf[target] - this.rowOf[source] - 1));
    const isBent = sum(spans) <= SHARED.spacing.bends;
    return edges.map(([source, target], number) => {
      const chain = [source];
      for (let step = 1; isBent && step <= spans[number]; step += 1) chain.push(this.addBend(this.rowOf[source] + step));
      chain.push(target);
      for (let at = 1; at < chain.length; at += 1) {
        const [upper, lower] = [chain[at - 1], chain[at]];
        if (this.rowOf[upper] >= this.rowOf[lower]) continue;
        this.below[upper].push(lower);
        this.above[lower].push(upper);
      }
      return chain;
    });
  }

  /** @param {number} row */
  addBend(row) {
    this.rowOf.push(row);
    this.widths.push(SHARED.spacing.lane);
    this.above.push([]);
    this.below.push([]);
    return this.rowOf.length - 1;
  }

  /** @param {boolean} isDown */
  order(isDown) {
    const neighbours = isDown ? this.above : this.below;
    /** @type {Map<number, number>} */
    const place = new Map();
    for (const row of isDown ? this.rows : [...this.rows].reverse()) {
      const middle = (row.length - 1) / 2;
      row.forEach((item, at) => {
        const places = neighbours[item].flatMap((other) => place.get(other) ?? []);
        place.set(item, places.length ? mean(places) : at - middle);
      });
      row.sort((a, b) => (place.get(a) ?? 0) - (place.get(b) ?? 0));
      row.forEach((item, at) => place.set(item, at - middle));
    }
  }

  place() {
    for (const row of this.rows) this.spread(row, row.map(() => 0));
    const wish = (/** @type {number[]} */ near, /** @type {number} */ item) => (near.length ? mean(near.map((other) => this.x[other])) : this.x[item]);
    for (let sweep = 0; sweep < SHARED.spacing.sweeps; sweep += 1) {
      for (const row of this.rows) this.spread(row, row.map((item) => wish(this.above[item], item)));
      for (const row of [...this.rows].reverse()) this.spread(row, row.map((item) => wish(this.below[item], item)));
    }
  }

  /**
   * As near to the wishes as the widths allow: the mean of pushing right and pushing left.
   * @param {number[]} row
   * @param {number[]} wishes
   */
  spread(row, wishes) {
    const [right, left] = [[...wishes], [...wishes]];
    const apart = (/** @type {number} */ at) => (this.widths[row[at - 1]] + this.widths[row[at]]) / 2 + SHARED.spacing.boxes;
    for (let at = 1; at < row.length; at += 1) right[at] = Math.max(right[at], right[at - 1] + apart(at));
    for (let at = row.length - 2; at >= 0; at -= 1) left[at] = Math.min(left[at], left[at + 1] - apart(at + 1));
    row.forEach((item, at) => { this.x[item] = (right[at] + left[at]) / 2; });
  }

  /** @returns {Layout} */
  layout() {
    const count = this.sizes.length;
    const least = this.x.reduce((left, x, item) => Math.min(left, x - this.widths[item] / 2), this.x.length ? Infinity : 0);
    const most = this.x.reduce((right, x, item) => Math.max(right, x + this.widths[item] / 2), this.x.length ? -Infinity : 0);
    const shift = SHARED.spacing.boxes - least;
    /** @type {number[]} */
    const tops = [];
    /** @type {number[]} */
    const heights = [];
    let top = SHARED.spacing.boxes;
    for (const row of this.rows) {
      const height = row.reduce((highest, item) => (item < count ? Math.max(highest, this.sizes[item][1]) : highest), 0);
      tops.push(top);
      heights.push(height);
      top += height + SHARED.spacing.rows;
    }
    const boxes = this.sizes.map(([width, height], item) => {
      const row = this.rowOf[item];
      return { x: this.x[item] + shift, y: tops[row] + heights[row] / 2, width, height };
    });
    const paths = this.chains.map((chain) => this.makePath(chain, boxes, tops, heights, shift));
    return { boxes, paths, width: most + shift + SHARED.spacing.boxes, height: top - SHARED.spacing.rows + SHARED.spacing.boxes };
  }

  /**
   * @param {number[]} chain
   * @param {Box[]} boxes
   * @param {number[]} tops
   * @param {number[]} heights
   * @param {number} shift
   * @returns {Point[]}
   */
  makePath(chain, boxes, tops, heights, shift) {
    const [source, target] = [chain[0], chain[chain.length - 1]];
    const [first, last] = [boxes[source], boxes[target]];
    const [begin, end] = [first.y + first.height / 2, last.y - last.height / 2];
    const [above, top] = [this.rowOf[source], tops[this.rowOf[target]]];
    const bottom = tops[above] + heights[above];
    /** @type {Point[]} */
    const points = [[first.x, begin]];
    if (bottom - begin > SHARED.spacing.straight) points.push([first.x, bottom]);
    for (const bend of chain.slice(1, -1)) {
      const [x, row] = [this.x[bend] + shift, this.rowOf[bend]];
      points.push([x, tops[row]], [x, tops[row] + heights[row]]);
    }
    if (end - top > SHARED.spacing.straight) points.push([last.x, top]);
    points.push([last.x, end]);
    return points;
  }
}

/**
 * Gives boxes and paths by the numbers of nodes and edges, and which containers are open.
 * @param {{ parent: number | null, size: Size }[]} nodes each with its parent (null: the top) and the size of its own
 *   words, containers before their bodies
 * @param {Pair[]} edges
 * @returns {Arrangement}
 */
export function arrangeBoxes(nodes, edges) {
  /** @type {Map<number | null, number[]>} */
  const members = new Map([[null, []]]);
  nodes.forEach((node, number) => listAt(members, node.parent).push(number));
  /** @type {Map<number | null, number[]>} */
  const inside = new Map();
  edges.forEach(([source], number) => listAt(inside, nodes[source].parent).push(number));
  /** @type {Map<number | null, { own: number[], layout: Layout }>} */
  const levels = new Map();
  for (const [parent, numbers] of [...members].reverse()) {
    const places = new Map(numbers.map((number, at) => [number, at]));
    const sizes = numbers.map((number) => sizeWith(nodes[number].size, levels.get(number)?.layout));
    const own = inside.get(parent) ?? [];
    const place = (/** @type {number} */ end) => places.get(end) ?? -1; // Edges are between members of one level.
    levels.set(parent, { own, layout: new Grid(sizes, own.map((number) => [place(edges[number][0]), place(edges[number][1])])).layout() });
  }
  return joinLevels(members, levels);
}

/**
 * The size of a container with its body below its words.
 * @param {Size} size
 * @param {Layout | undefined} body
 * @returns {Size}
 */
function sizeWith([width, height], body) {
  return body ? [Math.max(width, body.width), height + body.height] : [width, height];
}

/**
 * All levels on one drawing.
 * @param {Map<number | null, number[]>} members
 * @param {Map<number | null, { own: number[], layout: Layout }>} levels
 * @returns {Arrangement}
 */
function joinLevels(members, levels) {
  const { width = 0, height = 0 } = levels.get(null)?.layout ?? {};
  /** @type {Arrangement} */
  const whole = { boxes: [], paths: [], open: new Set(), width, height };
  /** @type {[parent: number | null, left: number, top: number][]} */
  const queue = [[null, 0, 0]];
  for (let next; (next = queue.pop()); ) {
    const [parent, left, top] = next;
    const { own = [], layout = null } = levels.get(parent) ?? {};
    if (!layout) continue;
    own.forEach((number, at) => { whole.paths[number] = layout.paths[at].map(([x, y]) => [x + left, y + top]); });
    members.get(parent)?.forEach((number, at) => {
      const box = layout.boxes[at];
      whole.boxes[number] = { ...box, x: box.x + left, y: box.y + top };
      const body = levels.get(number)?.layout;
      if (!body) return;
      whole.open.add(number);
      queue.push([number, box.x + left - body.width / 2, box.y + top + box.height / 2 - body.height]);
    });
  }
  return whole;
}

// --- shapes and lines

/**
 * Pixels that a shape's corners take of a line's room.
 * @param {string} shape
 */
export function slackOf(shape) {
  return SHARED.cornerSlack[shape] ?? 0;
}

/**
 * The outline of a node about its own middle.
 * @param {string} shape
 * @param {number} width
 * @param {number} height
 */
export function outlineOf(shape, width, height) {
  const [right, bottom] = [width / 2, height / 2];
  const corner = SHARED.corners[shape];
  if (corner) {
    const [inset, drop] = [right - corner[0], bottom - height * corner[1]];
    /** @type {Point[]} */
    const corners = [[-inset, -bottom], [inset, -bottom], [right, -drop], [right, drop], [inset, bottom], [-inset, bottom], [-right, drop], [-right, -drop]];
    return `M${corners.map((point) => point.map((number) => number.toFixed(1)).join(" ")).join("L")}Z`;
  }
  if (shape === "rounded") {
    const [x, y] = [right - 9, bottom - 9];
    return `M${-x} ${-bottom}H${x}q9 0 9 9V${y}q0 9-9 9H${-x}q-9 0-9-9V${-y}q0-9 9-9Z`;
  }
  const edge = `M${-right} ${-bottom}H${right}V${bottom}H${-right}Z`;
  if (shape === "stack") return `${edge}M${4 - right} ${-bottom}v-4H${right + 4}V${bottom - 4}h-4`;
  if (shape === "folder") return `${edge}M${-right} ${-bottom}v-5h28l6 5`;
  if (shape === "house") {
    const eaves = Math.min(9, height / 4) - bottom;
    return `M${-right} ${eaves}L0 ${-bottom}L${right} ${eaves}V${bottom}H${-right}Z`;
  }
  return edge;
}

/** @param {Point[]} points */
export function curveOf(points) {
  let path = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    const middle = (y1 + y2) / 2;
    const place = (/** @type {number[]} */ ...numbers) => numbers.map((number) => number.toFixed(1)).join(" ");
    path += Math.abs(x1 - x2) < 0.5 ? ` L${place(x2, y2)}` : ` C${place(x1, middle, x2, middle, x2, y2)}`;
  }
  return path;
}
