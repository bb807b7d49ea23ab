// Which forms a value can be shown in, the best one first.

const test = require("node:test");
const assert = require("node:assert");
const { load } = require("./load.cjs");

const { formsOf, columnsOf } = load(["markdown.js", "values.js"], ["formsOf", "columnsOf"]);
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
  for (const text of ["null", "3", "true", '"text"', "", "NaN"]) assert.deepStrictEqual(forms(text), ["text"], text);
});
