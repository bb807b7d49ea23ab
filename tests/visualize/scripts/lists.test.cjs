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

test("a list whose server is away says so, and goes on when it is back", async () => {
  const answers = [null, { ok: false, status: 503, text: async () => "" }, null, { ok: true, status: 200, text: async () => "new" }];
  const shown = [];
  const banners = [];
  const list = {
    dataset: { list: "live" }, contains: () => false, before: (each) => banners.push(each), querySelectorAll: () => [],
    replaceChildren: (...rows) => shown.push(...rows),
  };
  class DOMParser {
    parseFromString(text) {
      const fresh = text && { innerHTML: text, childNodes: [text] };
      return { querySelector: () => fresh, getElementById: () => null };
    }
  }
  const later = [];
  const document = {
    addEventListener() {}, activeElement: null, createElement: () => ({ setAttribute() {}, hidden: false }),
    querySelector: (words) => (words === "[data-list]" ? list : null), querySelectorAll: () => [],
  };
  const fetch = async () => answers.shift() ?? Promise.reject(new Error("refused"));
  const page = { document, DOMParser, fetch, AbortSignal, location: { href: "/" }, setTimeout: (act) => later.push(act), selectionBar: null };
  load(["lists.js"], [], page);
  const states = [];
  while (answers.length) {
    later.shift()();
    while (!later.length) await new Promise(setImmediate);
    states.push(banners[0].hidden ? "" : banners[0].textContent.split(/[.,]/)[0]);
  }
  assert.deepStrictEqual(states, ["The server cannot be reached", "The server answers 503", "The server cannot be reached", ""]);
  assert.deepStrictEqual([shown, banners.length], [["new"], 1]);
});
