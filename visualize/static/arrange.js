// Places the boxes of a graph: the same rules as visualize/layout.py, which a test holds them to. The server places
// what is shown first; this places everything anew when a container is folded or unfolded. It knows sizes and edges only.

import { SHARED } from "./shared.js";

function ranksOf(count, edges) {
  const children = Array.from({ length: count }, () => []);
  const waiting = new Array(count).fill(0);
  for (const [source, target] of edges) {
    if (source === target) continue;
    children[source].push(target);
    waiting[target] += 1;
  }
  const ranks = new Array(count).fill(0);
  const ready = [...ranks.keys()].filter((node) => !waiting[node]);
  for (const node of ready) {
    for (const child of children[node]) {
      ranks[child] = Math.max(ranks[child], ranks[node] + 1);
      waiting[child] -= 1;
      if (!waiting[child]) ready.push(child);
    }
  }
  return ranks;
}

// Node → row; a rank of many nodes takes several rows.
function rowsOf(ranks) {
  const members = new Map();
  ranks.forEach((rank, node) => members.set(rank, [...(members.get(rank) ?? []), node]));
  const rows = new Array(ranks.length).fill(0);
  let row = 0;
  for (const rank of [...members.keys()].sort((a, b) => a - b)) {
    const found = members.get(rank);
    found.forEach((node, at) => { rows[node] = row + Math.floor(at / SHARED.spacing.inRow); });
    row += Math.floor((found.length - 1) / SHARED.spacing.inRow) + 1;
  }
  return rows;
}

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

// Boxes and bends in rows; numbers from `sizes.length` on are bends.
class Grid {
  constructor(sizes, edges) {
    this.sizes = sizes;
    this.rowOf = rowsOf(ranksOf(sizes.length, edges));
    this.widths = sizes.map(([width]) => width);
    this.above = sizes.map(() => []);
    this.below = sizes.map(() => []);
    this.chains = this.lead(edges);
    this.rows = Array.from({ length: Math.max(-1, ...this.rowOf) + 1 }, () => []);
    this.rowOf.forEach((row, item) => this.rows[row].push(item));
    this.x = new Array(this.rowOf.length).fill(0);
    for (let sweep = 0; sweep < SHARED.spacing.sweeps; sweep += 1) this.order(sweep % 2 === 0);
    this.place();
  }

