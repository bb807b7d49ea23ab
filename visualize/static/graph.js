// Repaints the graph that the server drew: classes for statuses, and the lines that change.

import { criticalPath, edgeOf } from "./edges.js";
import { saidOf } from "./node_words.js";
import { SHARED } from "./shared.js";
import { cutName, cutTo, shortModel } from "./texts.js";

const GROWN = [1, 1.2, 1.45, 1.75, 2.1, 2.5, 3, 3.6, 4.3, 5.2, 5.9]; // How much larger names are written, as the drawing gets smaller.
const TWO_LINES = 1.75; // Up to here a box has room for its status below its name.

export class Graph {
  constructor(svg, head) {
    this.svg = svg;
    this.head = head;
    this.isCompact = svg.classList.contains("compact");
    this.groups = [];
    for (const group of svg.querySelectorAll("[data-node]")) this.groups[Number(group.dataset.node)] = group;
    this.edges = [...svg.querySelectorAll("[data-edge]")];
    this.painted = [];
    this.numbers = new Map(head.drawn.map((path, number) => [path, number]));
    this.heat = ""; // what boxes are coloured by: their status, or "time" or "cost"
    this.grown = 1;
    this.written = [];
    this.unwritten = []; // what is said of nodes out of sight, until they come into sight
    this.names = [];
    this.bases = [];
    this.standings = []; // statuses and times as words
    this.kinds = [];
    this.matches = null; // which paths are sought; null: nothing is
    this.groups.forEach((group, number) => this.add(number, group));
  }

  // A box is there; those of a large graph come as their containers are unfolded.
  add(number, group) {
    this.groups[number] = group;
    this.names[number] = group.querySelector(":scope > .name").textContent;
    this.kinds[number] = group.querySelector(":scope > .kind")?.textContent ?? "";
    if (this.matches) group.classList.toggle("dim", !this.matches(this.head.drawn[number]));
  }

  placeOf(number) {
    const { e: x, f: y } = this.groups[number].transform.baseVal[0].matrix;
    return { x, y };
  }

  // Of a box as it is drawn now.
  sizeOf(number) {
    const group = this.groups[number];
    if (!group.classList.contains("frame")) return this.head.sizes?.[number] ?? [120, 26];
    const { width, height } = group.querySelector("path").getBBox();
    return [width, height];
  }

