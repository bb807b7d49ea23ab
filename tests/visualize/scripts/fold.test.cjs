// A run as it is folded, where its words are also names that every object of the language has.

const test = require("node:test");
const assert = require("node:assert");
const { load } = require("./load.cjs");

const { Run, saidOf, stateOf, timeLeft } = load(["fold.js", "graph.js", "live.js"], ["Run", "saidOf", "stateOf", "timeLeft"]);

test("a node or a key of any name is like any other", () => {
  const graph = { nodes: [["constructor", "agent"], ["b", "agent"]], edges: [], models: { b: "openai/x" } };
  const run = new Run({ graph, state: {} });
  run.apply({ kind: "begin", at: 1, seq: 0 });
  assert.strictEqual(saidOf(run, run.sites.get("constructor"), 1, null).model, "");
  assert.strictEqual(timeLeft(run, { b: 3 }, 1), 3);
  run.apply({ kind: "start", at: 1, seq: 1, node: "constructor" });
  run.apply({ kind: "finish", at: 2, seq: 2, node: "constructor", state: { toString: 7 } });
  assert.strictEqual(stateOf(run).get("toString"), 7);
});
