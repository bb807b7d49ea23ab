// Which way a run took, and which nodes decided how long it took: the same rules as visualize/edge_states.py, which a test
// holds them to.

import { listAt, OPEN, unitsOf } from "./fold.js";
import { SHARED } from "./shared.js";

/** @import { Run } from "./fold.js" */
/** @import { CriticalPath, EdgeState, Level, Row } from "./types.d.ts" */

/**
 * @param {Row} before
 * @param {Row} after
 * @param {string[]} labels
 * @returns {EdgeState}
 */
function edgeState(before, after, labels) {
  if (OPEN.has(before.status) || after.status === "pending") return "undecided";
  const isOpen = before.status === "succeeded" && (!labels.length || (before.route !== null && labels.includes(before.route)));
  const isHandler = before.status === "failed" && labels.includes("on_error");
  return (isOpen || isHandler) && hasRun(after) ? "taken" : "not_taken";
}

/**
 * Of an edge between two sites: its state over all the times that it was met, and whether it is critical.
 * @param {Run} run
 * @param {string} source
 * @param {string} target
 * @param {string[]} labels
 * @param {CriticalPath} critical
 */
export function edgeOf(run, source, target, labels, critical) {
  /** @type {Set<EdgeState>} */
  const states = new Set();
  let isCritical = false;
  const id = source.slice(source.length - (run.sites.get(source)?.id.length ?? 0));
  for (const after of run.times.get(target) ?? []) {
    const before = run.rows.get(after.spot.unit + id);
    if (!before || before.spot.site !== source) continue;
    const state = edgeState(before, after, labels);
    states.add(state);
    isCritical ||= state === "taken" && critical.steps.has(stepKey(before.id, after.id));
  }
  return { state: SHARED.edgeStateOrder.find((state) => states.has(state)) ?? "undecided", isCritical };
}

/**
 * Whether its body began, so that its time means something: one that was skipped because it failed has run.
 * @param {Row} row
 */
export function hasRun(row) {
  return row.status !== "pending" && (row.status !== "skipped" || row.cause === "error");
}

/**
 * When a row ended: never while it is at work; before all others where it did not run.
 * @param {Row} row
 */
function endOf(row) {
  if (row.status === "running" || row.status === "waiting") return Infinity;
  return hasRun(row) ? row.ended ?? -1 : -1;
}

/**
 * The name that ended last; of several the first.
 * @param {Iterable<string>} names
 * @param {Map<string, number>} ends
 */
function findLatest(names, ends) {
  const end = (/** @type {string} */ name) => ends.get(name) ?? -Infinity;
  return [...names].reduce((best, name) => (end(name) > end(best) ? name : best));
}

/**
 * The nodes of a level that decided how long it took, the last one first.
 * @param {Level} level
 * @param {Map<string, Row>} rows
 */
function findChain(level, rows) {
  /** @type {Map<string, number>} */
  const ends = new Map();
  for (const name of level.sites.keys()) {
    const row = rows.get(name);
    if (row && row.started !== null && endOf(row) >= 0) ends.set(name, endOf(row));
  }
  if (!ends.size) return [];
  /** @type {Map<string, string[]>} */
  const parents = new Map();
  for (const [source, target, labels] of level.edges) {
    const [before, after] = [rows.get(source), rows.get(target)];
    if (!ends.has(source) || !before || !after || edgeState(before, after, labels) !== "taken") continue;
    listAt(parents, target).push(source);
  }
  let name = findLatest(ends.keys(), ends);
  const chain = [name];
  for (let before; chain.length <= level.sites.size && (before = parents.get(name)); chain.push(name)) name = findLatest(before, ends);
  return chain;
}

/**
 * A step from one row to another; no path has a line break.
 * @param {string} before
 * @param {string} after
 */
function stepKey(before, after) {
  return `${before}\n${after}`;
}

/**
 * @param {Run} run
 * @returns {CriticalPath}
 */
export function criticalPath(run) {
  /** @type {Map<string, Map<string, Row>>} */
  const units = new Map();
  for (const row of run.rows.values()) {
    const { unit } = row.spot;
    if (!units.has(unit)) units.set(unit, new Map());
    units.get(unit)?.set(row.id.slice(unit.length), row);
  }
  /** @type {CriticalPath} */
  const path = { rows: new Set(), steps: new Set() };
  /** @type {[unit: string, level: Level][]} */
  const queue = [["", run.top]];
  for (let next; (next = queue.pop()); ) {
    const [unit, level] = next;
    const chain = findChain(level, units.get(unit) ?? new Map());
    chain.slice(1).forEach((name, at) => path.steps.add(stepKey(unit + name, unit + chain[at])));
    for (const name of chain) {
      const row = run.row(unit + name);
      path.rows.add(row.id);
      const body = level.sites.get(name)?.body;
      if (body) for (const inside of findDeciding(row, units)) queue.push([inside, body]);
    }
  }
  return path;
}

/**
 * Of a container's items or rounds, those that it waited for.
 * @param {Row} container
 * @param {Map<string, Map<string, Row>>} units
 */
function findDeciding(container, units) {
  const own = unitsOf(container);
  if (container.kind !== "map" || !own.length) return own;
  const spans = own.map((unit) => {
    const rows = [...(units.get(unit)?.values() ?? [])].filter(hasRun);
    const starts = rows.flatMap((row) => row.started ?? []);
    return { unit, begin: starts.length ? Math.min(...starts) : 0, end: Math.max(-1, ...rows.flatMap((row) => (row.started === null ? [] : endOf(row)))) };
  });
  spans.sort((a, b) => a.end - b.end || a.begin - b.begin || (a.unit < b.unit ? -1 : 1));
  // From the item that ended last to the one that ended last before it began: it waited for that one's place.
  let last = spans.length - 1;
  const chain = [last];
  for (let at = last - 1; at >= 0 && spans[at].end >= 0; at -= 1) {
    if (spans[at].end > spans[last].begin) continue;
    chain.push(last = at);
  }
  return chain.map((number) => spans[number].unit);
}
