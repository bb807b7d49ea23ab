// The page of a run: what is chosen, which moment is shown, and what is still to come. It holds the other parts
// together and draws nothing itself.

import { placeOfRun } from "./bundle.js";
import { part } from "./elements.js";
import { parseTold } from "./exact_json.js";
import { foldTo } from "./fold.js";
import { Folding } from "./foldgraph.js";
import { Graph } from "./graph.js";
import { Layout } from "./layout.js";
import { Live } from "./live.js";
import { Minimap } from "./minimap.js";
import { Motion } from "./motion.js";
import { Panel, setBadge } from "./panel.js";
import { PanZoom } from "./panzoom.js";
import { callRows, eventRows, orderedRows, stateRows, timelineRows, wordsOf } from "./row_items.js";
import { Rows } from "./rows.js";
import { Sight } from "./sight.js";
import { COUNT, cutTo, dollars, secondsText } from "./texts.js";
import { PARTS, partsOf, partsText, Times } from "./times.js";
import { Tree } from "./tree.js";
import { dressValues } from "./values.js";
import { Walk } from "./walk.js";

const TIMED = 10_000; // Milliseconds after which the server is asked anew where the time went, while nothing happens.

// The edge at a point or a few pixels beside it: a line is thin to hit.
function edgeNear(x, y) {
  for (const off of [0, 3, -3, 6, -6]) {
    for (const [across, down] of [[off, 0], [0, off]]) {
      const edge = document.elementFromPoint(x + across, y + down)?.closest("[data-edge]");
      if (edge) return edge;
    }
  }
  return null;
}

const NONE = { timeline: "No node has begun.", calls: "No model has answered.", events: "", state: "No node has written shared state." };

