// What all nodes wrote to shared state: the same rules as visualize/states.py, which a test holds them to.

import { realOf, toJson } from "./exact_json.js";
import { ownValue, unitsOf } from "./fold.js";

/** @import { Run } from "./fold.js" */
/** @import { Level, Row, StateRules } from "./types.d.ts" */

/** @type {Record<string, (value: any, more: any) => unknown>} */
const FOLDS = {
  append: (value, more) => [...(value || []), ...more],
  union: (value, more) => {
    const items = new Map();
    for (const item of [...(value || []), ...more]) {
      const mark = toJson(item, true);
      if (!items.has(mark)) items.set(mark, item);
    }
    return [...items.values()];
  },
  sum: (value, more) => (value === null ? more : addNumbers(value, more)),
  max: (value, more) => (value === null || more > value ? more : value),
  min: (value, more) => (value === null || more < value ? more : value),
  update: (value, more) => ({ ...(value || {}), ...more }),
};

/**
 * Whole numbers with every digit: a sum that this language would round is a BigInt. With a fraction, it keeps one.
 * @param {number | bigint} one
 * @param {number | bigint} other
 */
function addNumbers(one, other) {
  const isWhole = [one, other].every((number) => typeof number === "bigint" || Number.isSafeInteger(number));
  if (!isWhole) return realOf(Number(one) + Number(other));
  const sum = BigInt(one) + BigInt(other);
  return Number.isSafeInteger(Number(sum)) ? Number(sum) : sum;
}

/**
 * What all nodes that have finished wrote, in the flow's order. The writes of a body count until its
 * container has finished: then they are the container's own.
 * @param {Run} run
 */
export function stateOf(run) {
  const rules = run.head.state;
  /** @type {Map<string, unknown>} */
  const state = new Map(Object.entries(rules).map(([key, [, initial]]) => [key, initial]));
  /** @type {(level: Level, unit: string, rows: Map<string, Row>) => void} */
  const walk = (level, unit, rows) => {
    for (const site of level.sites.values()) {
      const row = rows.get(unit + site.id);
      if (!row) continue;
      if (row.status === "succeeded") {
        for (const [key, value] of Object.entries(row.state ?? {})) write(state, rules, key, value);
      } else if (site.body && site.kind !== "subflow") {
        for (const inside of unitsOf(row)) walk(site.body, inside, rows);
      }
    }
  };
  walk(run.top, "", run.rows);
  return state;
}

/**
 * @param {Map<string, unknown>} state
 * @param {StateRules} rules
 * @param {string} key
 * @param {unknown} value
 */
function write(state, rules, key, value) {
  const [rule] = ownValue(rules, key) ?? ["replace"];
  const fold = ownValue(FOLDS, rule);
  try {
    state.set(key, fold ? fold(state.get(key) ?? null, value) : value);
  } catch {
    state.set(key, value); // A contribution that was cut short no longer fits.
  }
}
