// A large graph while it is moved: drawn on a canvas in a few milliseconds, where the browser would lay out thousands of
// elements for each frame. Once it rests, the real one is back at its new place.

import { all, find, need, penOf } from "./elements.js";

/** @import { Graph } from "./graph.js" */
/** @import { Minimap } from "./minimap.js" */
/** @import { View } from "./types.d.ts" */
/** @typedef {Minimap["spots"][number]} Spot */

const BAND = 1500; // Pixels of the drawing whose lines are one path.

export class Motion {
  /**
   * @param {HTMLElement} box
   * @param {Graph} graph
   * @param {Minimap} minimap knows where the boxes are, and their colours
   */
  constructor(box, graph, minimap) {
    this.box = box;
    this.graph = graph;
    this.minimap = minimap;
    this.canvas = document.createElement("canvas");
    this.canvas.className = "motion";
    this.canvas.setAttribute("aria-hidden", "true");
    this.canvas.hidden = true;
    box.append(this.canvas);
    this.pen = penOf(this.canvas);
    this.ratio = 1;
    this.ink = "";
    this.font = "";
    this.line = "";
    /** @type {Map<number, Path2D> | null} null: the drawing has changed */
    this.bands = null;
  }

  // The drawing has changed.
  forget() {
    this.bands = null;
  }

  begin() {
    if (!this.canvas.hidden) return;
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.box;
    Object.assign(this.canvas, { width: clientWidth * ratio, height: clientHeight * ratio, hidden: false });
    const style = getComputedStyle(need(".name", this.graph.svg));
    this.ink = style.fill;
    this.font = style.fontFamily;
    this.line = getComputedStyle(find(".edge", this.graph.svg) ?? this.graph.svg).stroke;
    this.ratio = ratio;
    this.graph.svg.style.opacity = "0";
  }

  end() {
    if (this.canvas.hidden) return;
    this.canvas.hidden = true;
    this.graph.svg.style.opacity = "";
  }

  // The lines, as one path for each band of the drawing.
  collect() {
    /** @type {Map<number, Path2D>} */
    const bands = new Map();
    for (const edge of all("path.edge", this.graph.svg)) {
      const path = edge.getAttribute("d");
      if (!path || edge.hasAttribute("display")) continue;
      const first = Number(path.split(" ", 2)[1]?.match(/^-?[\d.]+/)?.[0] ?? 0);
      const last = Number(path.slice(path.lastIndexOf(" ") + 1));
      for (let band = Math.floor(Math.min(first, last) / BAND); band <= Math.floor(Math.max(first, last) / BAND); band += 1) {
        const lines = bands.get(band) ?? new Path2D();
        lines.addPath(new Path2D(path));
        bands.set(band, lines);
      }
    }
    return bands;
  }

  /** @param {View} view */
  draw({ x, y, scale }) {
    this.begin();
    this.bands ??= this.collect();
    const { pen, ratio, canvas } = this;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    const [left, top] = [-x / scale, -y / scale];
    const [right, bottom] = [left + canvas.width / ratio / scale, top + canvas.height / ratio / scale];
    const spots = this.minimap.spots.filter((spot) => spot.x < right && spot.x + spot.width > left && spot.y < bottom && spot.y + spot.height > top);
    this.drawBoxes(spots.filter((spot) => spot.isFrame), 0.35, scale);
    if (scale > 0.06) {
      pen.strokeStyle = this.line;
      pen.lineWidth = 1 / scale;
      for (const [band, path] of this.bands) if (band * BAND < bottom && (band + 1) * BAND > top) pen.stroke(path);
    }
    this.drawBoxes(spots.filter((spot) => !spot.isFrame), 1, scale);
    if (scale > (this.graph.isCompact ? 0.4 : 0.15)) for (const spot of spots) this.write(spot);
  }

  /**
   * @param {Spot[]} spots
   * @param {number} alpha
   * @param {number} scale
   */
  drawBoxes(spots, alpha, scale) {
    const { pen } = this;
    pen.lineWidth = Math.max(1.5, 1 / scale);
    for (const spot of spots) {
      const { stroke, fill } = this.minimap.colourOf(spot);
      pen.globalAlpha = alpha;
      pen.fillStyle = fill;
      pen.fillRect(spot.x, spot.y, spot.width, spot.height);
      pen.globalAlpha = 1;
      pen.strokeStyle = stroke;
      pen.strokeRect(spot.x, spot.y, spot.width, spot.height);
    }
  }

  /**
   * The words of a box: all of them while they can be read, else the name.
   * @param {Spot} spot
   */
  write(spot) {
    const { pen } = this;
    const isNear = this.graph.grown === 1;
    this.graph.placeName(spot.number);
    const [middle, half] = [spot.x + spot.width / 2, spot.y + spot.height / 2];
    pen.fillStyle = this.ink;
    for (const text of all(isNear ? ":scope > text" : ":scope > .name", spot.group)) {
      const isName = text.classList.contains("name");
      pen.font = `${isName ? "bold 13" : "12"}px ${this.font}`;
      pen.textAlign = this.graph.isCompact ? "center" : "left";
      pen.save();
      pen.translate(middle + Number(text.getAttribute("x")), half + Number(text.getAttribute("y")));
      if (!isNear) pen.scale(this.graph.grown, this.graph.grown);
      pen.fillText(text.textContent ?? "", 0, 0);
      pen.restore();
    }
  }
}
