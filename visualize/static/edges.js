// Which way a run took, and which nodes decided how long it took: the same rules as visualize/edge_states.py, which a test
// holds them to.

import { OPEN, unitsOf } from "./fold.js";
import { SHARED } from "./shared.js";

function edgeState(before, after, labels) {
  if (OPEN.has(before.status) || after.status === "pending") return "undecided";
  const opened = before.status === "succeeded" && (!labels.length || labels.includes(before.route));
  const handled = before.status === "failed" && labels.includes("on_error");
  return (opened || handled) && hasRun(after) ? "taken" : "not_taken";
}

// Of an edge between two sites: its state over all the times that it was met, and whether it is critical.
export function edgeOf(run, source, target, labels, critical) {
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
  return { state: SHARED.edgeStateOrder.find((each) => states.has(each)) || "undecided", isCritical };
}

function latest(names, key) {
  return names.reduce((best, each) => (best === null || key(each) > key(best) ? each : best), null);
}

// Whether its body began, so that its time means something: one that was skipped because it failed has run.
export function hasRun(row) {
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
export function criticalPath(run) {
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
