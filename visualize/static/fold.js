// Where a run stands, folded from the lines of the feed. The same rules as visualize/progress.py, taken.py and
// states.py, which a test holds them to; what a line is, visualize/viewer/feed.py says.

const SETTLED = new Set(["succeeded", "failed", "skipped", "cancelled"]);
const OPEN = new Set(["pending", "running", "waiting"]);
const BETWEEN = { map: /^\[(\d{1,9})\]\./, loop: /^\.round\[(\d{1,9})\]\./, subflow: /^\./ };
const TELLING = ["running", "waiting", "failed", "succeeded", "cancelled", "skipped", "pending"];

// Of an object whose keys are a flow's own words: `constructor` is one like any other.
function ownOf(object, key) {
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

class Run {
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

function usage() {
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
function causeText(cause) {
  return cause === "upstream_skipped" ? "too few before it succeeded" : cause.replaceAll("_", " ");
}

function foldTo(head, lines, count) {
  const run = new Run(head);
  for (let seq = 0; seq < count; seq += 1) run.apply(lines[seq]);
  return run;
}

// --- which way it took

function edgeState(before, after, labels) {
  if (OPEN.has(before.status) || after.status === "pending") return "undecided";
  const opened = before.status === "succeeded" && (!labels.length || labels.includes(before.route));
  const handled = before.status === "failed" && labels.includes("on_error");
  return (opened || handled) && hasRun(after) ? "taken" : "not_taken";
}

// Of an edge between two sites: its state over all the times that it was met, and whether it is critical.
function edgeOf(run, source, target, labels, critical) {
  const states = new Set();
  let isCritical = false;
  const id = source.slice(source.length - run.sites.get(source).id.length);
  for (const after of run.times.get(target) || []) {
    const before = run.rows.get(after.spot.unit + id);
    if (!before || before.spot.site !== source) continue;
    const state = edgeState(before, after, labels);
    states.add(state);
    isCritical ||= state === "taken" && critical.steps.has(stepKey(before.id, after.id));
  }
  return { state: ["taken", "undecided", "not_taken"].find((each) => states.has(each)) || "undecided", isCritical };
}

function latest(names, key) {
  return names.reduce((best, each) => (best === null || key(each) > key(best) ? each : best), null);
}

// Whether its body began, so that its time means something: one that was skipped because it failed has run.
function hasRun(row) {
  return row.status !== "pending" && (row.status !== "skipped" || row.cause === "error");
}

// When a row ended: never while it is at work; before all others where it did not run.
function endOf(row) {
  if (row.status === "running" || row.status === "waiting") return Infinity;
  return hasRun(row) ? row.ended ?? -1 : -1;
}

function chain(level, rows) {
  const ended = new Map();
  for (const name of level.sites.keys()) {
    const row = rows.get(name);
    if (row && row.started !== null && endOf(row) >= 0) ended.set(name, endOf(row));
  }
  if (!ended.size) return [];
  const parents = new Map();
  for (const [source, target, labels] of level.edges) {
    const [before, after] = [rows.get(source), rows.get(target)];
    if (!ended.has(source) || !before || !after || edgeState(before, after, labels) !== "taken") continue;
    if (!parents.has(target)) parents.set(target, []);
    parents.get(target).push(source);
  }
  const line = [latest([...ended.keys()], (name) => ended.get(name))];
  while (line.length <= level.sites.size && parents.has(line.at(-1))) {
    line.push(latest(parents.get(line.at(-1)), (name) => ended.get(name)));
  }
  return line;
}

// A step from one row to another; no path has a line break.
function stepKey(before, after) {
  return `${before}\n${after}`;
}

// The rows that decided how long the run took, by their paths, and the steps between them.
function criticalPath(run) {
  const units = new Map();
  for (const row of run.rows.values()) {
    if (!units.has(row.spot.unit)) units.set(row.spot.unit, new Map());
    units.get(row.spot.unit).set(row.id.slice(row.spot.unit.length), row);
  }
  const [rows, steps] = [new Set(), new Set()];
  const todo = [["", run.top]];
  while (todo.length) {
    const [unit, level] = todo.pop();
    const line = chain(level, units.get(unit) || new Map());
    line.slice(1).forEach((name, at) => steps.add(stepKey(unit + name, unit + line[at])));
    for (const name of line) {
      const row = run.rows.get(unit + name);
      rows.add(row.id);
      const body = level.sites.get(name).body;
      if (body) todo.push(...deciding(row, units).map((each) => [each, body]));
    }
  }
  return { rows, steps };
}

function unitsOf(container) {
  if (container.kind === "subflow") return [`${container.id}.`];
  const between = container.kind === "loop" ? ".round" : "";
  return [...container.units].sort((a, b) => a - b).map((number) => `${container.id}${between}[${number}].`);
}

function deciding(container, units) {
  const own = unitsOf(container);
  if (container.kind !== "map" || !own.length) return own;
  const spans = own.map((unit) => {
    const rows = [...(units.get(unit) || new Map()).values()].filter((row) => hasRun(row) && row.started !== null);
    const begin = rows.length ? Math.min(...rows.map((row) => row.started)) : 0;
    return { unit, begin, end: Math.max(-1, ...rows.map(endOf)) };
  });
  spans.sort((a, b) => a.end - b.end || a.begin - b.begin || (a.unit < b.unit ? -1 : 1));
  // From the item that ended last to the one that ended last before it began: it waited for that one's place.
  const line = [spans.length - 1];
  for (let at = line[0] - 1; at >= 0 && spans[at].end >= 0; at -= 1) {
    if (spans[at].end > spans[line.at(-1)].begin) continue;
    line.push(at);
  }
  return line.map((number) => spans[number].unit);
}

// --- shared state

const FOLDS = {
  append: (value, more) => [...(value || []), ...more],
  union: (value, more) => {
    const marks = new Map();
    for (const each of [...(value || []), ...more]) {
      const mark = toJson(each, true);
      if (!marks.has(mark)) marks.set(mark, each);
    }
    return [...marks.values()];
  },
  sum: (value, more) => (value === null ? more : addNumbers(value, more)),
  max: (value, more) => (value === null || more > value ? more : value),
  min: (value, more) => (value === null || more < value ? more : value),
  update: (value, more) => ({ ...(value || {}), ...more }),
};

// Whole numbers with every digit: a sum that this language would round is a BigInt. With a fraction, it keeps one.
function addNumbers(one, other) {
  const isWhole = [one, other].every((each) => typeof each === "bigint" || Number.isSafeInteger(each));
  if (!isWhole) return realOf(Number(one) + Number(other));
  const sum = BigInt(one) + BigInt(other);
  return Number.isSafeInteger(Number(sum)) ? Number(sum) : sum;
}

// What all nodes that have finished wrote, in the flow's order. The writes of a body count until its
// container has finished: then they are the container's own.
function stateOf(run) {
  const state = new Map(Object.entries(run.head.state).map(([key, [, initial]]) => [key, initial]));
  const walk = (level, unit, rows) => {
    for (const site of level.sites.values()) {
      const row = rows.get(unit + site.id);
      if (!row) continue;
      if (row.status === "succeeded") {
        for (const [key, value] of Object.entries(row.state || {})) write(state, run.head.state, key, value);
      } else if (site.body && site.kind !== "subflow") {
        for (const each of unitsOf(row)) walk(site.body, each, rows);
      }
    }
  };
  walk(run.top, "", run.rows);
  return state;
}

function write(state, rules, key, value) {
  const [rule] = ownOf(rules, key) ?? ["replace"];
  const fold = FOLDS[rule];
  try {
    state.set(key, fold ? fold(state.get(key) ?? null, value) : value);
  } catch {
    state.set(key, value); // A contribution that was cut short no longer fits.
  }
}
