// Folds and unfolds the containers of the graph: what is inside is hidden, and everything finds its new place.

import { arrangeBoxes, curveOf, outlineOf, slackOf } from "./arrange.js";
import { all, closestTo, find, need } from "./elements.js";
import { listAt } from "./fold.js";
import { SHARED } from "./shared.js";
import { COUNT, cutTo, shortModel } from "./texts.js";

/** @import { Run } from "./fold.js" */
/** @import { Graph } from "./graph.js" */
/** @import { Arrangement, Box, Head, Point } from "./types.d.ts" */

/** @typedef {{ x: number, y: number }} Place */
/** @typedef {(size: Arrangement, fixed: number | null, before: Place | null, isFitted: boolean) => void} OnMove */

const MOST_NAMES = 10_000; // So many names are shown at once, at most, where boxes have nothing else.

export class Folding {
  /**
   * @param {Graph} graph
   * @param {Head} head
   * @param {Run} run
   * @param {OnMove} onMove hears that everything has a new place, and how large the drawing is now
   */
  constructor(graph, head, run, onMove) {
    this.graph = graph;
    this.head = head;
    this.run = run;
    this.onMove = onMove;
    /** @type {(number | null)[]} */
    this.parents = head.drawn.map((path) => {
      const parent = run.sites.get(path)?.parent ?? null;
      return parent === null ? null : graph.numbers.get(parent) ?? null;
    });
    this.isContainer = head.drawn.map(() => false);
    for (const parent of this.parents) if (parent !== null) this.isContainer[parent] = true;
    /** @type {Map<number | null, number[]> | null} */
    this.children = null;
    /** @type {number[]} containers that were unfolded, the last one at the end */
    this.opened = [];
    this.scene = need(".scene", graph.svg);
    this.patterns = this.readPatterns();
    /** @type {Element | null} the first box that is no container; what stands before it is behind all boxes */
    this.firstBox = null;
    /** @type {Set<number> | null} */
    this.edgesMade = null;
    this.shut = new Set(head.shut);
    /** @type {SVGElement[]} */
    this.labels = all("[data-of]", graph.svg);
    graph.isContainer = this.isContainer;
    graph.isHidden = (number) => this.isHidden(number);
    graph.isFoldedEdge = (number) => this.isHidden(head.edges[number][0]) || this.isHidden(head.edges[number][1]);
    if (!this.canFold) return;
    for (const number of this.containers) graph.groups[number]?.setAttribute("aria-expanded", String(!this.shut.has(number)));
    graph.svg.addEventListener("click", (event) => {
      /** @type {SVGElement | null | undefined} */
      const node = closestTo(event, ".fold")?.closest("[data-node]");
      if (!node) return;
      event.stopPropagation();
      this.toggle(Number(node.dataset.node));
    }, true);
  }

  get canFold() {
    return this.head.sizes.length > 0;
  }

  /** The boxes that the server draws of each kind, for what is made later. */
  readPatterns() {
    /** @type {HTMLTemplateElement | null} */
    const template = find(`#${this.graph.svg.id}-boxes`);
    if (!template) return new Map();
    /** @type {string[]} */
    const kinds = JSON.parse(template.dataset.kinds ?? "[]");
    /** @type {SVGGElement[]} */
    const boxes = all("svg > g", template.content);
    return new Map(boxes.map((box, at) => [kinds[at], box]));
  }

  /**
   * The containers that a node is inside of, the nearest first.
   * @param {number} number
   */
  parentsOf(number) {
    /** @type {number[]} */
    const parents = [];
    for (let at = this.parents[number]; at !== null; at = this.parents[at]) parents.push(at);
    return parents;
  }

  /** @param {number} number */
  isHidden(number) {
    for (let at = this.parents[number]; at !== null; at = this.parents[at]) if (this.shut.has(at)) return true;
    return false;
  }

  get containers() {
    return this.canFold ? this.isContainer.flatMap((isOne, number) => (isOne ? [number] : [])) : [];
  }

  /** @param {number} number */
  toggle(number) {
    if (!this.isContainer[number] || !this.canFold) return;
    if (this.shut.has(number)) this.open([number]);
    else this.shut.add(number);
    this.place(number);
  }

  /** @param {boolean} isShut */
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

  /**
   * Open whatever a node is inside of.
   * @param {number} number
   */
  reveal(number) {
    if (!this.isHidden(number) || !this.canFold) return;
    this.open(this.parentsOf(number));
    this.place(null);
  }

  get most() {
    return this.graph.isCompact ? MOST_NAMES : SHARED.mostBoxes;
  }

