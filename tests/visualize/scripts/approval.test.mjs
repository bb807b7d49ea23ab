// How long is left to answer, in words.

import assert from "node:assert";
import test from "node:test";

import { leftText } from "../../../visualize/static/approval.js";

test("the two largest units are told, and an end that is past", () => {
  assert.strictEqual(leftText(90061), "1 d 1 h left");
  assert.strictEqual(leftText(3600), "1 h left");
  assert.strictEqual(leftText(250.9), "4 min 10 s left");
  assert.strictEqual(leftText(0.4), "less than a second left");
  assert.strictEqual(leftText(-5), "its time is up");
});
