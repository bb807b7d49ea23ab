// Keys of a list: they are the page's, as long as nothing else is to be pressed.

const test = require("node:test");
const assert = require("node:assert");
const { load } = require("./load.cjs");

function press(key, around) {
  const done = [];
  const chosen = { click: () => done.push("opened") };
  const document = { querySelector: (words) => (words.includes("tr.chosen a") ? chosen : null), querySelectorAll: () => [] };
  const { pressInList } = load(["lists.js"], ["pressInList"], { document });
  const target = { closest: (words) => (words.split(", ").includes(around) ? target : null) };
  pressInList({ key, target, preventDefault: () => done.push("taken") });
  return done;
}

test("Enter opens the chosen row, unless a button, a link or a dialog has the focus", () => {
  assert.deepStrictEqual(press("Enter", "body"), ["taken", "opened"]);
  for (const around of ["a", "button", "summary", "input", "dialog"]) assert.deepStrictEqual(press("Enter", around), [], around);
  assert.deepStrictEqual(press("j", "button"), ["taken"]);
  assert.deepStrictEqual(press("j", "dialog"), []);
});
