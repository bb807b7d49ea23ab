// What all nodes wrote to shared state: the same rules as visualize/states.py, which a test holds them to.

import { realOf, toJson } from "./exact_json.js";
import { ownOf, unitsOf } from "./fold.js";

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
export function stateOf(run) {
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
