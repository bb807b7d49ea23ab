// The page of a run: what is chosen, which moment is shown, and what is still to come. It holds the other parts
// together and draws nothing itself.

import { readAddress, runPlace } from "./bundle.js";
import { all, closestTo, find, need, part, targetOf } from "./elements.js";
import { parseFeed } from "./exact_json.js";
import { foldTo } from "./fold.js";
import { Folding } from "./foldgraph.js";
import { Graph, placeOfGroup } from "./graph.js";
import { LayoutControl } from "./layout.js";
import { Live } from "./live.js";
import { Minimap } from "./minimap.js";
import { Motion } from "./motion.js";
import { nextTab, Panel, setBadge } from "./panel.js";
import { PanZoom } from "./panzoom.js";
import { callRows, eventRows, nodeOf, orderedRows, stateRows, timelineRows, wordsOf } from "./row_items.js";
import { Rows } from "./rows.js";
import { SHARED } from "./shared.js";
import { Sight } from "./sight.js";
import { COUNT, cutTo, dollars, secondsText } from "./texts.js";
import { partsOf, partsText, Times } from "./times.js";
import { Tree } from "./tree.js";
import { dressValues } from "./values.js";
import { Walk } from "./walk.js";

/** @import { Run } from "./fold.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Arrangement, Head, Item, Line, PlainTimes, RowSource, Token } from "./types.d.ts" */

/** @typedef {"timeline" | "calls" | "events" | "state"} Tab */
/** @typedef {"first" | "back" | "on" | "last"} Step */
/** @typedef {"in" | "out" | "fit"} Zoom */

const TIMES_AGE = 10_000; // Milliseconds after which the server is asked anew where the time went, while nothing happens.

/**
 * The edge at a point or a few pixels beside it: a line is thin to hit.
 * @param {number} x
 * @param {number} y
 * @returns {SVGElement | null}
 */
function edgeNear(x, y) {
  for (const off of [0, 3, -3, 6, -6]) {
    for (const [across, down] of [[off, 0], [0, off]]) {
      /** @type {SVGElement | null | undefined} */
      const edge = document.elementFromPoint(x + across, y + down)?.closest("[data-edge]");
      if (edge) return edge;
    }
  }
  return null;
}

/** @type {Record<Tab, string>} */
const NONE = { timeline: "No node has begun.", calls: "No model has answered.", events: "", state: "No node has written shared state." };

export class RunPage {
  /**
   * @param {Head} head
   * @param {Line[]} lines
   * @param {Palette} palette
   */
  constructor(head, lines, palette) {
    this.head = head;
    this.lines = lines;
    this.newest = foldTo(head, lines, lines.length); // the run as far as it is known
    this.shown = this.newest; // the run at the moment that is shown
    /** @type {number | null} the number of the event that is shown last; null: the newest */
    this.at = null;
    /** @type {string | null} */
    this.node = null;
    /** @type {Tab} */
    this.tab = "timeline";
    this.query = "";
    /** @type {EventSource | null} */
    this.source = null;
    this.paintTimer = 0;
    this.spent = 0; // milliseconds that the last painting took
    this.timesAt = 0; // when the server was asked last where the time went
    this.isTiming = false;
    this.areTimesStale = false;
    this.isStale = false; // the panel is older than the run
    this.isRenewing = false;
    /** @type {SVGSVGElement} */
    const svg = need("#graph");
    this.graph = new Graph(svg, head);
    this.folding = new Folding(this.graph, head, this.newest, (...move) => this.moveView(...move));
    this.panel = new Panel(need("#panel"), head);
    this.panel.onPane = (name) => { this.panel.showPane(name); this.writePlace(false); };
    /** @type {HTMLInputElement} */
    this.scrub = need("#scrub");
    /** @type {HTMLInputElement} */
    this.field = need("#find");
    dressValues(need(".run-head"));
    this.rows = new Rows(need("#rows"), (item) => this.chooseRow(item));
    const view = need("#view");
    const unseen = find(".unseen", svg);
    this.sight = unseen ? new Sight(this.graph, view, unseen) : null;
    /** @type {Minimap | null} */
    this.minimap = null;
    this.zoom = new PanZoom(view, svg, (place) => {
      view.classList.toggle("far", place.scale < (this.graph.isCompact ? 0.4 : 0.15));
      this.graph.rescale(place.scale);
      this.sight?.look(place);
      this.minimap?.look(place);
    });
    this.minimap = new Minimap(need(".graph-side"), this.graph, this.zoom);
    this.motion = this.sight ? new Motion(view, this.graph, this.minimap) : null;
    this.zoom.motion = this.motion;
    this.zoom.onDrift = (place) => this.minimap?.look(place);
    this.live = new Live(this);
    this.walk = new Walk(this);
    this.tree = new Tree(need("#tree"), this);
    this.layout = new LayoutControl(need(".run-main"));
    this.times = new Times(null);
    this.setTimes(head.times ? null : JSON.parse(need("#times").textContent ?? ""));
    setTimeout(() => this.renewTimes(), lines.length / 10); // A large run takes long: its first panel comes before.
    this.listen(view);
    this.follow();
    this.readPlace();
    if (this.node === null && this.at === null) this.arrive();
    this.paint();
    this.minimap.measure();
    palette.sources.push(() => this.nodeEntries());
  }

