// How long is left to answer, in words.

import assert from "node:assert";
import test from "node:test";

import { countdownText } from "../../../visualize/static/approval.js";

test("the two largest units are told, and an end that is past", () => {
  assert.strictEqual(countdownText(90061), "1 d 1 h left");
  assert.strictEqual(countdownText(3600), "1 h left");
  assert.strictEqual(countdownText(250.9), "4 min 10 s left");
  assert.strictEqual(countdownText(0.4), "less than a second left");
  assert.strictEqual(countdownText(-5), "its time is up");
});
