// Repaints the graph that the server drew: classes for statuses, and the lines that change.

import { criticalPath, edgeOf } from "./edges.js";
import { all, find, need, penOf } from "./elements.js";
import { describeSite } from "./node_words.js";
import { SHARED } from "./shared.js";
import { cutName, cutTo, shortModel } from "./texts.js";

/** @import { Run } from "./fold.js" */
/** @import { Head, NodeWords, Size, Status } from "./types.d.ts" */

/** @typedef {"" | "time" | "cost"} Heat */

const GROWN = [1, 1.2, 1.45, 1.75, 2.1, 2.5, 3, 3.6, 4.3, 5.2, 5.9]; // How much larger names are written, as the drawing gets smaller.
const TWO_LINES = 1.75; // Up to here a box has room for its status below its name.

export class Graph {
  /**
   * @param {SVGSVGElement} svg
   * @param {Head} head
   */
  constructor(svg, head) {
    this.svg = svg;
    this.head = head;
    this.isCompact = svg.classList.contains("compact");
    /** @type {SVGGElement[]} by the numbers of nodes; of a large graph not all are there */
    this.groups = [];
    for (const group of /** @type {SVGGElement[]} */ (all("[data-node]", svg))) this.groups[Number(group.dataset.node)] = group;
    /** @type {SVGPathElement[]} */
    this.edges = all("[data-edge]", svg);
    this.numbers = new Map(head.drawn.map((path, number) => [path, number]));
    /** @type {Heat} what boxes are coloured by: their status, or this */
    this.heat = "";
    this.grown = 1;
    /** @type {string[]} what each box shows, as one text */
    this.painted = [];
    /** @type {number[]} how large each name is written */
    this.written = [];
    /** @type {(NodeWords | null)[]} what is said of nodes out of sight, until they come into sight */
    this.unwritten = [];
    /** @type {string[]} */
    this.names = [];
    /** @type {{ x: number, y: number }[]} where each name begins while it is as large as the other words */
    this.bases = [];
    /** @type {(string | undefined)[]} statuses and times as words */
    this.standings = [];
    /** @type {string[]} */
    this.kinds = [];
    /** @type {((path: string) => boolean) | null} which paths are sought; null: nothing is */
    this.matches = null;
    /** @type {Map<string, Status>} by paths */
    this.statuses = new Map();
    // Folding knows these.
    /** @type {boolean[]} */
    this.isContainer = [];
    this.isHidden = (/** @type {number} */ _number) => false;
    this.isFoldedEdge = (/** @type {number} */ _number) => false;
    /** @type {Map<string, number>} a text and its font → how wide a letter is */
    this.letters = new Map();
    /** @type {CanvasRenderingContext2D | null} what measures texts */
    this.pen = null;
    this.family = "";
    this.groups.forEach((group, number) => this.add(number, group));
  }

  /**
   * A box is there; those of a large graph come as their containers are unfolded.
   * @param {number} number
   * @param {SVGGElement} group
   */
  add(number, group) {
    this.groups[number] = group;
    this.names[number] = need(":scope > .name", group).textContent ?? "";
    this.kinds[number] = find(":scope > .kind", group)?.textContent ?? "";
    if (this.matches) group.classList.toggle("dim", !this.matches(this.head.drawn[number]));
  }

  /** @param {number} number */
  placeOf(number) {
    return placeOfGroup(this.groups[number]);
  }

  /**
   * Of a box as it is drawn now.
   * @param {number} number
   * @returns {Size}
   */
  sizeOf(number) {
    const group = this.groups[number];
    if (!group.classList.contains("frame")) return this.head.sizes[number] ?? [120, 26];
    /** @type {SVGPathElement} */
    const frame = need("path", group);
    const { width, height } = frame.getBBox();
    return [width, height];
  }

  /**
   * Names are written larger where the drawing is small, so that they can be read, and statuses as long as there is
   * room; other words are left out there.
   * @param {number} scale
   */
  rescale(scale) {
    const largest = GROWN[GROWN.length - 1];
    const grown = scale >= 0.9 ? 1 : GROWN.find((size) => size >= 0.93 / scale) ?? largest;
    if (grown === this.grown || this.isCompact) return;
    this.grown = grown;
    this.svg.classList.toggle("small", grown > 1);
    this.svg.classList.toggle("two-lines", grown > 1 && grown <= TWO_LINES);
    this.svg.classList.toggle("smaller", grown > 4.4);
    this.svg.style.setProperty("--grown", String(grown));
    this.placeNames();
  }

  placeNames() {
    this.written = [];
    this.names.forEach((_, number) => { if (!this.groups[number].hasAttribute("display")) this.placeName(number); });
  }

