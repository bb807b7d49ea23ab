// Where a run stands, folded from the lines of the feed: the same rules as visualize/progress.py, which a test holds them
// to. What a line is, visualize/viewer/feed.py says.

import { SHARED } from "./shared.js";

/** @import { Call, Container, GraphShape, Head, Level, Line, LineOf, Row, RunStatus, Site, Spot, Status, Usage } from "./types.d.ts" */

/** @type {Set<string>} */
export const SETTLED = new Set(SHARED.settled);
/** @type {Set<string>} */
export const OPEN = new Set(SHARED.open);
/** @type {Record<string, RegExp>} */
const BETWEEN = { map: /^\[(\d{1,9})\]\./, loop: /^\.round\[(\d{1,9})\]\./, subflow: /^\./ };

/**
 * The value of an object whose keys are a flow's own words: `constructor` is one like any other.
 * @template T
 * @param {Record<string, T> | null | undefined} object
 * @param {string} key
 * @returns {T | undefined}
 */
export function ownValue(object, key) {
  return object && Object.hasOwn(object, key) ? object[key] : undefined;
}

/**
 * The list at a key of a map, which is made where there is none.
 * @template K, T
 * @param {Map<K, T[]>} lists
 * @param {K} key
 */
export function listAt(lists, key) {
  let list = lists.get(key);
  if (!list) lists.set(key, list = []);
  return list;
}

// --- the shape

/**
 * @param {GraphShape} graph
 * @param {string | null} [parent]
 * @returns {Level}
 */
function makeLevel(graph, parent = null) {
  /** @type {Map<string, Site>} */
  const sites = new Map();
  for (const [id, kind, body] of graph.nodes ?? []) {
    const path = parent === null ? id : `${parent}.${id}`;
    sites.set(id, { path, id, kind, parent, body: body ? makeLevel(body, path) : null, model: ownValue(graph.models, id) ?? "" });
  }
  const containers = [...sites.values()].filter((site) => site.body).sort((a, b) => b.id.length - a.id.length);
  return { sites, containers: /** @type {Container[]} */ (containers), edges: graph.edges ?? [], most: graph.most ?? null };
}

/**
 * @param {Level} level
 * @returns {Iterable<Site>}
 */
function* sitesOf(level) {
  for (const site of level.sites.values()) {
    yield site;
    if (site.body) yield* sitesOf(site.body);
  }
}

/**
 * @param {Level} level
 * @param {string} path
 * @param {string} [before] what stands before the path
 * @returns {Spot | null}
 */
function spotOf(level, path, before = "") {
  const end = level.sites.get(path);
  if (end) return { site: end.path, container: null, unit: "", number: null };
  for (const site of level.containers) {
    const between = path.startsWith(site.id) ? BETWEEN[site.kind].exec(path.slice(site.id.length)) : null;
    if (!between) continue;
    const length = site.id.length + between[0].length;
    const unit = before + path.slice(0, length);
    const spot = spotOf(site.body, path.slice(length), unit);
    if (!spot) continue;
    if (spot.container !== null) return spot;
    const number = between[1] === undefined ? null : Number(between[1]);
    return { site: spot.site, container: before + site.id, unit, number };
  }
  return null;
}

// --- the fold

export class Run {
  /** @param {Head} head */
  constructor(head) {
    this.head = head;
    this.top = makeLevel(head.graph);
    /** @type {Map<string, Site>} by their paths */
    this.sites = new Map();
    for (const site of sitesOf(this.top)) if (!this.sites.has(site.path)) this.sites.set(site.path, site);
    /** @type {Map<string, Row>} by their paths */
    this.rows = new Map();
    /** @type {Map<string, Row[]>} path of a site → its rows */
    this.times = new Map();
    this.count = 0; // lines applied
    /** @type {RunStatus} */
    this.status = "running";
    /** @type {string | null} */
    this.error = null;
    /** @type {number | null} */
    this.begun = null;
    /** @type {number | null} */
    this.ended = null;
    /** @type {number | null} */
    this.last = null;
    /** @type {[start: number, end: number][]} between them the run was not going on */
    this.breaks = [];
    this.usage = newUsage();
    /** @type {Map<string, { model: string, at: number }>} path → the model that is asked, and since when */
    this.asks = new Map();
    for (const name of this.top.sites.keys()) this.row(name);
  }

  /**
   * @param {string} path
   * @returns {Row}
   */
  row(path) {
    const old = this.rows.get(path);
    if (old) return old;
    const spot = spotOf(this.top, path) ?? { site: path, container: null, unit: "", number: null };
    const site = this.sites.get(spot.site);
    /** @type {Row} */
    const row = {
      id: path, spot, kind: site ? site.kind : "", status: "pending", started: null, ended: null, usage: newUsage(),
      calls: [], retries: 0, cause: null, error: null, route: null, output: null, state: null,
      total: site?.body ? site.body.most : null, units: new Set(), inside: {}, hasQuestion: false, hasAnswer: false,
      hasWaited: false,
    };
    this.rows.set(path, row);
    listAt(this.times, spot.site).push(row);
    if (spot.container !== null) {
      const container = this.row(spot.container);
      container.inside.pending = (container.inside.pending ?? 0) + 1;
      if (spot.number !== null) container.units.add(spot.number);
    }
    return row;
  }

