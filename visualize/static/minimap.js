// The whole graph in a corner: each node a spot in the colour of its status, and a frame round what is in sight. A click
// or a drag goes there. Nobody needs it who does not see it: the tree says the same.

import { need, penOf } from "./elements.js";

/** @import { Graph } from "./graph.js" */
/** @import { PanZoom } from "./panzoom.js" */
/** @import { Box, View } from "./types.d.ts" */

/** @typedef {Box & { group: SVGGElement, number: number, isFrame: boolean }} Spot the corner at the left top, and the size */

const MAP = { width: 180, height: 120 };

export class Minimap {
  /**
   * @param {HTMLElement} box
   * @param {Graph} graph
   * @param {PanZoom} zoom
   */
  constructor(box, graph, zoom) {
    this.graph = graph;
    this.zoom = zoom;
    /** @type {Spot[]} */
    this.spots = [];
    this.scale = 1;
    this.timer = 0;
    /** @type {Map<string, { stroke: string, fill: string }>} the class of a node → its colours */
    this.colours = new Map();
    this.area = document.createElement("div");
    this.area.className = "minimap";
    this.area.setAttribute("aria-hidden", "true");
    this.canvas = document.createElement("canvas");
    this.frame = document.createElement("div");
    this.frame.className = "sight";
    this.area.append(this.canvas, this.frame);
    box.append(this.area);
    const go = (/** @type {PointerEvent} */ event) => {
      if (!event.buttons) return;
      const edge = this.canvas.getBoundingClientRect();
      zoom.centre((event.clientX - edge.left) / this.scale, (event.clientY - edge.top) / this.scale);
      event.preventDefault();
    };
    this.area.addEventListener("pointerdown", (event) => { this.area.setPointerCapture(event.pointerId); go(event); });
    this.area.addEventListener("pointermove", go);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours.clear(); this.paint(); });
  }

  // Where the nodes are; to be told when they move.
  measure() {
    this.spots = this.graph.groups.flatMap((group, number) => {
      if (this.graph.isHidden(number)) return [];
      const { x, y } = this.graph.placeOf(number);
      const [width, height] = this.graph.sizeOf(number);
      return [{ group, number, x: x - width / 2, y: y - height / 2, width, height, isFrame: group.classList.contains("frame") }];
    });
    const { width, height } = this.zoom.size;
    this.scale = Math.min(MAP.width / width, MAP.height / height);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * this.scale * ratio));
    this.canvas.height = Math.max(1, Math.round(height * this.scale * ratio));
    this.canvas.style.width = `${this.canvas.width / ratio}px`;
    this.canvas.style.height = `${this.canvas.height / ratio}px`;
    this.paint();
    this.look(this.zoom);
  }

  // At most four times a second: statuses change slowly.
  paintSoon() {
    this.timer ||= setTimeout(() => { this.timer = 0; this.paint(); }, 250);
  }

  paint() {
    const pen = penOf(this.canvas);
    const by = this.scale * (devicePixelRatio || 1);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const spot of this.spots) {
      const { stroke, fill } = this.colourOf(spot);
      pen.globalAlpha = spot.isFrame ? 0.35 : 1;
      pen.fillStyle = fill;
      pen.strokeStyle = stroke;
      const [x, y, width, height] = [spot.x, spot.y, spot.width, spot.height].map((length) => length * by);
      pen.fillRect(x, y, Math.max(1.5, width), Math.max(1.5, height));
      pen.strokeRect(x, y, Math.max(1.5, width), Math.max(1.5, height));
    }
  }

  /** @param {Spot} spot */
  colourOf({ group }) {
    const name = group.getAttribute("class") ?? "";
    let colours = this.colours.get(name);
    if (!colours) {
      const { stroke, fill } = getComputedStyle(need("path", group));
      this.colours.set(name, colours = { stroke, fill });
    }
    return colours;
  }

  /**
   * The frame round what is in sight; hidden where that is everything.
   * @param {View} view
   */
  look(view) {
    if (!this.spots.length) return;
    const { clientWidth, clientHeight } = this.zoom.box;
    const [left, top] = [-view.x / view.scale, -view.y / view.scale];
    const [right, bottom] = [left + clientWidth / view.scale, top + clientHeight / view.scale];
    const { width, height } = this.zoom.size;
    this.area.classList.toggle("needless", left <= 1 && top <= 1 && right >= width - 1 && bottom >= height - 1);
    const at = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(0, Math.min(value, most)) * this.scale;
    const style = this.frame.style;
    style.transform = `translate(${at(left, width)}px, ${at(top, height)}px)`;
    style.width = `${Math.max(4, at(right, width) - at(left, width))}px`;
    style.height = `${Math.max(4, at(bottom, height) - at(top, height))}px`;
  }
}
