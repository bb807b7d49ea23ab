// Which forms a value can be shown in, the best one first.

import assert from "node:assert";
import test from "node:test";

import { parseFeed, toJson } from "../../../visualize/static/exact_json.js";
import { columnsOf, formsOf, leafOf } from "../../../visualize/static/values.js";

globalThis.document = { createElement: () => ({}) };
const forms = (text, kind = "json") => [...formsOf(text, kind).forms];

test("a list of like objects is a table, messages are a chat, anything else of JSON a tree", () => {
  assert.deepStrictEqual(forms('[{"a": 1}, {"a": 2, "b": 3}]'), ["table", "tree", "raw"]);
  assert.deepStrictEqual(forms('[{"role": "user", "content": "hi"}]'), ["chat", "tree", "raw"]);
  assert.deepStrictEqual(forms('{"a": [1]}'), ["tree", "raw"]);
  assert.deepStrictEqual([...columnsOf([{ a: 1 }, { b: 2, a: 3 }])], ["a", "b"]);
});

test("JSON in a text is read, text that is none stays text", () => {
  assert.deepStrictEqual(forms('{"a": 1}', "text"), ["tree", "raw"]);
  assert.deepStrictEqual(forms('{"a": 1', "text"), ["text"]);
  assert.deepStrictEqual(forms("# Title\n\ntext", "text"), ["markdown", "text"]);
  for (const text of ["# Title", "- a: **b**", "{a: 1}"]) assert.deepStrictEqual(forms(text, "source"), ["text"], text);
  for (const text of ["null", "3", "true", '"text"', "", "NaN"]) assert.deepStrictEqual(forms(text), ["text"], text);
});

test("large whole numbers keep every digit, and texts that look like them stay texts", () => {
  const text = '{"a": [12345678901234567890, -98765432109876543], "b": "12345678901234567890 \\" 9", "c": 1.2345678901234567, "d": 5}';
  const { value } = formsOf(text, "json");
  assert.deepStrictEqual([...value.a].map((each) => leafOf(each).textContent), ["12345678901234567890", "-98765432109876543"]);
  assert.deepStrictEqual([value.b, value.c, value.d], ['12345678901234567890 " 9', 1.2345678901234567, 5]);
  assert.strictEqual(leafOf(value.a[0]).className, "leaf number");
  assert.deepStrictEqual(forms('{"a": 012345678901234567890}', "text"), ["text"]);
  const forged = formsOf('{"a": "\uE000whole number x", "b": "whole number 5", "c": 12345678901234567890}', "json").value;
  assert.deepStrictEqual([forged?.a, forged?.b], ["\uE000whole number x", "whole number 5"]);
});

test("a long text that is no JSON is told so at once", () => {
  const begun = process.cpuUsage();
  assert.deepStrictEqual(forms(`{1234567890123456${'\\"'.repeat(100000)}`, "text"), ["text"]);
  const spent = process.cpuUsage(begun);
  assert.ok(spent.user + spent.system < 5e6);
});

test("a number whose fraction is zero is shown with it, and is one value", () => {
  const { value } = formsOf('{"a": 1.0, "b": [-20.0, 1], "c": "1.0", "d": 1.05, "e": 1.0e3}', "json");
  const shown = [value.a, ...value.b, value.c, value.d, value.e].map((each) => leafOf(each).textContent);
  assert.deepStrictEqual(shown, ["1.0", "-20.0", "1", "1.0", "1.05", "1000"]);
  assert.strictEqual(leafOf(value.a).className, "leaf number");
  assert.strictEqual(toJson(value), '{"a":1.0,"b":[-20.0,1],"c":"1.0","d":1.05,"e":1000}');
  assert.deepStrictEqual(forms("1.0"), ["text"]);
});

test("of a line of the feed only the shared state has such numbers", () => {
  const line = parseFeed('{"kind": "finish", "at": 2.0, "state": {"n": 2.0, "large": 12345678901234567890}}');
  assert.deepStrictEqual([line.at, toJson(line.state)], [2, '{"n":2.0,"large":12345678901234567890}']);
  const [first, second] = parseFeed('[{"at": 1.0}, {"at": 2.0, "state": {"n": 3.0}}]');
  assert.deepStrictEqual([first.at, second.at, toJson(second.state)], [1, 2, '{"n":3.0}']);
});