  lead(edges) {
    const spans = edges.map(([source, target]) => Math.max(0, this.rowOf[target] - this.rowOf[source] - 1));
    const isBent = spans.reduce((sum, each) => sum + each, 0) <= SHARED.spacing.bends;
    return edges.map(([source, target], number) => {
      const chain = [source];
      for (let step = 1; isBent && step <= spans[number]; step += 1) chain.push(this.bend(this.rowOf[source] + step));
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

  bend(row) {
    this.rowOf.push(row);
    this.widths.push(SHARED.spacing.lane);
    this.above.push([]);
    this.below.push([]);
    return this.rowOf.length - 1;
  }

  order(isDown) {
    const neighbours = isDown ? this.above : this.below;
    const place = new Map();
    for (const row of isDown ? this.rows : [...this.rows].reverse()) {
      const middle = (row.length - 1) / 2;
      row.forEach((item, at) => {
        const known = neighbours[item].filter((each) => place.has(each)).map((each) => place.get(each));
        place.set(item, known.length ? mean(known) : at - middle);
      });
      row.sort((a, b) => place.get(a) - place.get(b));
      row.forEach((item, at) => place.set(item, at - middle));
    }
  }

  place() {
    for (const row of this.rows) this.spread(row, row.map(() => 0));
    const wish = (near, item) => (near.length ? mean(near.map((each) => this.x[each])) : this.x[item]);
    for (let sweep = 0; sweep < SHARED.spacing.sweeps; sweep += 1) {
      for (const row of this.rows) this.spread(row, row.map((item) => wish(this.above[item], item)));
      for (const row of [...this.rows].reverse()) this.spread(row, row.map((item) => wish(this.below[item], item)));
    }
  }

  // As near to the wishes as the widths allow: the mean of pushing right and pushing left.
  spread(row, wishes) {
    const [right, left] = [[...wishes], [...wishes]];
    const apart = (at) => (this.widths[row[at - 1]] + this.widths[row[at]]) / 2 + SHARED.spacing.boxes;
    for (let at = 1; at < row.length; at += 1) right[at] = Math.max(right[at], right[at - 1] + apart(at));
    for (let at = row.length - 2; at >= 0; at -= 1) left[at] = Math.min(left[at], left[at + 1] - apart(at + 1));
    row.forEach((item, at) => { this.x[item] = (right[at] + left[at]) / 2; });
  }

  layout() {
    const count = this.sizes.length;
    const least = this.x.reduce((found, x, item) => Math.min(found, x - this.widths[item] / 2), this.x.length ? Infinity : 0);
    const most = this.x.reduce((found, x, item) => Math.max(found, x + this.widths[item] / 2), this.x.length ? -Infinity : 0);
    const shift = SHARED.spacing.boxes - least;
    const [tops, heights] = [[], []];
    let top = SHARED.spacing.boxes;
    for (const row of this.rows) {
      const height = row.reduce((found, item) => (item < count ? Math.max(found, this.sizes[item][1]) : found), 0);
      tops.push(top);
      heights.push(height);
      top += height + SHARED.spacing.rows;
    }
    const boxes = this.sizes.map(([width, height], item) => {
      const row = this.rowOf[item];
      return { x: this.x[item] + shift, y: tops[row] + heights[row] / 2, width, height };
    });
    const paths = this.chains.map((chain) => this.path(chain, boxes, tops, heights, shift));
    return { boxes, paths, width: most + shift + SHARED.spacing.boxes, height: top - SHARED.spacing.rows + SHARED.spacing.boxes };
  }

  path(chain, boxes, tops, heights, shift) {
    const [first, last] = [boxes[chain[0]], boxes[chain.at(-1)]];
    const [begin, end] = [first.y + first.height / 2, last.y - last.height / 2];
    const [above, top] = [this.rowOf[chain[0]], tops[this.rowOf[chain.at(-1)]]];
    const bottom = tops[above] + heights[above];
    const points = [[first.x, begin], ...(bottom - begin > SHARED.spacing.straight ? [[first.x, bottom]] : [])];
    for (const bend of chain.slice(1, -1)) {
      const [x, row] = [this.x[bend] + shift, this.rowOf[bend]];
      points.push([x, tops[row]], [x, tops[row] + heights[row]]);
    }
    return [...points, ...(end - top > SHARED.spacing.straight ? [[last.x, top]] : []), [last.x, end]];
  }
}

// `nodes`: each with its `parent` (a number, null: the top) and the `size` of its own words, containers before their
// bodies; `edges`: pairs of numbers. Gives boxes and paths by these numbers, and which containers are open.
export function arrangeBoxes(nodes, edges) {
  const members = new Map([[null, []]]);
  nodes.forEach((node, number) => {
    if (!members.has(node.parent)) members.set(node.parent, []);
    members.get(node.parent).push(number);
  });
  const inside = new Map();
  edges.forEach(([source], number) => {
    const parent = nodes[source].parent;
    inside.set(parent, [...(inside.get(parent) ?? []), number]);
  });
  const levels = new Map();
  for (const parent of [...members.keys()].reverse()) {
    const places = new Map(members.get(parent).map((number, at) => [number, at]));
    const sizes = members.get(parent).map((number) => {
      const [width, height] = nodes[number].size;
      const body = levels.get(number)?.layout;
      return body ? [Math.max(width, body.width), height + body.height] : [width, height];
    });
    const own = inside.get(parent) ?? [];
    const pairs = own.map((number) => edges[number].slice(0, 2).map((end) => places.get(end)));
    levels.set(parent, { own, layout: new Grid(sizes, pairs).layout() });
  }
  const found = { boxes: [], paths: [], open: new Set(), width: levels.get(null).layout.width, height: levels.get(null).layout.height };
  const todo = [[null, 0, 0]];
  while (todo.length) {
    const [parent, left, top] = todo.pop();
    const { own, layout } = levels.get(parent);
    own.forEach((number, at) => { found.paths[number] = layout.paths[at].map(([x, y]) => [x + left, y + top]); });
    members.get(parent).forEach((number, at) => {
      const box = layout.boxes[at];
      found.boxes[number] = { ...box, x: box.x + left, y: box.y + top };
      const body = levels.get(number)?.layout;
      if (!body) return;
      found.open.add(number);
      todo.push([number, box.x + left - body.width / 2, box.y + top + box.height / 2 - body.height]);
    });
  }
  return found;
}

// --- shapes and lines

// Pixels that a shape's corners take of a line's room.
export function slackOf(shape) {
  return SHARED.cornerSlack[shape] ?? 0;
}

// The outline of a node about its own middle.
export function outlineOf(shape, width, height) {
  const [right, bottom] = [width / 2, height / 2];
  const corner = SHARED.corners[shape];
  if (corner) {
    const [inset, drop] = [right - corner[0], bottom - height * corner[1]];
    const corners = [[-inset, -bottom], [inset, -bottom], [right, -drop], [right, drop], [inset, bottom], [-inset, bottom], [-right, drop], [-right, -drop]];
    return `M${corners.map((each) => each.map((number) => number.toFixed(1)).join(" ")).join("L")}Z`;
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

export function curveOf(points) {
  let path = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    const middle = (y1 + y2) / 2;
    const place = (...numbers) => numbers.map((each) => each.toFixed(1)).join(" ");
    path += Math.abs(x1 - x2) < 0.5 ? ` L${place(x2, y2)}` : ` C${place(x1, middle, x2, middle, x2, y2)}`;
  }
  return path;
}