  /** @param {number} number */
  childrenOf(number) {
    if (!this.children) {
      this.children = new Map();
      for (const [child, parent] of this.parents.entries()) listAt(this.children, parent).push(child);
    }
    return this.children.get(number) ?? [];
  }

  /**
   * @param {number} number
   * @returns {number}
   */
  countInside(number) {
    return this.childrenOf(number).reduce((sum, child) => sum + 1 + this.countInside(child), 0);
  }

  countShown() {
    return this.parents.reduce((/** @type {number} */ sum, _, number) => sum + Number(!this.isHidden(number)), 0);
  }

  /**
   * Unfold them. Where too much would be shown then, those are folded that were unfolded longest ago.
   * @param {number[]} numbers
   */
  open(numbers) {
    for (const number of numbers) this.shut.delete(number);
    const needed = new Set(numbers.flatMap((number) => [number, ...this.parentsOf(number)]));
    this.opened = [...this.opened.filter((number) => !needed.has(number) && !this.shut.has(number)), ...numbers];
    for (const number of [...this.opened]) {
      if (needed.has(number) || this.countShown() <= this.most) continue;
      this.shut.add(number);
    }
  }

  /** @param {number} number */
  siteOf(number) {
    return this.run.sites.get(this.head.drawn[number]);
  }

  /**
   * The box of a node, as the server draws one of its kind.
   * @param {number} number
   * @returns {SVGGElement}
   */
  make(number) {
    const { graph } = this;
    const site = this.siteOf(number);
    const pattern = site && this.patterns.get(site.kind);
    if (!pattern) throw new Error(`There is no box for the node ${this.head.drawn[number]}.`);
    const group = document.importNode(pattern, true);
    group.dataset.node = String(number);
    need(":scope > title", group).textContent = site.path;
    need(":scope > .name", group).textContent = cutTo(site.id, SHARED.maxName);
    graph.write(group, ".kind", `${cutTo(site.kind, SHARED.maxName)}${site.model ? ` · ${shortModel(site.model)}` : ""}`);
    const next = this.isContainer[number] ? find(":scope > .edge, :scope > .unseen, :scope > .node:not(:has(> .fold))", this.scene) : null;
    this.scene.insertBefore(group, next);
    graph.add(number, group);
    return group;
  }

  /**
   * The line of an edge, with its label.
   * @param {number} number
   */
  makeEdge(number) {
    const edge = this.makeShape("path");
    edge.dataset.edge = String(number);
    edge.setAttribute("class", "edge undecided");
    edge.setAttribute("marker-end", `url(#${this.graph.svg.id}-arrow)`);
    this.putLine(edge);
    this.graph.edges.push(edge);
    const labels = this.head.edges[number][2];
    if (!labels.length) return;
    const label = this.makeShape("text");
    label.dataset.of = String(number);
    label.setAttribute("class", "label");
    label.textContent = cutTo(labels.join(" | "), SHARED.maxDetail);
    this.putLine(label);
    this.labels.push(label);
  }