  // The nodes, for the palette.
  nodeEntries() {
    return [...this.newest.sites.values()].map((site) => ({
      kind: site.kind, name: site.path, act: () => { this.goTo(site.path); this.choose(this.pathOfSite(site.path)); },
    }));
  }

  /**
   * Everything has a new place, since a container was folded or unfolded.
   * @param {Arrangement} size
   * @param {number | null} fixed the node that stays where it was
   * @param {{ x: number, y: number } | null} before where that was
   * @param {boolean} isFitted
   */
  moveView(size, fixed, before, isFitted) {
    this.zoom.resize(size.width, size.height);
    this.sight?.measure();
    this.minimap?.measure();
    this.motion?.forget();
    this.paintSoon();
    if (isFitted) this.zoom.begin();
    if (fixed === null || before === null) return;
    const now = this.graph.placeOf(fixed);
    const { scale, x, y } = this.zoom;
    this.zoom.set(scale, x - (now.x - before.x) * scale, y - (now.y - before.y) * scale);
  }

  /**
   * To the node of a site, large enough to be read, whatever it is inside of.
   * @param {string} path
   */
  goTo(path) {
    const number = this.graph.numbers.get(path);
    if (number === undefined) return;
    this.folding.reveal(number);
    const { x, y } = this.graph.placeOf(number);
    this.zoom.show(x, y, 0.7);
  }

  /** @param {boolean} isShown */
  showTree(isShown) {
    need("#tree").hidden = !isShown;
    need("#view").hidden = isShown;
    need("[data-tree]").setAttribute("aria-pressed", String(isShown));
    need(".graph-side").classList.toggle("as-tree", isShown);
    if (isShown) this.tree.show();
  }

  toggleTree() {
    this.showTree(Boolean(need("#tree").hidden));
  }

  // Without a node in the address: what needs a person first, the question of a run that waits, or the failure.
  arrive() {
    const rows = [...this.newest.rows.values()];
    const questions = rows.filter((row) => row.status === "waiting" && row.hasQuestion && !row.hasAnswer);
    const failures = this.newest.status === "failed" ? rows.filter((row) => row.status === "failed") : [];
    // A container fails with what is inside it: the node where it began comes first.
    failures.sort((a, b) => ((a.ended ?? 0) - (b.ended ?? 0)) || (b.id.length - a.id.length));
    const [first] = [...questions, ...failures];
    if (!first) { dressValues(this.panel.box); return; }
    this.open(first.id);
  }

  // --- hearing