  /** @param {Line} line */
  apply(line) {
    const act = /** @type {((run: Run, row: Row, line: Line) => void) | undefined} */ (APPLY[line.kind]);
    const at = Math.max(line.at, this.begun ?? line.at); // A fork may begin with the times of another run.
    const row = "node" in line && line.kind !== "end" ? this.row(line.node) : NO_ROW;
    act?.(this, row, line.at === at ? line : { ...line, at });
    this.last = at;
    this.count += 1;
  }

  /**
   * The one place where a status changes; a container that is open follows what is inside it.
   * @param {Row} row
   * @param {Status} status
   */
  become(row, status) {
    const before = row.status;
    row.status = status;
    row.hasWaited ||= status === "waiting";
    if (row.spot.container === null || before === status) return;
    const container = this.row(row.spot.container);
    container.inside[before] = (container.inside[before] ?? 0) - 1;
    container.inside[status] = (container.inside[status] ?? 0) + 1;
    if (container.status === "running" || container.status === "waiting") {
      this.become(container, onlyWaits(container) ? "waiting" : "running");
    }
  }

  /**
   * @param {Row} row
   * @param {number} at
   * @param {Status} status
   */
  settle(row, at, status) {
    row.ended = at;
    this.become(row, status);
  }
}

// What lines of the whole run have in place of a row: they touch none.
const NO_ROW = /** @type {Row} */ (/** @type {unknown} */ (null));

/** @returns {Usage} */
export function newUsage() {
  return { calls: 0, counted: 0, priced: 0, answered: 0, tokens: 0, cost: 0 };
}

/** @param {Row} container */
function onlyWaits(container) {
  return (container.inside.waiting ?? 0) > 0 && !container.inside.running;
}

/**
 * @param {Usage} usage
 * @param {Call} call
 */
function addCall(usage, call) {
  usage.calls += 1;
  if (call.error === undefined) usage.answered += 1;
  if (call.tokens !== undefined) usage.counted += 1;
  if (call.cost !== undefined) usage.priced += 1;
  usage.tokens += call.tokens ?? 0;
  usage.cost += call.cost ?? 0;
}

/** @type {{ [K in Line["kind"]]: (run: Run, row: Row, line: LineOf<K>) => void }} */
const APPLY = {
  begin: (run, _, line) => { run.begun = line.at; },
  resume: (run, _, line) => {
    const stop = run.ended ?? run.last;
    run.status = "running";
    run.error = run.ended = null;
    if (stop !== null && line.at > stop) run.breaks.push([stop, line.at]);
    for (const row of run.rows.values()) {
      if (row.status === "running" || row.status === "cancelled") run.become(row, "pending");
    }
  },
  end: (run, _, line) => {
    run.status = line.status;
    run.error = line.error ?? null;
    run.ended = line.at;
  },
  start: (run, row, line) => {
    if (SETTLED.has(row.status)) row.hasQuestion = row.hasAnswer = row.hasWaited = false;
    const started = row.hasWaited ? row.started : line.at;
    Object.assign(row, { started, ended: null, cause: null, error: null, route: null, output: null, state: null });
    run.become(row, (row.hasQuestion && !row.hasAnswer) || onlyWaits(row) ? "waiting" : "running");
  },
  finish: (run, row, line) => {
    Object.assign(row, { route: line.route ?? null, output: line.output ?? null, state: line.state ?? null });
    run.settle(row, line.at, "succeeded");
  },
  fail: (run, row, line) => {
    Object.assign(row, { error: line.error, cause: line.skipped ? "error" : null });
    run.settle(row, line.at, line.skipped ? "skipped" : "failed");
  },
  skip: (run, row, line) => { row.cause = line.cause; run.settle(row, line.at, "skipped"); },
  cancel: (run, row, line) => run.settle(row, line.at, "cancelled"),
  call: (run, row, line) => {
    row.calls.push(line);
    addCall(run.usage, line);
    for (let at = row; ; at = run.row(at.spot.container)) {
      addCall(at.usage, line);
      if (at.spot.container === null) return;
    }
  },
  retry: (_, row) => { row.retries += 1; },
  map: (_, row, line) => { row.total = line.total; },
  "asked": (run, row) => {
    row.hasQuestion = true;
    row.hasAnswer = false;
    if (!SETTLED.has(row.status)) run.become(row, "waiting");
  },
  answered: (run, row) => {
    row.hasAnswer = true;
    if (row.status === "waiting") run.become(row, "running");
  },
  map_stopped: () => {}, reused: () => {}, tool: () => {}, judged: () => {}, round: () => {}, "told": () => {},
};

/**
 * Why a node was skipped, as people read it: the same words as in pictures.
 * @param {string} cause
 */
export function causeText(cause) {
  return ownValue(SHARED.causes, cause) ?? cause.replaceAll("_", " ");
}

/**
 * @param {Head} head
 * @param {Line[]} lines
 * @param {number} count
 */
export function foldTo(head, lines, count) {
  const run = new Run(head);
  for (let seq = 0; seq < count; seq += 1) run.apply(lines[seq]);
  return run;
}

/**
 * What the paths of a container's items or rounds begin with, in order.
 * @param {Row} container
 */
export function unitsOf(container) {
  if (container.kind === "subflow") return [`${container.id}.`];
  const between = container.kind === "loop" ? ".round" : "";
  return [...container.units].sort((a, b) => a - b).map((number) => `${container.id}${between}[${number}].`);
}