  /**
   * @template {"path" | "text"} K
   * @param {K} tag
   */
  makeShape(tag) {
    return /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(this.graph.svg.namespaceURI, tag));
  }

  /**
   * Lines stand before frames and behind boxes.
   * @param {SVGElement} line
   */
  putLine(line) {
    this.firstBox ??= find(":scope > .unseen", this.scene) ?? this.graph.groups.find((group, number) => group && !this.isContainer[number]) ?? null;
    this.scene.insertBefore(line, this.firstBox);
  }

  /**
   * Everything at its new place.
   * @param {number | null} fixed the node that stays where it is on the screen
   */
  place(fixed, isFitted = false) {
    const { drawn, edges, sizes } = this.head;
    const numbers = drawn.flatMap((_, number) => (this.isHidden(number) ? [] : [number]));
    const at = new Map(numbers.map((number, place) => [number, place]));
    const nodes = numbers.map((number) => ({ parent: at.get(this.parents[number] ?? -1) ?? null, size: sizes[number] }));
    /** @type {[source: number, target: number][]} */
    const pairs = [];
    const lines = edges.flatMap(([source, target], number) => {
      const ends = [at.get(source), at.get(target)];
      if (ends[0] === undefined || ends[1] === undefined) return [];
      pairs.push([ends[0], ends[1]]);
      return [number];
    });
    const layout = arrangeBoxes(nodes, pairs);
    const before = fixed === null ? null : this.graph.placeOf(fixed);
    drawn.forEach((_, number) => {
      const place = at.get(number);
      if (place === undefined) this.graph.groups[number]?.setAttribute("display", "none");
      else this.placeNode(number, layout.boxes[place], layout.open.has(place));
    });
    const paths = new Map(lines.map((number, place) => [number, layout.paths[place]]));
    if (this.graph.isCompact) this.bundle(layout.paths);
    else this.makeEdges(lines);
    this.placeEdges(paths);
    this.placeLabels(paths);
    this.graph.placeNames();
    this.onMove(layout, fixed, before, isFitted);
  }

  /**
   * @param {number} number
   * @param {Box} box
   * @param {boolean} isOpen
   */
  placeNode(number, box, isOpen) {
    const isNew = !this.graph.groups[number];
    const group = this.graph.groups[number] ?? this.make(number);
    group.removeAttribute("display");
    group.setAttribute("transform", `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})`);
    if (isNew || this.isContainer[number]) this.dress(group, number, box, isOpen, this.head.shapes[this.siteOf(number)?.kind ?? ""]);
  }

  /** @param {Map<number, Point[]>} paths */
  placeEdges(paths) {
    for (const edge of this.graph.edges) {
      const points = paths.get(Number(edge.dataset.edge));
      if (points) {
        edge.setAttribute("d", curveOf(points));
        edge.removeAttribute("display");
      } else {
        edge.setAttribute("display", "none");
      }
    }
  }

  /** @param {Map<number, Point[]>} paths */
  placeLabels(paths) {
    for (const label of this.labels) {
      const points = paths.get(Number(label.dataset.of));
      if (!points) { label.setAttribute("display", "none"); continue; }
      const [[x1, y1], [x2, y2]] = points.slice(-2);
      label.removeAttribute("display");
      label.setAttribute("x", ((x1 + x2) / 2).toFixed(1));
      label.setAttribute("y", ((y1 + y2) / 2 + 4).toFixed(1));
    }
  }

  /** @param {number[]} lines */
  makeEdges(lines) {
    this.edgesMade ??= new Set(this.graph.edges.map((edge) => Number(edge.dataset.edge)));
    for (const number of lines) {
      if (this.edgesMade.has(number)) continue;
      this.edgesMade.add(number);
      this.makeEdge(number);
    }
  }

  /**
   * Of very many lines, a hundred are one drawing.
   * @param {Point[][]} paths
   */
  bundle(paths) {
    for (const old of all(":scope > .edge", this.scene)) old.remove();
    for (let begin = 0; begin < paths.length; begin += SHARED.bundle) {
      const drawing = this.makeShape("path");
      drawing.setAttribute("class", "edge declared");
      drawing.setAttribute("d", paths.slice(begin, begin + SHARED.bundle).map(curveOf).join(" "));
      this.putLine(drawing);
    }
  }

  /**
   * A container as a frame round its body, or as a box like any other; and each box that is new.
   * @param {SVGGElement} group
   * @param {number} number
   * @param {Box} box
   * @param {boolean} isOpen
   * @param {string} shape
   */
  dress(group, number, box, isOpen, shape) {
    const { isCompact } = this.graph;
    const texts = all(":scope > text:not(.fold)", group);
    const bar = find(":scope > .progress", group);
    const left = -box.width / 2 + slackOf(shape) / 2;
    const top = isOpen ? -box.height / 2 + 20 : -(SHARED.lineHeight * texts.length + (bar ? 8 : 0)) / 2 + 13;
    need(":scope > path", group).setAttribute("d", outlineOf(shape, box.width, box.height));
    group.classList.toggle("frame", isOpen);
    if (this.isContainer[number]) {
      const kind = this.graph.kinds[number].replace(/ · [\d,]+ nodes inside$/, "");
      group.setAttribute("aria-expanded", String(isOpen));
      this.graph.write(group, ".kind", isOpen ? kind : `${kind} · ${COUNT.format(this.countInside(number))} nodes inside`);
    }
    const fold = find(":scope > .fold", group);
    if (fold) {
      const y = isCompact ? (isOpen ? 13 - box.height / 2 : 0) : top - 3;
      fold.setAttribute("d", isOpen ? SHARED.unfolded : SHARED.folded);
      fold.setAttribute("transform", `translate(${box.width / 2 - 16} ${y})`);
    }
    if (isCompact) {
      texts[0].setAttribute("y", String(isOpen ? 17 - box.height / 2 : 4));
      return;
    }
    texts.forEach((text, line) => {
      text.setAttribute("x", String(left + SHARED.pad));
      text.setAttribute("y", String(top + SHARED.lineHeight * line));
    });
    bar?.setAttribute("transform", `translate(${left + SHARED.pad} ${top + SHARED.lineHeight * texts.length - 9})`);
    this.graph.setBase(number, left + SHARED.pad, top);
  }
}