  /** @param {HTMLElement} view */
  listen(view) {
    view.addEventListener("pointerdown", () => this.live.leave());
    need("[data-tree]").addEventListener("click", () => this.toggleTree());
    need("#heat").addEventListener("change", (event) => {
      this.graph.heat = /** @type {Graph["heat"]} */ (/** @type {HTMLSelectElement} */ (event.target).value);
      this.paint();
    });
    find("[data-foldall]")?.addEventListener("click", () => this.folding.foldAll(this.folding.shut.size < this.folding.containers.length));
    view.addEventListener("click", (event) => {
      const group = closestTo(event, "[data-node]");
      const edge = group ? null : edgeNear(event.clientX, event.clientY);
      if (edge) this.openEdge(Number(edge.dataset.edge));
      if (group) this.choose(this.pathOfSite(this.head.drawn[Number(group.dataset.node)]));
    });
    for (const button of all("[data-zoom]")) {
      button.addEventListener("click", () => this.zoomBy(/** @type {Zoom} */ (button.dataset.zoom)));
    }
    for (const button of all("[data-step]")) {
      button.addEventListener("click", () => this.step(/** @type {Step} */ (button.dataset.step)));
    }
    for (const button of this.tabs) {
      button.addEventListener("click", () => this.openTab(button));
      button.addEventListener("keydown", (event) => {
        const next = nextTab(this.tabs, event);
        if (next) this.openTab(next);
      });
    }
    this.scrub.addEventListener("input", () => this.moveTo(Number(this.scrub.value)));
    this.field.addEventListener("input", () => this.search(this.field.value));
    addEventListener("hashchange", () => {
      this.readPlace();
      if (this.node === null && this.at === null) this.arrive();
      this.paint();
    });
    document.addEventListener("keydown", (event) => this.press(event));
    addEventListener("pagehide", () => this.source?.close());
    // The browser may keep a page that is left, and show it again as it was: it goes on from there.
    addEventListener("pageshow", (event) => event.persisted && this.follow());
    setInterval(() => this.isGoing() && this.tick(), 1000);
  }

  get tabs() {
    return all("[data-tab]");
  }

