// A run as it is folded, where its words are also names that every object of the language has.

import assert from "node:assert";
import test from "node:test";

import { parseJson, parseFeed } from "../../../visualize/static/exact_json.js";
import { Run } from "../../../visualize/static/fold.js";
import { timeLeft } from "../../../visualize/static/live.js";
import { describeSite } from "../../../visualize/static/node_words.js";
import { stateRows, wordsOf } from "../../../visualize/static/row_items.js";
import { stateOf } from "../../../visualize/static/shared_state.js";

test("a node or a key of any name is like any other", () => {
  const graph = { nodes: [["constructor", "agent"], ["b", "agent"]], edges: [], models: { b: "openai/x" } };
  const run = new Run({ graph, state: {} });
  run.apply({ kind: "begin", at: 1, seq: 0 });
  assert.strictEqual(describeSite(run, run.sites.get("constructor"), 1, null).model, "");
  assert.strictEqual(timeLeft(run, { b: 3 }, 1), 3);
  run.apply({ kind: "start", at: 1, seq: 1, node: "constructor" });
  run.apply({ kind: "finish", at: 2, seq: 2, node: "constructor", state: { toString: 7 } });
  assert.strictEqual(stateOf(run).get("toString"), 7);
});

test("large whole numbers of the state keep every digit, whatever merges them", () => {
  const graph = { nodes: [["a", "agent"], ["b", "agent"]], edges: [["a", "b", []]], models: {} };
  const state = { n: ["sum", 0], m: ["max", 5], u: ["union", null], r: ["replace", null], f: ["sum", 0.5], s: ["sum", 0] };
  const run = new Run({ graph, state });
  const write = (node, seq, text) => {
    run.apply({ kind: "start", at: 1, seq, node });
    run.apply(parseJson(`{"kind": "finish", "at": 2, "seq": ${seq + 1}, "node": "${node}", "state": ${text}}`));
  };
  run.apply({ kind: "begin", at: 1, seq: 0 });
  const large = "12345678901234567890";
  write("a", 1, `{"n": 9007199254740991, "m": ${large}, "u": [${large}], "r": {"k": [${large}, "${large}"]}, "f": ${large}, "s": 2}`);
  write("b", 3, `{"n": 2, "m": 7, "u": [${large}, 1], "s": 3}`);
  const [items] = stateRows(run, null);
  assert.deepStrictEqual(Object.fromEntries([...items].map(({ name, text }) => [name, text])), {
    n: "9007199254740993", m: large, u: `[${large},1]`, r: `{"k":[${large},"${large}"]}`, f: "12345678901234567000", s: "5",
  });
});

test("numbers of the state keep a fraction that is zero, whatever merges them", () => {
  const graph = { nodes: [["a", "agent"], ["b", "agent"]], edges: [["a", "b", []]], models: {} };
  const rules = '{"n": ["sum", 0.0], "m": ["max", 5], "u": ["union", null], "r": ["replace", 1.0], "h": ["sum", 0.5], "w": ["sum", 1]}';
  const run = new Run({ graph, ...parseFeed(`{"state": ${rules}}`) });
  const write = (node, seq, text) => {
    run.apply({ kind: "start", at: 1, seq, node });
    run.apply(parseFeed(`{"kind": "finish", "at": 2.0, "seq": ${seq + 1}, "node": "${node}", "state": ${text}}`));
  };
  run.apply({ kind: "begin", at: 1, seq: 0 });
  write("a", 1, '{"n": 2, "m": 7.0, "u": [1.0, 2], "h": 0.5, "w": 2}');
  write("b", 3, '{"m": 6, "u": [1, 2.0, 3.0]}');
  const [items] = stateRows(run, null);
  assert.deepStrictEqual(Object.fromEntries([...items].map(({ name, text }) => [name, text])), {
    n: "2.0", m: "7.0", u: "[1.0,2,3.0]", r: "1.0", h: "1.0", w: "3",
  });
});

test("each kind of line that the feed has is told in words, or is one that needs none", () => {
  const lines = [
    { kind: "map_stopped", at: 3, seq: 0, node: "a", done: 2, cancelled: 1, left: 1200 },
    { kind: "skip", at: 3, seq: 0, node: "a", cause: "upstream_skipped" },
    { kind: "cancel", at: 3, seq: 0, node: "a" },
  ];
  const run = new Run({ graph: { nodes: [["a", "map"]], edges: [] }, state: {} });
  lines.forEach((line) => run.apply(line));
  assert.deepStrictEqual(lines.map(wordsOf), ["2 done, 1 cancelled, 1,200 not begun", "too few before it succeeded", ""]);
  assert.strictEqual(run.rows.get("a").status, "cancelled");
});
