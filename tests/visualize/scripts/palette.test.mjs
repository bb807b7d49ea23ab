// What a few letters find, where boxes go, and how long a run may still take.

import assert from "node:assert";
import test from "node:test";

import { arrangeBoxes, curveOf } from "../../../visualize/static/arrange.js";
import { Folding } from "../../../visualize/static/foldgraph.js";
import { timeLeft } from "../../../visualize/static/live.js";
import { bestOf } from "../../../visualize/static/palette.js";

const names = (entries) => [...entries].map((each) => each.name);

test("words are found anywhere, beginnings first, and letters may be left out", () => {
  const entries = ["Resume the run", "Compare with the run before", "draft", "polish.judge"].map((name) => ({ name }));
  assert.deepStrictEqual(names(bestOf(entries, "")), names(entries));
  assert.deepStrictEqual(names(bestOf(entries, "run")), ["Resume the run", "Compare with the run before"]);
  assert.deepStrictEqual(names(bestOf(entries, "JUDGE")), ["polish.judge"]);
  assert.deepStrictEqual(names(bestOf(entries, "rsm")), ["Resume the run"]);
  assert.deepStrictEqual(names(bestOf(entries, "run before")), ["Compare with the run before"]);
  assert.deepStrictEqual(names(bestOf(entries, "nothing like it")), []);
});

test("a graph is placed row by row, and a body inside of its container", () => {
  const nodes = [{ parent: null, size: [80, 30] }, { parent: null, size: [80, 30] }, { parent: 1, size: [60, 20] }];
  const { boxes, paths, open } = arrangeBoxes(nodes, [[0, 1]]);
  assert.ok(boxes[0].y < boxes[1].y);
  assert.deepStrictEqual([...open], [1]);
  assert.ok(Math.abs(boxes[2].y - boxes[1].y) < boxes[1].height / 2);
  assert.strictEqual(paths[0].at(-1)[1], boxes[1].y - boxes[1].height / 2);
  assert.match(curveOf(paths[0]), /^M[\d.]+ [\d.]+ L/);
  assert.strictEqual(arrangeBoxes([], []).boxes.length, 0);
  assert.doesNotThrow(() => arrangeBoxes(nodes, [[0, 1], [1, 0], [0, 0]]));
});

test("a run takes as long as its longest way that is left", () => {
  const row = (status, started = null) => ({ status, started });
  const run = {
    top: { sites: new Map([["a"], ["b"], ["c"], ["d"]].map(([id]) => [id, { id }])), edges: [["a", "b", []], ["a", "c", []], ["b", "d", []], ["c", "d", []]] },
    rows: new Map([["a", row("succeeded", 0)], ["b", row("running", 10)], ["c", row("running", 10)], ["d", row("pending")]]),
  };
  assert.strictEqual(timeLeft(run, { a: 5, b: 4, c: 9, d: 2 }, 12), 9);
  assert.strictEqual(timeLeft(run, { b: 4, d: 2 }, 60), 2);
  assert.strictEqual(timeLeft(run, {}, 12), null);
});

test("of a large graph so much is unfolded as can be shown; what was unfolded first gives way", () => {
  const folding = Object.create(Folding.prototype);
  const parents = [null, null, null, ...Array.from({ length: 2700 }, (_, at) => at % 3)];
  const isContainer = parents.map((_, at) => at < 3);
  Object.assign(folding, { parents, isContainer, shut: new Set([0, 1, 2]), opened: [], head: { sizes: [1] }, graph: {}, place: () => {} });
  folding.toggle(0);
  folding.toggle(1);
  assert.deepStrictEqual([...folding.shut], [2]);
  folding.toggle(2);
  assert.deepStrictEqual([...folding.shut], [0]);
  folding.reveal(3);
  assert.deepStrictEqual([...folding.shut], [1]);
  folding.foldAll(true);
  assert.strictEqual(folding.countShown(), 3);
  folding.foldAll(false);
  assert.deepStrictEqual([folding.countShown(), ...folding.shut], [1803, 2]);
  folding.graph.isCompact = true;
  folding.foldAll(false);
  assert.strictEqual(folding.countShown(), 2703);
});