  /**
   * An edge is told of where it begins: its "Why" says of each way on whether it was taken.
   * @param {number} number
   */
  openEdge(number) {
    const edge = this.head.edges[number];
    if (!edge) return;
    this.panel.isAtWays = true;
    const path = this.pathOfSite(this.head.drawn[edge[0]]);
    if (path === this.node) this.panel.openWays();
    else this.choose(path);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { field } = this;
    if (event.target === field && event.key === "Escape") { field.value = ""; this.search(""); field.blur(); return; }
    if (event.target === field && event.key === "Enter") {
      this.next(event.shiftKey ? -1 : 1);
      if (this.node !== null) this.goTo(this.siteOf(this.node));
      return;
    }
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(targetOf(event).tagName) && event.target !== this.scrub) return;
    /** @type {Record<string, (() => void) | undefined>} */
    const acts = {
      j: () => this.next(1), k: () => this.next(-1), "/": () => field.focus(), "[": () => this.step("back"),
      "]": () => this.step("on"), t: () => this.toggleTree(),
      f: () => this.live.follow(!this.live.isFollowing), 0: () => this.zoom.fit(), "+": () => this.zoomBy("in"), "-": () => this.zoomBy("out"),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** @param {Zoom} how */
  zoomBy(how) {
    if (how === "fit") this.zoom.fit();
    else this.zoom.zoom(how === "in" ? 1.25 : 0.8);
  }

  // --- the feed

  follow() {
    if (!this.head.events || ["succeeded", "failed", "cancelled", "partial"].includes(this.newest.status)) return;
    const source = new EventSource(this.head.events);
    source.onmessage = (event) => this.hear(parseFeed(event.data));
    source.onerror = () => this.live.lose(source.readyState === EventSource.CLOSED);
    source.onopen = () => this.live.gone && this.live.find();
    this.source = source;
  }

  /** @param {Line | Token} line */
  hear(line) {
    if (line.kind === "token") {
      if (this.live.hearToken(line)) this.panel.hear(line);
      this.paintSoon();
      return;
    }
    if (line.seq !== this.lines.length) return; // heard already
    this.lines.push(line);
    this.newest.apply(line);
    this.live.hear(line);
    const node = nodeOf(line);
    if (node !== undefined && ["start", "finish", "fail", "cancel"].includes(line.kind)) this.panel.texts.delete(node);
    if (line.kind === "end" && !["waiting", "paused"].includes(line.status)) this.source?.close();
    if (line.kind === "end") this.showOutcome();
    this.areTimesStale = true;
    this.renewTimes();
    if (node !== undefined && node === this.node) this.isStale = true;
    this.paintSoon();
  }

  // What the run gave, from the same page again: only the server words it.
  async showOutcome() {
    try {
      const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
      const page = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
      const folds = page && find(".folds", page);
      const panel = page && find("#panel", page);
      if (panel && this.node === null) {
        this.panel.box.replaceChildren(...panel.childNodes);
        dressValues(this.panel.box);
      }
      if (folds) find(".folds")?.replaceChildren(...folds.childNodes);
      dressValues(need(".run-head"));
    } catch {
      // The server is away; the page as it is says that the run has ended.
    }
  }

  // --- the place: node and moment, in the address

  readPlace() {
    const place = readAddress();
    const at = place.get("at");
    this.setMoment(at === null || Number.isNaN(Number(at)) ? null : Number(at));
    const node = place.get("node");
    if (place.has("tab") || node !== null) this.panel.showPane(place.get("tab") ?? (this.node === null ? "all" : this.panel.pane));
    this.panel.call = place.get("call");
    if (node !== this.node) this.open(node);
    else this.panel.showCall();
  }

  /** @param {boolean} isNew */
  writePlace(isNew) {
    const place = runPlace();
    if (this.node !== null) place.push(`node=${encodeURIComponent(this.node)}`);
    if (this.at !== null) place.push(`at=${this.at}`);
    if (this.panel.pane !== "all") place.push(`tab=${this.panel.pane}`);
    const address = place.length ? `#${place.join("&")}` : location.pathname + location.search;
    if (isNew) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  /**
   * A node that ran once stands for itself; one that ran many times opens the list of its times.
   * @param {string} site
   */
  pathOfSite(site) {
    const rows = this.newest.times.get(site) ?? [];
    return rows.length === 1 ? rows[0].id : site;
  }

  /** @param {string} path */
  siteOf(path) {
    return this.newest.rows.get(path)?.spot.site ?? path;
  }

  /** @param {string} path */
  choose(path) {
    this.live.leave();
    if (path !== this.node) {
      this.open(path);
      this.writePlace(true);
    }
    // Where the parts stand one below the other, the panel is brought into sight.
    if (innerWidth <= 800) this.panel.box.scrollIntoView({ block: "start" });
  }

  /** @param {string | null} path */
  open(path) {
    this.node = path;
    document.body.classList.toggle("has-panel", path !== null);
    const group = this.showGroup(path === null ? null : this.siteOf(path));
    if (group) {
      const { x, y } = placeOfGroup(group);
      this.zoom.show(x, y);
    }
    this.rows.choose(path);
    this.loadPanel();
  }

  /**
   * The box of a site, or of the container that is closed round it.
   * @param {string | null} path
   */
  showGroup(path) {
    const number = path === null ? undefined : this.graph.numbers.get(path);
    if (number !== undefined) this.folding.reveal(number);
    let group = this.graph.choose(path);
    for (let at = path; !group && at !== null; ) {
      at = this.newest.sites.get(at)?.parent ?? null;
      group = at === null ? null : this.graph.choose(at);
    }
    return group;
  }

  async loadPanel() {
    await this.panel.load(this.node);
    this.panel.show(this.shown, this.at);
    this.showParts(this.untilWhen(null));
  }

  /** @param {Item} item */
  chooseRow(item) {
    if (item.line) {
      const node = nodeOf(item.line) ?? (item.line.kind === "end" ? item.line.node : undefined);
      this.moveTo(item.line.seq);
      if (node !== undefined) this.choose(node);
      this.rows.choose(item.key, false);
    } else if (item.row) {
      this.choose(item.row.id);
    }
  }

  /**
   * The next node, or the one before, in the order of the timeline.
   * @param {1 | -1} by
   */
  next(by) {
    const items = this.filterItems(orderedRows(this.newest));
    if (!items.length) return;
    const number = items.findIndex((item) => item.key === this.node);
    const to = number < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, number + by));
    this.choose(items[to].key);
    this.rows.choose(items[to].key);
  }

  /**
   * @template {Item} T
   * @param {T[]} items
   */
  filterItems(items) {
    return this.query ? items.filter((item) => (item.row ? item.row.id : item.key).toLowerCase().includes(this.query)) : items;
  }

  /** @param {string} text */
  search(text) {
    this.query = text.trim().toLowerCase();
    const matches = (/** @type {string} */ path) => !this.query || path.toLowerCase().includes(this.query);
    this.graph.dim(matches);
    const hits = this.query ? this.head.drawn.filter(matches) : [];
    if (hits.length) this.goTo(hits[0]);
    need("#hits").textContent = this.query ? `${hits.length} of ${this.head.drawn.length}` : "";
    this.paintRows();
  }

