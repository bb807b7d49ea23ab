// What the viewer makes of a model's Markdown: a tree of what it knows, and text of everything else.

import assert from "node:assert";
import test from "node:test";

import { isMarkdown, readInline, readMarkdown } from "../../../visualize/static/markdown.js";

const plain = (value) => JSON.parse(JSON.stringify(value));

test("headings, lists in lists, fences and tables are told apart", () => {
  const blocks = plain(readMarkdown("# A\n\n1. one\n2. two\n   - in\n\n```js\n# no heading\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"));
  assert.deepStrictEqual(blocks.map((each) => each.tag), ["h3", "ol", "pre", "table"]);
  assert.deepStrictEqual(blocks[1].items[1].map((each) => each.tag), ["p", "ul"]);
  assert.strictEqual(blocks[2].text, "# no heading");
  assert.deepStrictEqual(blocks[3].rows, [[["1"], ["2"]]]);
});

test("code in a line that ends in it is no fence, and a heading keeps its signs", () => {
  const blocks = plain(readMarkdown("```print(1)``` is the call.\n\n# Learn C#\n\n## Two ##\n\n# #"));
  assert.deepStrictEqual(blocks[0].parts, [{ tag: "code", text: "print(1)" }, " is the call."]);
  assert.deepStrictEqual(blocks.slice(1).map((each) => each.parts), [["Learn C#"], ["Two"], []]);
});

test("only addresses of the web become links", () => {
  assert.strictEqual(plain(readInline("[x](https://a.b/c)"))[0].href, "https://a.b/c");
  for (const text of ["[x](javascript:alert(1))", "[x](data:text/html,1)", "[x](//a.b)", "[x](JaVaScript:1)"]) {
    assert.ok(plain(readInline(text)).every((each) => each.href === undefined), text);
  }
});

test("markup stays text, and names with underscores stay whole", () => {
  assert.deepStrictEqual(plain(readInline("<img src=x onerror=y>")), ["<img src=x onerror=y>"]);
  assert.deepStrictEqual(plain(readInline("a_long_name and 2*3*4")).filter((each) => each.tag === "em" && each.parts[0] === "long"), []);
});

test("what is unclosed, empty or long ends", () => {
  for (const text of ["", "```", "**", "> ".repeat(500), "|".repeat(3000), "- ".repeat(2000), "[".repeat(20000), "*a ".repeat(20000), "`".repeat(9000), `# a${" ".repeat(5000)}b`, `${"`".repeat(8000)}a`.repeat(2)]) {
    const begun = process.cpuUsage();
    isMarkdown(text);
    readMarkdown(text);
    const spent = process.cpuUsage(begun);
    assert.ok(spent.user + spent.system < 5e6, text.slice(0, 9));
  }
});

test("plain words are no Markdown", () => {
  assert.ok(!isMarkdown("It costs 3 * 4 - 2.\nAnd that is all."));
  assert.ok(isMarkdown("Steps:\n- one\n- two"));
});