class RunPage {
  constructor(head, lines, palette) {
    this.head = head;
    this.lines = lines;
    this.newest = foldTo(head, lines, lines.length); // the run as far as it is known
    this.shown = this.newest; // the run at the moment that is shown
    this.at = null; // the number of the event that is shown last; null: the newest
    this.node = null;
    this.tab = "timeline";
    this.find = "";
    this.graph = new Graph(document.getElementById("graph"), head);
    this.folding = new Folding(this.graph, head, this.newest, (...given) => this.replaced(...given));
    this.panel = new Panel(document.getElementById("panel"), head);
    this.panel.onPane = (name) => { this.panel.showPane(name); this.writePlace(false); };
    this.scrub = document.getElementById("scrub");
    dressValues(document.querySelector(".run-head"));
    this.rows = new Rows(document.getElementById("rows"), (item) => this.chooseRow(item));
    const view = document.getElementById("view");
    this.sight = this.graph.svg.querySelector(".unseen") ? new Sight(this.graph, view) : null;
    this.zoom = new PanZoom(view, this.graph.svg, (place) => {
      view.classList.toggle("far", place.scale < (this.graph.isCompact ? 0.4 : 0.15));
      this.graph.scaled(place.scale);
      this.sight?.look(place);
      this.minimap?.look(place);
    });
    this.minimap = new Minimap(document.querySelector(".graph-side"), this.graph, this.zoom);
    if (this.sight) this.zoom.motion = new Motion(view, this.graph, this.minimap);
    this.zoom.onDrift = (place) => this.minimap.look(place);
    this.live = new Live(this);
    this.walk = new Walk(this);
    this.tree = new Tree(document.getElementById("tree"), this);
    this.layout = new Layout(document.querySelector(".run-main"));
    this.legend = document.getElementById("parts");
    this.setTimes(head.times ? null : JSON.parse(document.getElementById("times").textContent));
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

  // Everything has a new place, since a container was folded or unfolded; `kept` stays where it was.
  replaced(found, kept, before, isFitted) {
    this.zoom.resize(found.width, found.height);
    this.sight?.measure();
    this.minimap.measure();
    this.zoom.motion?.forget();
    this.paintSoon();
    if (isFitted) this.zoom.begin();
    if (kept === null) return;
    const now = this.graph.placeOf(kept);
    const { scale, x, y } = this.zoom;
    this.zoom.set(scale, x - (now.x - before.x) * scale, y - (now.y - before.y) * scale);
  }

  // To the node of a site, large enough to be read, whatever it is inside of.
  goTo(path) {
    const number = this.graph.numbers.get(path);
    if (number === undefined) return;
    this.folding.reveal(number);
    const { x, y } = this.graph.placeOf(number);
    this.zoom.show(x, y, 0.7);
  }

  showTree(isShown) {
    for (const [id, isHidden] of [["tree", !isShown], ["view", isShown]]) document.getElementById(id).hidden = isHidden;
    document.querySelector("[data-tree]").setAttribute("aria-pressed", String(isShown));
    document.querySelector(".graph-side").classList.toggle("as-tree", isShown);
    if (isShown) this.tree.show();
  }

  // Without a node in the address: what needs a person first, the question of a run that waits, or the failure.
  arrive() {
    const rows = [...this.newest.rows.values()];
    const asks = rows.filter((row) => row.status === "waiting" && row.asked && !row.answered);
    const failed = this.newest.status === "failed" ? rows.filter((row) => row.status === "failed") : [];
    // A container fails with what is inside it: the node where it began comes first.
    const [first] = [...asks, ...failed.sort((a, b) => (a.ended - b.ended) || (b.id.length - a.id.length))];
    if (!first) { dressValues(this.panel.box); return; }
    this.open(first.id);
  }

  // --- hearing

  listen(view) {
    view.addEventListener("pointerdown", () => this.live.leave());
    document.querySelector("[data-tree]").addEventListener("click", () => this.showTree(document.getElementById("tree").hidden));
    document.getElementById("heat").addEventListener("change", (event) => { this.graph.heat = event.target.value; this.paint(); });
    document.querySelector("[data-foldall]")?.addEventListener("click", () => this.folding.foldAll(this.folding.shut.size < this.folding.containers.length));
    view.addEventListener("click", (event) => {
      const group = event.target.closest("[data-node]");
      const edge = group ? null : edgeNear(event.clientX, event.clientY);
      if (edge) this.openEdge(Number(edge.dataset.edge));
      if (group) this.choose(this.pathOfSite(this.head.drawn[Number(group.dataset.node)]));
    });
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.zoomBy(button.dataset.zoom));
    }
    for (const button of document.querySelectorAll("[data-step]")) {
      button.addEventListener("click", () => this.step(button.dataset.step));
    }
    for (const button of document.querySelectorAll("[data-tab]")) {
      button.addEventListener("click", () => this.openTab(button.dataset.tab));
      button.addEventListener("keydown", (event) => this.stepTabs(event));
    }
    this.scrub.addEventListener("input", () => this.moveTo(Number(this.scrub.value)));
    const find = document.getElementById("find");
    find.addEventListener("input", () => this.search(find.value));
    window.addEventListener("hashchange", () => {
      this.readPlace();
      if (this.node === null && this.at === null) this.arrive();
      this.paint();
    });
    document.addEventListener("keydown", (event) => this.press(event, find));
    window.addEventListener("pagehide", () => this.source?.close());
    // The browser may keep a page that is left, and show it again as it was: it goes on from there.
    window.addEventListener("pageshow", (event) => event.persisted && this.follow());
    setInterval(() => this.isGoing() && this.tick(), 1000);
  }

  // An edge is told of where it begins: its "Why" says of each way on whether it was taken.
  openEdge(number) {
    const ends = this.head.edges[number];
    if (!ends) return;
    this.panel.isAtWays = true;
    const path = this.pathOfSite(this.head.drawn[ends[0]]);
    if (path === this.node) this.panel.openWays();
    else this.choose(path);
  }

  stepTabs(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tabs = [...document.querySelectorAll("[data-tab]")];
    const next = tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length];
    next.focus();
    this.openTab(next.dataset.tab);
  }

  press(event, find) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === find && event.key === "Escape") { find.value = ""; this.search(""); find.blur(); return; }
    if (event.target === find && event.key === "Enter") {
      this.next(event.shiftKey ? -1 : 1);
      if (this.node !== null) this.goTo(this.siteOf(this.node));
      return;
    }
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target !== this.scrub) return;
    const act = {
      j: () => this.next(1), k: () => this.next(-1), "/": () => find.focus(), "[": () => this.step("back"),
      "]": () => this.step("on"), t: () => this.showTree(document.getElementById("tree").hidden),
      f: () => this.live.follow(!this.live.isFollowing), 0: () => this.zoom.fit(), "+": () => this.zoomBy("in"), "-": () => this.zoomBy("out"),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  zoomBy(how) {
    if (how === "fit") this.zoom.fit();
    else this.zoom.zoom(how === "in" ? 1.25 : 0.8);
  }

  // --- the feed

  follow() {
    if (!this.head.events || ["succeeded", "failed", "cancelled", "partial"].includes(this.newest.status)) return;
    const source = new EventSource(this.head.events);
    source.onmessage = (event) => this.hear(parseTold(event.data), source);
    source.onerror = () => this.live.lose(source.readyState === EventSource.CLOSED);
    source.onopen = () => this.live.gone && this.live.find();
    this.source = source;
  }

  hear(line, source) {
    if (line.kind === "token") {
      if (this.live.hear(line)) this.panel.hear(line);
      this.paintSoon();
      return;
    }
    if (line.seq !== this.lines.length) return; // heard already
    this.lines.push(line);
    this.newest.apply(line);
    this.live.hear(line);
    if (["start", "finish", "fail", "cancel"].includes(line.kind)) this.panel.writing.delete(line.node);
    if (line.kind === "end" && !["waiting", "paused"].includes(line.status)) source.close();
    if (line.kind === "end") this.showOutcome();
    this.areTimesStale = true;
    this.renewTimes();
    if (line.node !== undefined && line.node === this.node && line.kind !== "end") this.isStale = true;
    this.paintSoon();
  }

  // What the run gave, from the same page again: only the server words it.
  async showOutcome() {
    try {
      const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
      const page = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
      const fresh = page?.querySelector(".folds");
      const given = page?.querySelector("#panel");
      if (given && this.node === null) {
        this.panel.box.replaceChildren(...given.childNodes);
        dressValues(this.panel.box);
      }
      if (fresh) document.querySelector(".folds")?.replaceChildren(...fresh.childNodes);
      dressValues(document.querySelector(".run-head"));
    } catch {
      // The server is away; the page as it is says that the run has ended.
    }
  }

  // --- the place: node and moment, in the address

  readPlace() {
    const place = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const at = place.get("at");
    this.setMoment(at === null || Number.isNaN(Number(at)) ? null : Number(at));
    const node = place.get("node");
    if (place.has("tab") || node !== null) this.panel.showPane(place.get("tab") ?? (this.node === null ? "all" : this.panel.pane));
    this.panel.call = place.get("call") ?? undefined;
    if (node !== this.node) this.open(node);
    else this.panel.showCall();
  }

  writePlace(isNew) {
    const place = placeOfRun();
    if (this.node !== null) place.push(`node=${encodeURIComponent(this.node)}`);
    if (this.at !== null) place.push(`at=${this.at}`);
    if (this.panel.pane !== "all") place.push(`tab=${this.panel.pane}`);
    const address = place.length ? `#${place.join("&")}` : location.pathname + location.search;
    if (isNew) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  // A node that ran once stands for itself; one that ran many times opens the list of its times.
  pathOfSite(site) {
    const rows = this.newest.times.get(site) || [];
    return rows.length === 1 ? rows[0].id : site;
  }

  siteOf(path) {
    const row = this.newest.rows.get(path);
    return row ? row.spot.site : path;
  }

  choose(path) {
    this.live.leave();
    if (path !== this.node) {
      this.open(path);
      this.writePlace(true);
    }
    // Where the parts stand one below the other, the panel is brought into sight.
    if (innerWidth <= 800) this.panel.box.scrollIntoView({ block: "start" });
  }

  open(path) {
    this.node = path;
    document.body.classList.toggle("has-panel", path !== null);
    const number = path === null ? undefined : this.graph.numbers.get(this.siteOf(path));
    if (number !== undefined) this.folding.reveal(number);
    let group = this.graph.choose(path === null ? null : this.siteOf(path));
    for (let site = path === null ? null : this.newest.sites.get(this.siteOf(path)); !group && site; ) {
      site = site.parent === null ? null : this.newest.sites.get(site.parent); // inside a container that is closed
      group = site ? this.graph.choose(site.path) : null;
    }
    if (group) {
      const { e: x, f: y } = group.transform.baseVal[0].matrix;
      this.zoom.show(x, y);
    }
    this.rows.choose(path);
    this.panel.load(path).then(() => { this.panel.show(this.shown, this.at); this.showParts(this.untilWhen(null)); });
  }

  chooseRow(item) {
    if (item.line) {
      this.moveTo(item.line.seq);
      if (item.line.node !== undefined) this.choose(item.line.node);
      this.rows.choose(item.key, false);
    } else if (item.row) {
      this.choose(item.row.id);
    }
  }

  // The next node, or the one before, in the order of the timeline.
  next(by) {
    const items = this.filtered(orderedRows(this.newest));
    if (!items.length) return;
    const number = items.findIndex((item) => item.key === this.node);
    const to = number < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, number + by));
    this.choose(items[to].key);
    this.rows.choose(items[to].key);
  }

  filtered(items) {
    return this.find ? items.filter((item) => (item.row ? item.row.id : item.key).toLowerCase().includes(this.find)) : items;
  }

  search(text) {
    this.find = text.trim().toLowerCase();
    const matches = (path) => !this.find || path.toLowerCase().includes(this.find);
    this.graph.dim(matches);
    const only = this.find ? this.head.drawn.filter(matches) : [];
    if (only.length) this.goTo(only[0]);
    document.getElementById("hits").textContent = this.find ? `${only.length} of ${this.head.drawn.length}` : "";
    this.paintRows();
  }

  // --- the moment

  moveTo(at) {
    this.setMoment(at >= this.lines.length - 1 ? null : at);
    this.writePlace(false);
    this.paint();
  }

  step(how) {
    const last = this.lines.length - 1;
    const at = this.at === null ? last : this.at;
    this.moveTo({ first: 0, back: at - 1, on: at + 1, last }[how] ?? last);
  }

  setMoment(at) {
    this.at = at === null ? null : Math.max(0, Math.min(at, this.lines.length - 1));
    this.shown = this.at === null ? this.newest : foldTo(this.head, this.lines, this.at + 1);
    this.panel.show(this.shown, this.at);
  }

  isGoing() {
    return this.at === null && ["running", "waiting"].includes(this.newest.status) && Boolean(this.head.events) && !this.live?.gone;
  }

  // Time goes by, though nothing happens.
  tick() {
    this.paint();
    if (!document.hidden && performance.now() - (this.timed ?? 0) > TIMED) this.renewTimes();
  }

  // --- painting

  paintSoon() {
    if (this.timer) return;
    // A large graph takes longer to paint than events take to come: half of the time is left to the reader.
    this.timer = setTimeout(() => { this.timer = null; this.paint(); }, Math.max(50, this.spent ?? 0));
  }

  paint() {
    const begun = performance.now();
    const run = this.shown;
    const now = this.isGoing() && !document.hidden ? Math.max(Date.now() / 1000, run.last ?? 0) : null;
    this.graph.paint(run, now ?? run.last);
    this.paintHead(run, now);
    this.live.paint(run, now);
    this.tree.paint();
    this.minimap.paintSoon();
    this.paintMoment();
    this.paintRows(now);
    this.spent = performance.now() - begun;
    if (this.isStale) this.renewPanel();
  }

  // --- where the time went

  setTimes(plain) {
    this.times = new Times(plain);
    const told = PARTS.filter((part) => (this.times.parts[part] ?? 0) >= 0.001);
    const items = told.length > 1 ? told : [];
    this.legend.replaceChildren(...items.map((name) => {
      const item = part("part-of", `${name} ${secondsText(this.times.parts[name])}`);
      item.prepend(part(`swatch p-${name}`, ""));
      return item;
    }));
  }

  // Until when bars go on: of a run that waits for a person, the moment that the server told; of the past, its own.
  untilWhen(now) {
    return now ?? (this.at === null && this.times.isKnown ? Math.max(this.times.end, this.shown.last ?? 0) : null);
  }

  // Of the chosen node, below what else its panel says of it.
  showParts(now) {
    const row = this.node === null ? null : this.shown.rows.get(this.node);
    const facts = this.panel.box.querySelector(".node-panel > .facts");
    if (!row || !facts) return;
    const words = partsText(partsOf(this.times.bars(row, now ?? this.shown.last)));
    const known = facts.querySelector(".time-parts");
    if ((known?.lastChild.textContent ?? "") === words) return;
    known?.remove();
    if (!words) return;
    const item = document.createElement("div");
    item.className = "time-parts";
    item.append(document.createElement("dt"), document.createElement("dd"));
    item.firstChild.textContent = "Time";
    item.lastChild.textContent = words;
    facts.append(item);
  }

  // Only the server divides it; it is asked again after events, the more seldom the longer that takes.
  async renewTimes() {
    if (!this.head.times || this.isTiming) return;
    this.isTiming = true;
    this.areTimesStale = false;
    const begun = performance.now();
    this.timed = begun;
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
    }, Math.max(1000, 10 * (performance.now() - begun)));
  }

  // At most twice a second, as the server makes it anew each time.
  renewPanel() {
    if (this.isRenewing) return;
    this.isRenewing = true;
    this.isStale = false;
    this.panel.load(this.node).then(() => { this.panel.show(this.shown, this.at); this.showParts(this.untilWhen(null)); });
    setTimeout(() => {
      this.isRenewing = false;
      if (this.isStale) this.renewPanel();
    }, 500);
  }

  paintHead(run, now) {
    const end = (run.status === "waiting" ? now : null) ?? run.ended ?? now ?? run.last;
    const found = run.usage;
    const cost = found.answered && !found.priced ? "unknown" : dollars(found.cost) + (found.priced < found.answered ? " +" : "");
    const texts = {
      took: run.begun === null || end === null ? "" : secondsText(end - run.begun), "run-calls": COUNT.format(found.calls),
      "run-tokens": found.answered && !found.counted ? "unknown" : COUNT.format(found.tokens), "run-cost": cost,
    };
    for (const [name, text] of Object.entries(texts)) {
      const element = document.getElementById(name);
      if (element && element.textContent !== text) element.textContent = text;
    }
    setBadge(document.querySelector("#status .badge"), run.status);
    const error = document.getElementById("error");
    if (error.textContent !== (run.error ?? "")) error.replaceChildren(...(run.error ? [part("note bad", run.error)] : []));
  }

  paintMoment() {
    const last = this.lines.length - 1;
    const at = this.at ?? last;
    this.scrub.max = last;
    this.scrub.value = at;
    const line = this.lines[at];
    const words = line ? `${at} of ${last} · ${line.kind}${line.node ? ` ${cutTo(line.node, 40)}` : ""}` : "";
    document.getElementById("moment").textContent = words;
    this.scrub.setAttribute("aria-valuetext", words);
    document.body.classList.toggle("past", this.at !== null);
  }

  openTab(name) {
    this.tab = name;
    for (const button of document.querySelectorAll("[data-tab]")) {
      button.setAttribute("aria-selected", String(button.dataset.tab === name));
      button.tabIndex = button.dataset.tab === name ? 0 : -1;
    }
    this.rows.box.setAttribute("aria-labelledby", `tab-${name}`);
    this.rows.box.scrollTop = 0;
    this.rows.chosen = null;
    this.paintRows();
    if (name !== "events") this.rows.choose(this.node);
  }

  paintRows(now = null) {
    this.rows.box.className = this.tab;
    const until = this.untilWhen(now);
    this.showParts(until);
    const count = this.at === null ? this.lines.length : this.at + 1;
    const [items, make, head] = {
      timeline: () => timelineRows(this.shown, until, this.times),
      calls: () => callRows(this.shown, until, this.times),
      events: () => eventRows(this.lines),
      state: () => stateRows(this.shown, count > 1 ? foldTo(this.head, this.lines, count - 1) : null),
    }[this.tab]();
    if (this.tab === "events") for (const item of items) item.class = item.line.seq >= count ? "later" : "";
    const events = (item) => !this.find || `${item.line.node ?? ""} ${wordsOf(item.line)}`.toLowerCase().includes(this.find);
    const found = this.tab === "events" ? items.filter(events) : this.tab === "state" ? items : this.filtered(items);
    this.rows.show(found, make, head, items.length ? "Nothing fits the search." : NONE[this.tab]);
    if (this.tab === "events" && this.at !== null && this.rows.chosen !== `#${this.at}`) this.rows.choose(`#${this.at}`);
  }
}

export function startRunPage(palette) {
  if (!document.getElementById("head")) return;
  const read = (name) => parseTold(document.getElementById(name).textContent);
  new RunPage(read("head"), read("feed"), palette);
}
