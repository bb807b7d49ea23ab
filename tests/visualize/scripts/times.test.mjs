// Bars until a moment, and a scale that leaves out what took long without anything running.

import assert from "node:assert";
import test from "node:test";

import { cutName, dollars, secondsText } from "../../../visualize/static/texts.js";
import { Clock, partsOf, partsText, stepOf, Times } from "../../../visualize/static/times.js";

const DAY = 86400;
const plain = {
  begun: 1000, end: 1000 + DAY + 6, parts: {}, breaks: [[4, 4, DAY + 4, "asked"]],
  rows: { a: [["failed", [[2, 0, 1]], "attempt 1: no"], ["succeeded", [[2, 1, 2, "backoff"], [0, 2, 4]], ""]], ask: [["waiting", [[4, 4, DAY + 4]], ""]] },
};
const row = (id, more) => ({ id, status: "succeeded", started: 1000, ended: 1004, cause: null, ...more });
const shape = (bars) => bars.map((bar) => [bar.status, ...bar.spans.map((span) => [span.part, span.start - 1000, span.end - 1000])]);
const same = (one, other) => assert.strictEqual(JSON.stringify(one), JSON.stringify(other));

test("what was paid is never shown as nothing, in the words of core/records.py", () => {
  const shown = ["$0", "$1,234.50", "$0.25", "$0.0012", "$0.000034", "under $0.000001"];
  assert.deepStrictEqual([0, 1234.5, 0.25, 0.0012, 0.0000345, 1e-9].map(dollars), shown);
});

test("a duration is rounded, in the words of core/records.py", () => {
  const shown = {
    "-1": "0 ms", 0.9994: "999 ms", 0.9996: "1.0 s", 59.94: "59.9 s", 59.96: "1 min 0 s", 119.6: "2 min 0 s",
    150.5: "2 min 31 s", 3599.6: "1 h 0 min", 7199: "2 h 0 min", 86390: "1 d 0 h", 266400: "3 d 2 h", 90000000: "1,041 d 16 h",
  };
  for (const [seconds, text] of Object.entries(shown)) assert.strictEqual(secondsText(Number(seconds)), text);
});

test("a name is cut in the middle, before its count, and once", () => {
  assert.deepStrictEqual(["step_01", "step_02 ×3 of 9", "a_long_nam…", "step"].map((name) => cutName(name, 6)), ["ste…01", "s…2 ×3", "a_lon…", "step"]);
});

test("a row has its attempts, as far as they had come", () => {
  const times = new Times(plain);
  same(shape(times.bars(row("a"), 1010)), [["failed", ["retried", 0, 1]], ["succeeded", ["retried", 1, 2], ["worked", 2, 4]]]);
  same(shape(times.bars(row("a", { status: "running", ended: null }), 1001.5)), [["failed", ["retried", 0, 1]], ["running", ["retried", 1, 1.5]]]);
  same(shape(times.bars(row("b", { ended: 1003 }), 1010)), [["succeeded", ["worked", 0, 3]]]);
  same(shape(times.bars(row("b", { status: "skipped" }), 1010)), []);
  same(shape(times.bars(row("constructor", { status: "pending", started: null }), 1010)), []);
});

test("who still waits does so until now, and who has been answered until then", () => {
  const times = new Times(plain);
  same(shape(times.bars(row("ask", { status: "waiting", ended: null }), 1000 + 2 * DAY)), [["waiting", ["waited", 4, 2 * DAY]]]);
  same(shape(times.bars(row("ask", { ended: 1000 + DAY }), 1000 + 2 * DAY)), [["succeeded", ["waited", 4, DAY]]]);
});

test("a day without work is as wide as a twentieth of the work", () => {
  const clock = new Clock({ begun: 1000, last: 1000 + DAY + 6, breaks: [] }, null, new Times(plain));
  assert.ok(Math.abs(clock.length - 6.3) < 1e-6);
  assert.ok(Math.abs(clock.at(1000 + DAY + 4) - 4.3) < 1e-6);
  assert.strictEqual(clock.elapsed(2), 2);
  assert.strictEqual(clock.elapsed(4.1), null);
  assert.ok(Math.abs(clock.elapsed(5.3) - (DAY + 5)) < 1e-6);
  assert.strictEqual(new Clock({ begun: 1000, last: 1003, breaks: [] }, null, new Times(plain)).breaks.length, 0);
});

test("parts are told where not all was work", () => {
  const bars = new Times(plain).bars(row("a"), 1010);
  assert.strictEqual(partsText(partsOf(bars)), "worked 2.0 s, retried 2.0 s");
  assert.strictEqual(partsText({ worked: 3 }), "");
});

test("the marks of a scale are at round times", () => {
  const steps = { 0.03: 0.05, 3: 5, 50: 50, 51: 60, 61: 120, 1000: 1800, 40000: 43200, 50000: DAY, 4700000: 100 * DAY };
  for (const [least, step] of Object.entries(steps)) assert.ok(Math.abs(stepOf(Number(least)) - step) < 1e-9, least);
});