  // --- the moment

  /** @param {number} at */
  moveTo(at) {
    this.setMoment(at >= this.lines.length - 1 ? null : at);
    this.writePlace(false);
    this.paint();
  }

  /** @param {Step} how */
  step(how) {
    const last = this.lines.length - 1;
    const at = this.at ?? last;
    this.moveTo({ first: 0, back: at - 1, on: at + 1, last }[how] ?? last);
  }

  /** @param {number | null} at */
  setMoment(at) {
    this.at = at === null ? null : Math.max(0, Math.min(at, this.lines.length - 1));
    this.shown = this.at === null ? this.newest : foldTo(this.head, this.lines, this.at + 1);
    this.panel.show(this.shown, this.at);
  }

  isGoing() {
    return this.at === null && ["running", "waiting"].includes(this.newest.status) && Boolean(this.head.events) && !this.live.gone;
  }

  // Time goes by, though nothing happens.
  tick() {
    this.paint();
    if (!document.hidden && performance.now() - this.timesAt > TIMES_AGE) this.renewTimes();
  }

  // --- painting

  paintSoon() {
    // A large graph takes longer to paint than events take to come: half of the time is left to the reader.
    this.paintTimer ||= setTimeout(() => { this.paintTimer = 0; this.paint(); }, Math.max(50, this.spent));
  }

  paint() {
    const begin = performance.now();
    const run = this.shown;
    const now = this.isGoing() && !document.hidden ? Math.max(Date.now() / 1000, run.last ?? 0) : null;
    this.graph.paint(run, now ?? run.last);
    this.paintHead(run, now);
    this.live.paint(run, now);
    this.tree.paint();
    this.minimap?.paintSoon();
    this.paintMoment();
    this.paintRows(now);
    this.spent = performance.now() - begin;
    if (this.isStale) this.renewPanel();
  }

  // --- where the time went

  /** @param {PlainTimes | null} plain */
  setTimes(plain) {
    this.times = new Times(plain);
    const parts = SHARED.parts.flatMap((name) => {
      const seconds = this.times.parts[name] ?? 0;
      return seconds >= 0.001 ? [{ name, seconds }] : [];
    });
    const items = (parts.length > 1 ? parts : []).map(({ name, seconds }) => {
      const item = part("part-of", `${name} ${secondsText(seconds)}`);
      item.prepend(part(`swatch p-${name}`, ""));
      return item;
    });
    need("#parts").replaceChildren(...items);
  }

  /**
   * Until when bars go on: of a run that waits for a person, the moment that the server told; of the past, its own.
   * @param {number | null} now
   */
  untilWhen(now) {
    return now ?? (this.at === null && this.times.isKnown ? Math.max(this.times.end, this.shown.last ?? 0) : null);
  }

  /**
   * Of the chosen node, below what else its panel says of it.
   * @param {number | null} now
   */
  showParts(now) {
    const row = this.node === null ? null : this.shown.rows.get(this.node);
    const facts = find(".node-panel > .facts", this.panel.box);
    if (!row || !facts) return;
    const words = partsText(partsOf(this.times.bars(row, now ?? this.shown.last ?? 0)));
    const old = find(".time-parts", facts);
    if ((old?.lastChild?.textContent ?? "") === words) return;
    old?.remove();
    if (!words) return;
    const item = document.createElement("div");
    item.className = "time-parts";
    const [name, text] = [document.createElement("dt"), document.createElement("dd")];
    name.textContent = "Time";
    text.textContent = words;
    item.append(name, text);
    facts.append(item);
  }

  // Only the server divides it; it is asked again after events, the more seldom the longer that takes.
  async renewTimes() {
    if (!this.head.times || this.isTiming) return;
    this.isTiming = true;
    this.areTimesStale = false;
    const begin = performance.now();
    this.timesAt = begin;
    try {
      const answer = await fetch(this.head.times);
      if (answer.ok) this.setTimes(await answer.json());
      this.paintRows();
    } catch {
      // The server is away: bars without their parts stay.
    }
    setTimeout(() => {
      this.isTiming = false;
      if (this.areTimesStale) this.renewTimes();
    }, Math.max(1000, 10 * (performance.now() - begin)));
  }

