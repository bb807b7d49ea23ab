// Of a large graph, only what is in sight is displayed: the browser lays out nothing else. Boxes out of sight stand in an
// element of their own, behind all lines, where it does not even work out how they look.

export class Sight {
  constructor(graph, box) {
    this.box = box;
    this.graph = graph;
    this.unseen = graph.svg.querySelector(".unseen");
    this.measure();
    new ResizeObserver(() => this.look(this.last)).observe(box);
  }

  // Where the nodes are; to be told when they move.
  measure() {
    this.spots = this.graph.groups.flatMap((group, number) => {
      const [x, y] = group.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
      if (group.parentNode === this.unseen) group.setAttribute("display", "none");
      const spot = { group, x, y, isFrame: group.classList.contains("frame"), isShown: !group.hasAttribute("display") };
      return this.graph.isHidden?.(number) ? [] : [{ ...spot, number }];
    });
    this.lines = this.graph.isCompact ? [] : this.graph.edges.flatMap((edge) => this.reach(edge));
    this.shown = new Set([...this.spots, ...this.lines].filter((spot) => spot.isShown));
    this.look(this.last);
  }

  // An edge with the box round it.
  reach(edge) {
    const path = edge.getAttribute("d");
    const isFolded = !path || this.graph.isFoldedEdge?.(Number(edge.dataset.edge));
    const numbers = isFolded ? [] : path.match(/-?[\d.]+/g).map(Number);
    const [xs, ys] = [numbers.filter((_, at) => at % 2 === 0), numbers.filter((_, at) => at % 2)];
    const box = { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    return isFolded ? [] : [{ group: edge, ...box, isShown: !edge.hasAttribute("display") }];
  }

  // What was shown and is out of sight is hidden, and the other way round. `place`: the scene's x, y and scale.
  look(place) {
    this.last = place;
    if (!place) return;
    const { x, y, scale } = place;
    const [left, top] = [-x / scale - 200, -y / scale - 60];
    const [right, bottom] = [left + this.box.clientWidth / scale + 400, top + this.box.clientHeight / scale + 120];
    const now = new Set();
    for (const spot of this.spots) {
      const inside = spot.x >= left && spot.x <= right && spot.y >= top && spot.y <= bottom;
      if (inside || spot.isFrame) now.add(spot);
    }
    for (const line of this.lines) {
      if (line.left <= right && line.right >= left && line.top <= bottom && line.bottom >= top) now.add(line);
    }
    const isBox = ({ number }) => number !== undefined && !this.graph.isContainer[number];
    for (const spot of this.shown) {
      if (now.has(spot)) continue;
      spot.group.setAttribute("display", "none");
      if (isBox(spot)) this.unseen.append(spot.group);
    }
    for (const spot of now) {
      if (this.shown.has(spot)) continue;
      spot.group.removeAttribute("display");
      if (isBox(spot)) this.unseen.parentNode.append(spot.group);
      if (spot.number !== undefined) this.graph.placeName(spot.number);
    }
    this.shown = now;
  }
}