  // Names are written larger where the drawing is small, so that they can be read, and statuses as long as there is
  // room; other words are left out there.
  scaled(scale) {
    const grown = scale >= 0.9 ? 1 : GROWN.find((each) => each >= 0.93 / scale) ?? GROWN.at(-1);
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

  // As large as names are now; once, as long as that does not change.
  placeName(number) {
    const said = this.unwritten[number];
    if (said) this.writeWords(number, said);
    if (this.isCompact || this.written[number] === this.grown) return;
    this.written[number] = this.grown;
    this.writeName(number, this.names[number]);
    this.writeStanding(number);
    this.label(number);
  }

  // Where a name begins while it is as large as the other words; to be told where that has changed.
  based(number, x, y) {
    this.bases[number] = { x, y };
  }

  // How wide a letter of a text is, on the mean and on the safe side.
  letterOf(text, font = "bold 13px", least = 7) {
    if (!this.pen) {
      this.pen = document.createElement("canvas").getContext("2d");
      this.family = getComputedStyle(this.svg.querySelector(".name") ?? this.svg).fontFamily;
      this.letters = new Map();
    }
    const key = `${font} ${text}`;
    if (!this.letters.has(key)) {
      this.pen.font = `${font} ${this.family}`;
      this.letters.set(key, Math.max(least, (this.pen.measureText(text).width / (text.length || 1)) * 1.08));
    }
    return this.letters.get(key);
  }

  writeName(number, name) {
    this.names[number] = name;
    const { groups, grown } = this;
    const element = groups[number].querySelector(":scope > .name");
    this.bases[number] ??= { x: Number(element.getAttribute("x")), y: Number(element.getAttribute("y")) };
    const { x, y } = this.bases[number];
    const by = grown > 4.4 ? 0 : Math.max(1, 0.72 * grown); // The sign grows with the name, as long as there is room.
    const left = grown > 1 ? x - 31 + 22 * by + (by ? 9 : 0) : x;
    const middle = groups[number].classList.contains("frame") ? y - 14 + 6.5 * grown : this.hasTwoLines(number) ? -8 * grown : 0;
    element.setAttribute("x", left);
    element.setAttribute("y", grown > 1 ? middle + 4.5 * grown : y);
    groups[number].querySelector(":scope > .sign")?.setAttribute("transform", grown > 1
      ? `translate(${x - 31 + 11 * by} ${middle}) scale(${by || 1})` : `translate(${x - 20} ${y + 3})`);
    const room = (this.head.sizes?.[number]?.[0] ?? 276) - 20 - (left - x + 31);
    const sign = grown > 1 && groups[number].classList.contains("s-failed") ? "✗ " : "";
    const text = grown > 1 ? cutName(sign + name, Math.max(2, Math.floor(room / (this.letterOf(name) * grown)))) : name;
    if (element.textContent !== text) element.textContent = text;
  }

  hasTwoLines(number) {
    return this.grown > 1 && this.grown <= TWO_LINES && Boolean(this.standings[number]) && !this.groups[number].classList.contains("frame");
  }

  // A node's status and time, below its name where names are somewhat larger than usual.
  writeStanding(number, text = this.standings[number]) {
    const isNew = Boolean(text) !== Boolean(this.standings[number]);
    this.standings[number] = text;
    if (isNew) this.writeName(number, this.names[number]);
    const element = this.groups[number].querySelector(":scope > .standing");
    if (!element) return;
    const { x, y } = this.bases[number];
    const isSecond = this.hasTwoLines(number);
    element.setAttribute("x", isSecond ? x - 31 : x);
    element.setAttribute("y", isSecond ? 13 * this.grown : y + 2 * SHARED.lineHeight);
    const room = (this.head.sizes?.[number]?.[0] ?? 276) - 20;
    const status = isSecond ? text.split(" · ", 1)[0] : ""; // The time behind it changes: it is not measured.
    const cut = isSecond ? cutTo(text, Math.max(2, Math.floor(room / (this.letterOf(status, "12px", 5) * this.grown)))) : text;
    if (cut !== undefined && element.textContent !== cut) element.textContent = cut;
  }

  paint(run, now) {
    const critical = criticalPath(run);
    const statuses = new Map();
    const all = this.head.drawn.map((path, number) => {
      const site = run.sites.get(path);
      if (!this.groups[number] && !site.body) return null;
      const said = saidOf(run, site, now, site.parent === null ? null : statuses.get(site.parent));
      statuses.set(path, said.status);
      said.isCritical = (run.times.get(path) || []).some((row) => critical.rows.has(row.id));
      return said;
    });
    this.paintHeat(all);
    all.forEach((said, number) => this.groups[number] && this.paintNode(number, said));
    this.statuses = statuses;
    for (const path of this.edges) {
      const [source, target, labels] = this.head.edges[Number(path.dataset.edge)];
      const { state, isCritical } = edgeOf(run, this.head.drawn[source], this.head.drawn[target], labels, critical);
      const moves = state === "taken" && statuses.get(this.head.drawn[target]) === "running" ? " moving" : "";
      const name = `edge ${state}${isCritical ? " critical" : ""}${moves}`;
      if (path.getAttribute("class") !== name) path.setAttribute("class", name);
    }
  }

  // How hot each node is, by its share of the most; containers that are open are no measure.
  paintHeat(all) {
    const value = (said, number) => (!this.groups[number] || this.groups[number].classList.contains("frame") ? null : said[this.heat]);
    const most = this.heat ? Math.max(0, ...all.map((said, number) => value(said, number) ?? 0)) : 0;
    all.forEach((said, number) => {
      if (!said) return;
      const found = most ? value(said, number) : null;
      said.heat = found ? Math.min(4, Math.floor((5 * found) / most)) : null;
    });
  }

  paintNode(number, said) {
    const key = `${Object.values(said).join("\n")}`;
    if (this.painted[number] === key) return;
    this.painted[number] = key;
    const group = this.groups[number];
    const classes = group.classList;
    if (!classes.contains(`s-${said.status}`)) {
      for (const each of [...classes]) if (each.startsWith("s-")) classes.remove(each);
      classes.add(`s-${said.status}`);
    }
    if (classes.contains("critical") !== said.isCritical) classes.toggle("critical");
    for (let level = 0; level < 5; level += 1) classes.toggle(`heat-${level}`, said.heat === level);
    if (group.hasAttribute("display")) this.unwritten[number] = said;
    else this.writeWords(number, said);
  }

  // All that a box says.
  writeWords(number, said) {
    this.unwritten[number] = null;
    const group = this.groups[number];
    const title = group.querySelector(":scope > title");
    if (title) title.textContent = [this.head.drawn[number], said.standing, said.detail].filter(Boolean).join(" · ");
    if (this.isCompact) {
      this.write(group, ".name", `${SHARED.glyphs[said.status]} ${said.name}`);
      return;
    }
    this.writeName(number, said.name);
    this.writeStanding(number, said.standing);
    this.write(group, ".detail", said.detail);
    const kind = this.kinds[number];
    if (said.model && kind && !kind.includes(" · ")) this.write(group, ".kind", `${kind} · ${shortModel(said.model)}`);
    if (said.filled) this.fill(group.querySelector(":scope > .progress"), said.filled);
    this.label(number);
  }

  // What a node is called by readers and by voice: the words that are seen on it, then its path.
  label(number) {
    const group = this.groups[number];
    if (!group.hasAttribute("role")) return;
    const words = [...group.querySelectorAll(":scope > text")].map((text) => text.textContent).filter(Boolean);
    group.setAttribute("aria-label", `${words.join(" ")} (${this.head.drawn[number]})`);
  }

  fill(bar, [ended, failed]) {
    if (!bar) return;
    bar.querySelector(".ended").setAttribute("width", (bar.dataset.room * ended).toFixed(1));
    bar.querySelector(".failed").setAttribute("width", (bar.dataset.room * failed).toFixed(1));
  }

  write(group, line, text) {
    const element = group.querySelector(`:scope > ${line}`);
    if (element && element.textContent !== text) element.textContent = text;
  }

  choose(path) {
    for (const each of this.svg.querySelectorAll(".chosen")) each.classList.remove("chosen");
    const group = this.groups[this.numbers.get(path)];
    if (group) group.classList.add("chosen");
    return group || null;
  }

  // Keep in view what has the text in its path; everything where it is empty.
  dim(matches) {
    this.matches = matches;
    this.groups.forEach((group, number) => group.classList.toggle("dim", !matches(this.head.drawn[number])));
  }
}
