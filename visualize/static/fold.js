// Where a run stands, folded from the lines of the feed: the same rules as visualize/progress.py, which a test holds them
// to. What a line is, visualize/viewer/feed.py says.

import { SHARED } from "./shared.js";

export const SETTLED = new Set(SHARED.settled);
export const OPEN = new Set(SHARED.open);
const BETWEEN = { map: /^\[(\d{1,9})\]\./, loop: /^\.round\[(\d{1,9})\]\./, subflow: /^\./ };

// Of an object whose keys are a flow's own words: `constructor` is one like any other.
export function ownOf(object, key) {
  return object && Object.hasOwn(object, key) ? object[key] : undefined;
}

// --- the shape

function levelOf(graph, parent = null) {
  const sites = new Map();
  for (const [id, kind, body] of graph.nodes || []) {
    const path = parent === null ? id : `${parent}.${id}`;
    sites.set(id, { path, id, kind, parent, body: body ? levelOf(body, path) : null, model: ownOf(graph.models, id) ?? "" });
  }
  const containers = [...sites.values()].filter((site) => site.body).sort((a, b) => b.id.length - a.id.length);
  return { sites, containers, edges: graph.edges || [], most: graph.most ?? null };
}

function* sitesOf(level) {
  for (const site of level.sites.values()) {
    yield site;
    if (site.body) yield* sitesOf(site.body);
  }
}

// Where a path leads: its site, and the container, the item or round that it ran in.
function spotOf(level, path, begun = "") {
  if (level.sites.has(path)) return { site: level.sites.get(path).path, container: null, unit: "", number: null };
  for (const site of level.containers) {
    const between = path.startsWith(site.id) ? BETWEEN[site.kind].exec(path.slice(site.id.length)) : null;
    if (!between) continue;
    const end = site.id.length + between[0].length;
    const unit = begun + path.slice(0, end);
    const found = spotOf(site.body, path.slice(end), unit);
    if (!found) continue;
    if (found.container !== null) return found;
    const number = between[1] === undefined ? null : Number(between[1]);
    return { site: found.site, container: begun + site.id, unit, number };
  }
  return null;
}

// --- the fold

export class Run {
  constructor(head) {
    this.head = head;
    this.top = levelOf(head.graph);
    this.sites = new Map();
    for (const site of sitesOf(this.top)) if (!this.sites.has(site.path)) this.sites.set(site.path, site);
    this.rows = new Map(); // path → row
    this.times = new Map(); // path of a site → its rows
    this.count = 0; // lines applied
    this.status = "running";
    this.error = null;
    this.begun = this.ended = this.last = null;
    this.breaks = []; // [from, to]: the run was not going on
    this.usage = usage();
    for (const name of this.top.sites.keys()) this.row(name);
  }

  row(path) {
    let row = this.rows.get(path);
    if (row) return row;
    const spot = spotOf(this.top, path) || { site: path, container: null, unit: "", number: null };
    const site = this.sites.get(spot.site);
    row = {
      id: path, spot, kind: site ? site.kind : "", status: "pending", started: null, ended: null, usage: usage(),
      calls: [], retries: 0, cause: null, error: null, route: null, output: null, state: null,
      total: site && site.body ? site.body.most : null, units: new Set(), inside: {}, asked: false, answered: false,
      hasWaited: false,
    };
    this.rows.set(path, row);
    if (!this.times.has(spot.site)) this.times.set(spot.site, []);
    this.times.get(spot.site).push(row);
    if (spot.container !== null) {
      const container = this.row(spot.container);
      container.inside.pending = (container.inside.pending || 0) + 1;
      if (spot.number !== null) container.units.add(spot.number);
    }
    return row;
  }

  apply(line) {
    const act = APPLY[line.kind];
    const at = Math.max(line.at, this.begun ?? line.at); // A fork may begin with the times of another run.
    const row = line.node === undefined || line.kind === "end" ? null : this.row(line.node);
    if (act) act(this, row, line.at === at ? line : { ...line, at });
    this.last = at;
    this.count += 1;
  }

  // The one place where a status changes; a container that is open follows what is inside it.
  become(row, status) {
    const before = row.status;
    row.status = status;
    row.hasWaited ||= status === "waiting";
    if (row.spot.container === null || before === status) return;
    const container = this.row(row.spot.container);
    container.inside[before] -= 1;
    container.inside[status] = (container.inside[status] || 0) + 1;
    if (container.status === "running" || container.status === "waiting") {
      this.become(container, onlyWaits(container) ? "waiting" : "running");
    }
  }

  settle(row, at, status) {
    row.ended = at;
    this.become(row, status);
  }
}

export function usage() {
  return { calls: 0, counted: 0, priced: 0, answered: 0, tokens: 0, cost: 0 };
}

function onlyWaits(container) {
  return (container.inside.waiting || 0) > 0 && !container.inside.running;
}

function addCall(found, line) {
  found.calls += 1;
  if (line.error === undefined) found.answered += 1;
  if (line.tokens !== undefined) found.counted += 1;
  if (line.cost !== undefined) found.priced += 1;
  found.tokens += line.tokens || 0;
  found.cost += line.cost || 0;
}

const APPLY = {
  begin: (run, _, line) => { run.begun = line.at; },
  resume: (run, _, line) => {
    const stopped = run.ended ?? run.last;
    run.status = "running";
    run.error = run.ended = null;
    if (stopped !== null && line.at > stopped) run.breaks.push([stopped, line.at]);
    for (const row of run.rows.values()) {
      if (row.status === "running" || row.status === "cancelled") run.become(row, "pending");
    }
  },
  end: (run, _, line) => {
    run.status = line.status;
    run.error = line.error === undefined ? null : line.error;
    run.ended = line.at;
  },
  start: (run, row, line) => {
    if (SETTLED.has(row.status)) row.asked = row.answered = row.hasWaited = false;
    const started = row.hasWaited ? row.started : line.at;
    Object.assign(row, { started, ended: null, cause: null, error: null, route: null, output: null });
    row.state = null;
    run.become(row, (row.asked && !row.answered) || onlyWaits(row) ? "waiting" : "running");
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
    for (let each = row; each; each = each.spot.container === null ? null : run.row(each.spot.container)) {
      addCall(each.usage, line);
    }
  },
  retry: (run, row) => { row.retries += 1; },
  map: (run, row, line) => { row.total = line.total; },
  asked: (run, row) => {
    row.asked = true;
    row.answered = false;
    if (!SETTLED.has(row.status)) run.become(row, "waiting");
  },
  answered: (run, row) => {
    row.answered = true;
    if (row.status === "waiting") run.become(row, "running");
  },
  reused: () => {}, tool: () => {}, judged: () => {}, round: () => {}, told: () => {},
};

// Why a node was skipped, as people read it: the same words as in pictures.
export function causeText(cause) {
  return SHARED.causes[cause] ?? cause.replaceAll("_", " ");
}

export function foldTo(head, lines, count) {
  const run = new Run(head);
  for (let seq = 0; seq < count; seq += 1) run.apply(lines[seq]);
  return run;
}

// The paths of a container's items or rounds begin with these, in order.
export function unitsOf(container) {
  if (container.kind === "subflow") return [`${container.id}.`];
  const between = container.kind === "loop" ? ".round" : "";
  return [...container.units].sort((a, b) => a - b).map((number) => `${container.id}${between}[${number}].`);
}
