// Sizes within their bounds, and what a browser has kept, whatever that is.

import assert from "node:assert";
import test from "node:test";

import { fitSize, readSizes } from "../../../visualize/static/layout.js";

const kept = (text) => ({ ...readSizes(text) });

test("a part is never smaller than it is of use, nor larger than its share", () => {
  assert.strictEqual(fitSize("panel", 10, 1400), 280);
  assert.strictEqual(fitSize("panel", 5000, 1400), 1050);
  assert.strictEqual(fitSize("panel", 5000, 100), 280);
  assert.strictEqual(fitSize("below", 200.4, 800), 200);
});

test("what was kept counts where it fits, and nothing else does", () => {
  assert.deepStrictEqual(kept('{"panel": 400, "isFolded": true}'), { panel: 400, below: null, isFolded: true });
  for (const text of [null, "", "{", "3", "[]", '{"panel": "wide", "below": null, "isFolded": 1}', '{"panel": 1e999}']) {
    assert.deepStrictEqual(kept(text), { panel: null, below: null, isFolded: false }, String(text));
  }
});
