// Folds and unfolds the containers of the graph: what is inside is hidden, and everything finds its new place.

import { arrangeBoxes, curveOf, outlineOf, slackOf } from "./arrange.js";
import { SHARED } from "./shared.js";
import { COUNT, cutTo, shortModel } from "./texts.js";

const MOST_NAMES = 10_000; // So many names are shown at once, at most, where boxes have nothing else.

export class Folding {
  // `onMove` hears that everything has a new place, and how large the drawing is now.
  constructor(graph, head, run, onMove) {
    Object.assign(this, { graph, head, run, onMove });
    this.parents = head.drawn.map((path) => {
      const parent = run.sites.get(path)?.parent ?? null;
      return parent === null ? null : graph.numbers.get(parent) ?? null;
    });
    this.isContainer = head.drawn.map(() => false);
    for (const parent of this.parents) if (parent !== null) this.isContainer[parent] = true;
    this.opened = []; // containers that were unfolded, the last one at the end
    this.scene = graph.svg.querySelector(".scene");
    const patterns = document.getElementById(`${graph.svg.id}-boxes`);
    const boxes = patterns ? [...patterns.content.querySelectorAll("svg > g")] : [];
    this.patterns = new Map(boxes.map((box, at) => [JSON.parse(patterns.dataset.kinds)[at], box]));
    this.shut = new Set(head.shut);
    this.labels = [...graph.svg.querySelectorAll("[data-of]")];
    graph.isContainer = this.isContainer;
    graph.isHidden = (number) => this.isHidden(number);
    graph.isFoldedEdge = (number) => head.edges[number].slice(0, 2).some((end) => this.isHidden(end));
    if (!head.sizes?.length) return;
    this.isContainer.forEach((isOne, number) => {
      if (!isOne) return;
      graph.groups[number]?.setAttribute("aria-expanded", String(!this.shut.has(number)));
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
    if (this.shut.has(number)) this.open([number]);
    else this.shut.add(number);
    this.place(number);
  }

  foldAll(isShut) {
    this.shut = new Set(this.containers);
    let room = this.most - this.countShown();
    // The outer ones come first; what is too much stays folded.
    for (const number of isShut ? [] : this.containers) {
      const inside = this.childrenOf(number).length;
      if (inside > room || this.isHidden(number)) continue;
      room -= inside;
      this.shut.delete(number);
    }
    this.place(null, true);
  }

  // Open whatever a node is inside of.
  reveal(number) {
    if (!this.isHidden(number) || !this.head.sizes?.length) return;
    this.open(this.around(number));
    this.place(null);
  }

  get most() {
    return this.graph.isCompact ? MOST_NAMES : SHARED.mostBoxes;
  }

  // The containers that a node is inside of, the nearest first.
  around(number) {
    const found = [];
    for (let each = this.parents[number]; each !== null; each = this.parents[each]) found.push(each);
    return found;
  }

  childrenOf(number) {
    if (!this.children) {
      this.children = this.parents.map(() => []);
      this.parents.forEach((parent, each) => parent !== null && this.children[parent].push(each));
    }
    return this.children[number];
  }

  countInside(number) {
    return this.childrenOf(number).reduce((sum, each) => sum + 1 + this.countInside(each), 0);
  }

  countShown() {
    return this.parents.reduce((sum, _, number) => sum + !this.isHidden(number), 0);
  }

  // Unfold them. Where too much would be shown then, those are folded that were unfolded longest ago.
  open(numbers) {
    for (const number of numbers) this.shut.delete(number);
    const kept = new Set(numbers.flatMap((number) => [number, ...this.around(number)]));
    this.opened = [...this.opened.filter((each) => !kept.has(each) && !this.shut.has(each)), ...numbers];
    for (const each of [...this.opened]) {
      if (kept.has(each) || this.countShown() <= this.most) continue;
      this.shut.add(each);
    }
  }

  // The box of a node, as the server draws one of its kind.
  make(number) {
    const { graph } = this;
    const site = this.run.sites.get(this.head.drawn[number]);
    const group = document.importNode(this.patterns.get(site.kind), true);
    group.dataset.node = String(number);
    group.querySelector(":scope > title").textContent = site.path;
    group.querySelector(":scope > .name").textContent = cutTo(site.id, SHARED.maxName);
    graph.write(group, ".kind", `${cutTo(site.kind, 32)}${site.model ? ` · ${shortModel(site.model)}` : ""}`);
    this.scene.insertBefore(group, this.isContainer[number] ? this.scene.querySelector(":scope > .edge, :scope > .unseen, :scope > .node:not(:has(> .fold))") : null);
    graph.add(number, group);
    return group;
  }

  // The line of an edge, with its label.
  makeEdge(number) {
    const edge = document.createElementNS(this.graph.svg.namespaceURI, "path");
    edge.dataset.edge = String(number);
    edge.setAttribute("class", "edge undecided");
    edge.setAttribute("marker-end", `url(#${this.graph.svg.id}-arrow)`);
    this.putLine(edge);
    this.graph.edges.push(edge);
    const labels = this.head.edges[number][2];
    if (!labels.length) return;
    const label = document.createElementNS(this.graph.svg.namespaceURI, "text");
    label.dataset.of = String(number);
    label.setAttribute("class", "label");
    label.textContent = cutTo(labels.join(" | "), SHARED.maxDetail);
    this.putLine(label);
    this.labels.push(label);
  }

  // Lines stand before frames and behind boxes.
  putLine(line) {
    this.firstBox ??= this.scene.querySelector(":scope > .unseen") ?? this.graph.groups.find((group, number) => group && !this.isContainer[number]) ?? null;
    this.scene.insertBefore(line, this.firstBox);
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
      if (!at.has(number)) { this.graph.groups[number]?.setAttribute("display", "none"); return; }
      const isNew = !this.graph.groups[number];
      const group = this.graph.groups[number] ?? this.make(number);
      const box = found.boxes[at.get(number)];
      group.removeAttribute("display");
      group.setAttribute("transform", `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})`);
      if (isNew || this.isContainer[number]) this.dress(group, number, box, found.open.has(at.get(number)), shapes[this.run.sites.get(path).kind]);
    });
    const paths = new Map(lines.map((number, place) => [number, found.paths[place]]));
    if (this.graph.isCompact) this.bundle(found.paths);
    else this.makeEdges(lines);
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

  makeEdges(lines) {
    this.edgesMade ??= new Set(this.graph.edges.map((edge) => Number(edge.dataset.edge)));
    for (const number of lines) {
      if (this.edgesMade.has(number)) continue;
      this.edgesMade.add(number);
      this.makeEdge(number);
    }
  }

  // Of very many lines, a hundred are one drawing.
  bundle(paths) {
    for (const old of this.scene.querySelectorAll(":scope > .edge")) old.remove();
    for (let begin = 0; begin < paths.length; begin += SHARED.bundle) {
      const drawing = document.createElementNS(this.graph.svg.namespaceURI, "path");
      drawing.setAttribute("class", "edge declared");
      drawing.setAttribute("d", paths.slice(begin, begin + SHARED.bundle).map(curveOf).join(" "));
      this.putLine(drawing);
    }
  }

  // A container as a frame round its body, or as a box like any other; and each box that is new.
  dress(group, number, box, isOpen, shape) {
    const path = group.querySelector(":scope > path");
    const texts = [...group.querySelectorAll(":scope > text:not(.fold)")];
    const bar = group.querySelector(":scope > .progress");
    const left = -box.width / 2 + slackOf(shape) / 2;
    const top = isOpen ? -box.height / 2 + 20 : -(SHARED.lineHeight * texts.length + (bar ? 8 : 0)) / 2 + 13;
    path.setAttribute("d", outlineOf(shape, box.width, box.height));
    group.classList.toggle("frame", isOpen);
    if (this.isContainer[number]) {
      const kind = this.graph.kinds[number].replace(/ · [\d,]+ nodes inside$/, "");
      group.setAttribute("aria-expanded", String(isOpen));
      this.graph.write(group, ".kind", isOpen ? kind : `${kind} · ${COUNT.format(this.countInside(number))} nodes inside`);
    }
    const fold = group.querySelector(":scope > .fold");
    const { isCompact } = this.graph;
    if (fold) {
      const y = isCompact ? (isOpen ? 13 - box.height / 2 : 0) : top - 3;
      fold.setAttribute("d", isOpen ? SHARED.unfolded : SHARED.folded);
      fold.setAttribute("transform", `translate(${box.width / 2 - 16} ${y})`);
    }
    if (isCompact) {
      texts[0].setAttribute("y", isOpen ? 17 - box.height / 2 : 4);
      return;
    }
    texts.forEach((text, line) => {
      text.setAttribute("x", left + 40);
      text.setAttribute("y", top + SHARED.lineHeight * line);
    });
    bar?.setAttribute("transform", `translate(${left + 40} ${top + SHARED.lineHeight * texts.length - 9})`);
    this.graph.based(number, left + 40, top);
  }
}
