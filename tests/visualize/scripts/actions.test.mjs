// The command line of a form, as it is filled in: the same as the server words it (`visualize.viewer.actions`).

import assert from "node:assert";
import test from "node:test";

import { composeCommand, quoteWord } from "../../../visualize/static/actions.js";

const text = (option, value, more = {}) => ({ option, value, kind: "text", ...more });
const compose = (...fields) => composeCommand(["flowengine", "run", "a b.yaml"], fields, ["--store", "x.db"]);

test("a word is quoted as a shell needs it", () => {
  for (const [word, quoted] of [["a-b_c/d.e:f,g=h%i@j+k", "a-b_c/d.e:f,g=h%i@j+k"], ["", "''"], ["it's", "'it'\"'\"'s'"],
    ["$(x) `y`", "'$(x) `y`'"], ["a\nb", "'a\nb'"], ["ü", "'ü'"]]) {
    assert.strictEqual(quoteWord(word), quoted);
  }
});

test("fields are options, and what is empty or unchanged is none", () => {
  assert.strictEqual(compose(), "flowengine run 'a b.yaml' --store x.db");
  assert.strictEqual(compose(text("--model", "m"), text("--max-cost", "")), "flowengine run 'a b.yaml' --model m --store x.db");
  assert.strictEqual(compose(text("-i a=", "1 2"), text("-i b=", "@me")), "flowengine run 'a b.yaml' -i 'a=1 2' -i b=@@me --store x.db");
  assert.strictEqual(compose(text("-i f=@", "a.pdf")), "flowengine run 'a b.yaml' -i f=@a.pdf --store x.db");
  assert.strictEqual(compose(text("-i a=", "x".repeat(3000))), "flowengine run 'a b.yaml' -i a=@a.txt --store x.db");
  assert.strictEqual(compose(text("--label", "a=1\n\n b=2 ", { kind: "list" })), "flowengine run 'a b.yaml' --label a=1 --label b=2 --store x.db");
  assert.strictEqual(compose(text("--reuse r1", "true", { kind: "switch" })), "flowengine run 'a b.yaml' --reuse r1 --store x.db");
  assert.strictEqual(compose({ kind: "verb", value: "submit" }), "flowengine submit 'a b.yaml' --store x.db");
  assert.strictEqual(compose(text("--set a=", "1", { isChange: true })), "flowengine run 'a b.yaml' --store x.db");
  assert.strictEqual(compose(text("--set a=", "1", { isChange: true, isChanged: true })), "flowengine run 'a b.yaml' --set a=1 --store x.db");
});
