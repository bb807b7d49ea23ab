// Folds and unfolds the containers of the graph: what is inside is hidden, and everything finds its new place.

class Folding {
  // `onMove` hears that everything has a new place, and how large the drawing is now.
  constructor(graph, head, run, onMove) {
    Object.assign(this, { graph, head, run, onMove });
    this.parents = head.drawn.map((path) => {
      const parent = run.sites.get(path)?.parent ?? null;
      return parent === null ? null : graph.numbers.get(parent) ?? null;
    });
    this.isContainer = head.drawn.map(() => false);
    for (const parent of this.parents) if (parent !== null) this.isContainer[parent] = true;
    this.shut = new Set(head.shut);
    this.labels = [...graph.svg.querySelectorAll("[data-of]")];
    graph.isHidden = (number) => this.isHidden(number);
    graph.isFoldedEdge = (number) => head.edges[number].slice(0, 2).some((end) => this.isHidden(end));
    if (!head.sizes?.length) return;
    this.isContainer.forEach((isOne, number) => {
      if (!isOne) return;
      graph.groups[number].setAttribute("aria-expanded", String(!this.shut.has(number)));
    });
    graph.svg.addEventListener("click", (event) => {
      const sign = event.target.closest(".fold");
      if (!sign) return;
      event.stopPropagation();
      this.toggle(Number(sign.closest("[data-node]").dataset.node));
    }, true);
  }

  isHidden(number) {
    for (let each = this.parents[number]; each !== null; each = this.parents[each]) if (this.shut.has(each)) return true;
    return false;
  }

  get containers() {
    return this.head.sizes?.length ? this.isContainer.flatMap((isOne, number) => (isOne ? [number] : [])) : [];
  }

  toggle(number) {
    if (!this.isContainer[number] || !this.head.sizes?.length) return;
    if (!this.shut.delete(number)) this.shut.add(number);
    this.place(number);
  }

  foldAll(isShut) {
    this.shut = new Set(isShut ? this.containers : []);
    this.place(null, true);
  }

  // Open whatever a node is inside of.
  reveal(number) {
    if (!this.isHidden(number)) return;
    for (let each = this.parents[number]; each !== null; each = this.parents[each]) this.shut.delete(each);
    this.place(null);
  }

  // Everything at its new place; `kept` stays where it is on the screen.
  place(kept, isFitted = false) {
    const { drawn, edges, sizes, shapes } = this.head;
    const shown = drawn.flatMap((_, number) => (this.isHidden(number) ? [] : [number]));
    const at = new Map(shown.map((number, place) => [number, place]));
    const nodes = shown.map((number) => ({
      parent: this.parents[number] === null ? null : at.get(this.parents[number]), size: sizes[number],
    }));
    const lines = edges.flatMap(([source, target], number) => (at.has(source) && at.has(target) ? [number] : []));
    const found = arrangeBoxes(nodes, lines.map((number) => edges[number].slice(0, 2).map((end) => at.get(end))));
    const before = kept === null ? null : this.graph.placeOf(kept);
    drawn.forEach((path, number) => {
      const group = this.graph.groups[number];
      if (!at.has(number)) { group.setAttribute("display", "none"); return; }
      const box = found.boxes[at.get(number)];
      group.removeAttribute("display");
      group.setAttribute("transform", `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})`);
      if (this.isContainer[number]) this.dress(group, number, box, found.open.has(at.get(number)), shapes[this.run.sites.get(path).kind]);
    });
    const paths = new Map(lines.map((number, place) => [number, found.paths[place]]));
    for (const edge of this.graph.edges) {
      const points = paths.get(Number(edge.dataset.edge));
      if (points) {
        edge.setAttribute("d", curveOf(points));
        edge.removeAttribute("display");
      } else {
        edge.setAttribute("display", "none");
      }
    }
    for (const label of this.labels) {
      const points = paths.get(Number(label.dataset.of));
      if (!points) { label.setAttribute("display", "none"); continue; }
      const [[x1, y1], [x2, y2]] = points.slice(-2);
      label.removeAttribute("display");
      label.setAttribute("x", ((x1 + x2) / 2).toFixed(1));
      label.setAttribute("y", ((y1 + y2) / 2 + 4).toFixed(1));
    }
    this.graph.placeNames();
    this.onMove(found, kept, before, isFitted);
  }

  // A container as a frame round its body, or as a box like any other.
  dress(group, number, box, isOpen, shape) {
    const path = group.querySelector(":scope > path");
    const texts = [...group.querySelectorAll(":scope > text:not(.fold)")];
    const bar = group.querySelector(":scope > .progress");
    const left = -box.width / 2;
    const top = isOpen ? -box.height / 2 + 20 : -(16 * texts.length + (bar ? 8 : 0)) / 2 + 13;
    path.setAttribute("d", outlineOf(shape, box.width, box.height));
    group.classList.toggle("frame", isOpen);
    group.setAttribute("aria-expanded", String(isOpen));
    texts.forEach((text, line) => {
      text.setAttribute("x", left + 40);
      text.setAttribute("y", top + 16 * line);
    });
    bar?.setAttribute("transform", `translate(${left + 40} ${top + 16 * texts.length - 9})`);
    this.graph.based(number, left + 40, top);
    const fold = group.querySelector(":scope > .fold");
    if (fold) {
      fold.setAttribute("d", `M-9-9H9V9H-9ZM-5 0H5${isOpen ? "" : "M0-5V5"}`);
      fold.setAttribute("transform", `translate(${box.width / 2 - 16} ${top - 3})`);
    }
  }
}
