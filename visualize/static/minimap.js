// The whole graph in a corner: each node a spot in the colour of its status, and a frame round what is in sight. A click
// or a drag goes there. Nobody needs it who does not see it: the tree says the same.

const MAP = { width: 180, height: 120 };

export class Minimap {
  constructor(box, graph, zoom) {
    Object.assign(this, { graph, zoom });
    this.area = document.createElement("div");
    this.area.className = "minimap";
    this.area.setAttribute("aria-hidden", "true");
    this.canvas = document.createElement("canvas");
    this.frame = document.createElement("div");
    this.frame.className = "sight";
    this.area.append(this.canvas, this.frame);
    box.append(this.area);
    const go = (event) => {
      if (!event.buttons) return;
      const edge = this.canvas.getBoundingClientRect();
      zoom.centre((event.clientX - edge.left) / this.scale, (event.clientY - edge.top) / this.scale);
      event.preventDefault();
    };
    this.area.addEventListener("pointerdown", (event) => { this.area.setPointerCapture(event.pointerId); go(event); });
    this.area.addEventListener("pointermove", go);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours = null; this.paint(); });
  }

  // Where the nodes are; to be told when they move.
  measure() {
    this.spots = this.graph.groups.map((group, number) => {
      if (this.graph.isHidden?.(number)) return null;
      const { e: x, f: y } = group.transform.baseVal[0].matrix;
      const [width, height] = this.graph.sizeOf(number);
      return { group, number, x: x - width / 2, y: y - height / 2, width, height, isFrame: group.classList.contains("frame") };
    }).filter((each) => each !== null);
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
    this.timer ??= setTimeout(() => { this.timer = null; this.paint(); }, 250);
  }

  paint() {
    if (!this.spots) return;
    const pen = this.canvas.getContext("2d");
    const by = this.scale * (devicePixelRatio || 1);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const spot of this.spots) {
      const { stroke, fill } = this.colourOf(spot);
      pen.globalAlpha = spot.isFrame ? 0.35 : 1;
      pen.fillStyle = fill;
      pen.strokeStyle = stroke;
      const [x, y, width, height] = [spot.x, spot.y, spot.width, spot.height].map((each) => each * by);
      pen.fillRect(x, y, Math.max(1.5, width), Math.max(1.5, height));
      pen.strokeRect(x, y, Math.max(1.5, width), Math.max(1.5, height));
    }
  }

  colourOf({ group }) {
    this.colours ??= new Map();
    const name = group.getAttribute("class");
    if (!this.colours.has(name)) {
      const { stroke, fill } = getComputedStyle(group.querySelector("path"));
      this.colours.set(name, { stroke, fill });
    }
    return this.colours.get(name);
  }

  // The frame round what is in sight; hidden where that is everything.
  look(place) {
    if (!this.spots) return;
    const { clientWidth, clientHeight } = this.zoom.box;
    const [left, top] = [-place.x / place.scale, -place.y / place.scale];
    const [right, bottom] = [left + clientWidth / place.scale, top + clientHeight / place.scale];
    const { width, height } = this.zoom.size;
    this.area.classList.toggle("needless", left <= 1 && top <= 1 && right >= width - 1 && bottom >= height - 1);
    const at = (value, most) => Math.max(0, Math.min(value, most)) * this.scale;
    const style = this.frame.style;
    style.transform = `translate(${at(left, width)}px, ${at(top, height)}px)`;
    style.width = `${Math.max(4, at(right, width) - at(left, width))}px`;
    style.height = `${Math.max(4, at(bottom, height) - at(top, height))}px`;
  }
}
