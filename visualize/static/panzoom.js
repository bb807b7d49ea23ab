// Pan and zoom of a drawing in a box: wheel, drag, two fingers, keys and buttons. It knows nothing of what is drawn.

import { need } from "./elements.js";

/** @import { View } from "./types.d.ts" */

const TOOLS = 44; // Pixels at the top of the box where the buttons are.
const REST = 140; // Milliseconds without a move after which it rests.
const LEAST = 0.16; // The scale of a page that opens, at least: a box is then 40 pixels wide.

/**
 * What draws instead while a large drawing is moved.
 * @typedef {{ draw: (view: View) => void, end: () => void }} Stand
 */

export class PanZoom {
  /**
   * @param {HTMLElement} box the element that clips
   * @param {SVGSVGElement} svg what it holds
   * @param {(view: View) => void} onMove hears every new place
   */
  constructor(box, svg, onMove) {
    this.box = box;
    this.scene = need(".scene", svg);
    this.svg = svg;
    this.size = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
    this.onMove = onMove;
    /** @type {Map<number, { x: number, y: number }>} */
    this.pointers = new Map();
    /** @type {Stand | null} */
    this.motion = null;
    this.onDrift = (/** @type {View} */ _view) => {};
    this.moved = 0; // pixels of the drag that goes on
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.resting = 0; // the timer until it rests; 0: it does
    this.frame = 0;
    svg.removeAttribute("viewBox");
    svg.setAttribute("width", "100%");
    svg.setAttribute("height", "100%");
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("pointerdown", (event) => this.press(event));
    box.addEventListener("pointermove", (event) => this.drag(event));
    box.addEventListener("pointerup", (event) => this.release(event));
    box.addEventListener("pointercancel", (event) => this.release(event));
    // A drag must not end as a click on what happens to be below it.
    box.addEventListener("click", (event) => this.moved > 4 && event.stopPropagation(), true);
    this.begin();
  }

  // Everything, as long as its boxes can still be told apart; else the middle of the top.
  begin() {
    this.put(Math.max(Math.min(this.fitScale(), 1.1), LEAST));
  }

  fit() {
    this.put(Math.min(this.fitScale(), 1.5));
  }

  /**
   * The drawing has another size.
   * @param {number} width
   * @param {number} height
   */
  resize(width, height) {
    this.size = { width, height };
  }

  /**
   * A point of the drawing in the middle of the box.
   * @param {number} x
   * @param {number} y
   */
  centre(x, y, least = 0) {
    const scale = Math.max(this.scale, least);
    this.set(scale, this.box.clientWidth / 2 - x * scale, (this.box.clientHeight + TOOLS) / 2 - y * scale);
  }

  fitScale() {
    const { clientWidth, clientHeight } = this.box;
    return Math.min(clientWidth / this.size.width, (clientHeight - TOOLS) / this.size.height) || 1;
  }

  /** @param {number} scale */
  put(scale) {
    const left = this.box.clientWidth - this.size.width * scale;
    const above = this.box.clientHeight - TOOLS - this.size.height * scale;
    this.set(scale, left / 2, TOOLS + Math.max(0, above / 2));
  }

  /**
   * @param {number} scale
   * @param {number} x
   * @param {number} y
   * @param {boolean} [isMoving] more of it follows at once. Where the drawing is large, something quicker is shown until it
   *   rests.
   */
  set(scale, x, y, isMoving = false) {
    this.scale = Math.min(Math.max(scale, 0.01), 4);
    this.x = x;
    this.y = y;
    clearTimeout(this.resting);
    if (isMoving && this.motion) {
      this.frame ||= requestAnimationFrame(() => {
        this.frame = 0;
        if (this.resting) this.motion?.draw(this);
        this.onDrift(this);
      });
      this.resting = setTimeout(() => this.rest(), REST);
      return;
    }
    this.rest();
  }

  rest() {
    this.resting = 0;
    const { x, y } = this;
    this.scene.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${this.scale.toFixed(4)})`);
    this.onMove(this);
    this.motion?.end();
  }

  // Zoom so that what is at a point of the box stays there.
  zoom(/** @type {number} */ factor, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2, isMoving = false) {
    const scale = Math.min(Math.max(this.scale * factor, 0.01), 4);
    const by = scale / this.scale;
    this.set(scale, x - (x - this.x) * by, y - (y - this.y) * by, isMoving);
  }

  /**
   * Bring a point of the drawing into the box, if it is not well inside already.
   * @param {number} x
   * @param {number} y
   * @param {number} [least] the scale, at least
   */
  show(x, y, least = 0) {
    if (this.scale < least) { this.centre(x, y, least); return; }
    const { clientWidth, clientHeight } = this.box;
    const [left, top] = [x * this.scale + this.x, y * this.scale + this.y];
    const inside = left > 60 && top > 40 && left < clientWidth - 60 && top < clientHeight - 40;
    if (!inside) this.centre(x, y);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    const edge = this.box.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - edge.left, event.clientY - edge.top, true);
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button) return;
    if (!this.pointers.size) this.moved = 0;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (this.moved > 4 && !this.box.hasPointerCapture(event.pointerId)) this.box.setPointerCapture(event.pointerId);
    if (other) {
      const edge = this.box.getBoundingClientRect();
      const distance = (/** @type {{ x: number, y: number }} */ point) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
      this.zoom(distance(now) / distance(before), (now.x + other.x) / 2 - edge.left, (now.y + other.y) / 2 - edge.top, true);
    } else {
      this.set(this.scale, this.x + now.x - before.x, this.y + now.y - before.y, true);
    }
    this.pointers.set(event.pointerId, now);
  }

  /** @param {PointerEvent} event */
  release(event) {
    this.pointers.delete(event.pointerId);
  }
}