  // At most twice a second, as the server makes it anew each time.
  renewPanel() {
    if (this.isRenewing) return;
    this.isRenewing = true;
    this.isStale = false;
    this.loadPanel();
    setTimeout(() => {
      this.isRenewing = false;
      if (this.isStale) this.renewPanel();
    }, 500);
  }

  /**
   * @param {Run} run
   * @param {number | null} now
   */
  paintHead(run, now) {
    const end = (run.status === "waiting" ? now : null) ?? run.ended ?? now ?? run.last;
    const { calls, tokens, cost, answered, priced, counted } = run.usage;
    const texts = {
      took: run.begun === null || end === null ? "" : secondsText(end - run.begun), "run-calls": COUNT.format(calls),
      "run-tokens": answered && !counted ? "unknown" : COUNT.format(tokens),
      "run-cost": answered && !priced ? "unknown" : dollars(cost) + (priced < answered ? " +" : ""),
    };
    for (const [name, text] of Object.entries(texts)) {
      const element = document.getElementById(name);
      if (element && element.textContent !== text) element.textContent = text;
    }
    setBadge(need("#status .badge"), run.status);
    const error = need("#error");
    if (error.textContent !== (run.error ?? "")) error.replaceChildren(...(run.error ? [part("note bad", run.error)] : []));
  }

  paintMoment() {
    const last = this.lines.length - 1;
    const at = this.at ?? last;
    this.scrub.max = String(last);
    this.scrub.value = String(at);
    const line = this.lines[at];
    const node = line && "node" in line ? line.node : undefined;
    const words = line ? `${at} of ${last} · ${line.kind}${node ? ` ${cutTo(node, 40)}` : ""}` : "";
    need("#moment").textContent = words;
    this.scrub.setAttribute("aria-valuetext", words);
    document.body.classList.toggle("past", this.at !== null);
  }

  /** @param {HTMLElement} chosen */
  openTab(chosen) {
    this.tab = /** @type {Tab} */ (chosen.dataset.tab);
    for (const button of this.tabs) {
      button.setAttribute("aria-selected", String(button === chosen));
      button.tabIndex = button === chosen ? 0 : -1;
    }
    this.rows.box.setAttribute("aria-labelledby", `tab-${this.tab}`);
    this.rows.box.scrollTop = 0;
    this.rows.chosen = null;
    this.paintRows();
    if (this.tab !== "events") this.rows.choose(this.node);
  }

  /** @param {number | null} [now] */
  paintRows(now = null) {
    this.rows.box.className = this.tab;
    const until = this.untilWhen(now);
    this.showParts(until);
    if (this.tab === "timeline") {
      const [items, make, head] = timelineRows(this.shown, until, this.times);
      this.showRows(items, [this.filterItems(items), make, head]);
    } else if (this.tab === "calls") {
      const [items, make, head] = callRows(this.shown, until, this.times);
      this.showRows(items, [this.filterItems(items), make, head]);
    } else if (this.tab === "events") {
      this.paintEvents();
    } else {
      const count = this.at === null ? this.lines.length : this.at + 1;
      const source = stateRows(this.shown, count > 1 ? foldTo(this.head, this.lines, count - 1) : null);
      this.showRows(source[0], source);
    }
  }

  paintEvents() {
    const [items, make] = eventRows(this.lines);
    for (const item of items) item.class = this.at !== null && item.line.seq > this.at ? "later" : "";
    const isMatch = (/** @type {Line} */ line) => `${"node" in line ? line.node ?? "" : ""} ${wordsOf(line)}`.toLowerCase().includes(this.query);
    this.showRows(items, [items.filter((item) => !this.query || isMatch(item.line)), make]);
    if (this.at !== null && this.rows.chosen !== `#${this.at}`) this.rows.choose(`#${this.at}`);
  }

  /**
   * @template {Item} T
   * @param {T[]} items all of them
   * @param {RowSource<T>} source those that fit the search
   */
  showRows(items, source) {
    this.rows.show(source, items.length ? "Nothing fits the search." : NONE[this.tab]);
  }
}

/** @param {Palette} palette */
export function startRunPage(palette) {
  if (!find("#head")) return;
  const read = (/** @type {string} */ selector) => parseFeed(need(selector).textContent ?? "");
  new RunPage(read("#head"), read("#feed"), palette);
}