  /**
   * As large as names are now; once, as long as that does not change.
   * @param {number} number
   */
  placeName(number) {
    const words = this.unwritten[number];
    if (words) this.writeWords(number, words);
    if (this.isCompact || this.written[number] === this.grown) return;
    this.written[number] = this.grown;
    this.writeName(number, this.names[number]);
    this.writeStanding(number, this.standings[number]);
    this.label(number);
  }

  /**
   * Where a name begins while it is as large as the other words; to be told where that has changed.
   * @param {number} number
   * @param {number} x
   * @param {number} y
   */
  setBase(number, x, y) {
    this.bases[number] = { x, y };
  }

  /**
   * How wide a letter of a text is, on the mean and on the safe side.
   * @param {string} text
   */
  letterOf(text, font = "bold 13px", least = 7) {
    if (!this.pen) {
      this.pen = penOf(document.createElement("canvas"));
      this.family = getComputedStyle(find(".name", this.svg) ?? this.svg).fontFamily;
    }
    const key = `${font} ${text}`;
    let width = this.letters.get(key);
    if (width === undefined) {
      this.pen.font = `${font} ${this.family}`;
      width = Math.max(least, (this.pen.measureText(text).width / (text.length || 1)) * 1.08);
      this.letters.set(key, width);
    }
    return width;
  }

  /**
   * How many letters of a text have room in a box.
   * @param {number} number
   * @param {number} margin pixels that have no text
   * @param {number} letter pixels
   */
  countLetters(number, margin, letter) {
    const room = (this.head.sizes[number]?.[0] ?? SHARED.narrow) - 20 - margin;
    return Math.max(2, Math.floor(room / (letter * this.grown)));
  }

  /**
   * @param {number} number
   * @param {string} name
   */
  writeName(number, name) {
    this.names[number] = name;
    const { grown } = this;
    const group = this.groups[number];
    const element = need(":scope > .name", group);
    this.bases[number] ??= { x: Number(element.getAttribute("x")), y: Number(element.getAttribute("y")) };
    const { x, y } = this.bases[number];
    const by = grown > 4.4 ? 0 : Math.max(1, 0.72 * grown); // The sign grows with the name, as long as there is room.
    const left = grown > 1 ? x - 31 + 22 * by + (by ? 9 : 0) : x;
    const middle = group.classList.contains("frame") ? y - 14 + 6.5 * grown : this.hasTwoLines(number) ? -8 * grown : 0;
    element.setAttribute("x", String(left));
    element.setAttribute("y", String(grown > 1 ? middle + 4.5 * grown : y));
    find(":scope > .sign", group)?.setAttribute("transform", grown > 1
      ? `translate(${x - 31 + 11 * by} ${middle}) scale(${by || 1})` : `translate(${x - 20} ${y + 3})`);
    const sign = grown > 1 && group.classList.contains("s-failed") ? "✗ " : "";
    const text = grown > 1 ? cutName(sign + name, this.countLetters(number, left - x + 31, this.letterOf(name))) : name;
    if (element.textContent !== text) element.textContent = text;
  }

  /** @param {number} number */
  hasTwoLines(number) {
    return this.grown > 1 && this.grown <= TWO_LINES && Boolean(this.standings[number]) && !this.groups[number].classList.contains("frame");
  }

  /**
   * A node's status and time, below its name where names are somewhat larger than usual.
   * @param {number} number
   * @param {string | undefined} text
   */
  writeStanding(number, text) {
    const isNew = Boolean(text) !== Boolean(this.standings[number]);
    this.standings[number] = text;
    if (isNew) this.writeName(number, this.names[number]);
    const element = find(":scope > .standing", this.groups[number]);
    if (!element) return;
    const { x, y } = this.bases[number];
    const isSecond = this.hasTwoLines(number);
    element.setAttribute("x", String(isSecond ? x - 31 : x));
    element.setAttribute("y", String(isSecond ? 13 * this.grown : y + 2 * SHARED.lineHeight));
    const status = isSecond ? text?.split(" · ", 1)[0] ?? "" : ""; // The time behind it changes: it is not measured.
    const words = isSecond ? cutTo(text ?? "", this.countLetters(number, 0, this.letterOf(status, "12px", 5))) : text;
    if (words !== undefined && element.textContent !== words) element.textContent = words;
  }

  /**
   * @param {Run} run
   * @param {number | null} now
   */
  paint(run, now) {
    const critical = criticalPath(run);
    this.statuses = new Map();
    const words = this.head.drawn.map((path, number) => {
      const site = run.sites.get(path);
      if (!site || (!this.groups[number] && !site.body)) return null;
      const node = describeSite(run, site, now, site.parent === null ? null : this.statuses.get(site.parent));
      this.statuses.set(path, node.status);
      node.isCritical = (run.times.get(path) ?? []).some((row) => critical.rows.has(row.id));
      return node;
    });
    this.paintHeat(words);
    words.forEach((node, number) => node && this.groups[number] && this.paintNode(number, node));
    for (const path of this.edges) {
      const [source, target, labels] = this.head.edges[Number(path.dataset.edge)];
      const { state, isCritical } = edgeOf(run, this.head.drawn[source], this.head.drawn[target], labels, critical);
      const moves = state === "taken" && this.statuses.get(this.head.drawn[target]) === "running" ? " moving" : "";
      const name = `edge ${state}${isCritical ? " critical" : ""}${moves}`;
      if (path.getAttribute("class") !== name) path.setAttribute("class", name);
    }
  }

  /**
   * How hot each node is, by its share of the most; containers that are open are no measure.
   * @param {(NodeWords | null)[]} words
   */
  paintHeat(words) {
    const values = words.map((node, number) => {
      if (!node || !this.heat || !this.groups[number] || this.groups[number].classList.contains("frame")) return 0;
      return (this.heat === "time" ? node.seconds : node.cost) ?? 0;
    });
    const most = Math.max(0, ...values);
    words.forEach((node, number) => {
      if (node) node.heat = values[number] ? Math.min(4, Math.floor((5 * values[number]) / most)) : null;
    });
  }

  /**
   * @param {number} number
   * @param {NodeWords} node
   */
  paintNode(number, node) {
    const key = Object.values(node).join("\n");
    if (this.painted[number] === key) return;
    this.painted[number] = key;
    const group = this.groups[number];
    const classes = group.classList;
    if (!classes.contains(`s-${node.status}`)) {
      for (const name of [...classes]) if (name.startsWith("s-")) classes.remove(name);
      classes.add(`s-${node.status}`);
    }
    classes.toggle("critical", node.isCritical === true);
    for (let level = 0; level < 5; level += 1) classes.toggle(`heat-${level}`, node.heat === level);
    if (group.hasAttribute("display")) this.unwritten[number] = node;
    else this.writeWords(number, node);
  }

  /**
   * All that a box says.
   * @param {number} number
   * @param {NodeWords} node
   */
  writeWords(number, node) {
    this.unwritten[number] = null;
    const group = this.groups[number];
    const title = find(":scope > title", group);
    if (title) title.textContent = [this.head.drawn[number], node.standing, node.detail].filter(Boolean).join(" · ");
    if (this.isCompact) {
      this.write(group, ".name", `${SHARED.glyphs[node.status]} ${node.name}`);
      return;
    }
    this.writeName(number, node.name);
    this.writeStanding(number, node.standing);
    this.write(group, ".detail", node.detail);
    const kind = this.kinds[number];
    if (node.model && kind && !kind.includes(" · ")) this.write(group, ".kind", `${kind} · ${shortModel(node.model)}`);
    const bar = find(":scope > .progress", group);
    if (bar && node.progress) this.fill(bar, node.progress);
    this.label(number);
  }

  /**
   * What a node is called by readers and by voice: the words that are seen on it, then its path.
   * @param {number} number
   */
  label(number) {
    const group = this.groups[number];
    if (!group.hasAttribute("role")) return;
    const words = all(":scope > text", group).map((text) => text.textContent).filter(Boolean);
    group.setAttribute("aria-label", `${words.join(" ")} (${this.head.drawn[number]})`);
  }

  /**
   * @param {HTMLElement} bar
   * @param {[ended: number, failed: number]} shares
   */
  fill(bar, [ended, failed]) {
    const room = Number(bar.dataset.room);
    need(".ended", bar).setAttribute("width", (room * ended).toFixed(1));
    need(".failed", bar).setAttribute("width", (room * failed).toFixed(1));
  }

  /**
   * @param {SVGGElement} group
   * @param {string} line
   * @param {string} text
   */
  write(group, line, text) {
    const element = find(`:scope > ${line}`, group);
    if (element && element.textContent !== text) element.textContent = text;
  }

  /** @param {string | null} path */
  choose(path) {
    for (const other of all(".chosen", this.svg)) other.classList.remove("chosen");
    const number = path === null ? undefined : this.numbers.get(path);
    const group = number === undefined ? undefined : this.groups[number];
    group?.classList.add("chosen");
    return group ?? null;
  }

  /**
   * Keep in view the nodes whose paths match.
   * @param {(path: string) => boolean} matches
   */
  dim(matches) {
    this.matches = matches;
    this.groups.forEach((group, number) => group.classList.toggle("dim", !matches(this.head.drawn[number])));
  }
}

/**
 * Where a group is in the drawing.
 * @param {SVGGElement} group
 */
export function placeOfGroup(group) {
  const { e: x, f: y } = group.transform.baseVal[0].matrix;
  return { x, y };
}
