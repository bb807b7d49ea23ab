// Keys of a list: they are the page's, as long as nothing else is to be pressed.

import assert from "node:assert";
import test from "node:test";

import { LiveList, pressInList } from "../../../visualize/static/lists.js";

function press(key, around) {
  const done = [];
  const chosen = { click: () => done.push("opened") };
  globalThis.document = { querySelector: (words) => (words.includes("tr.chosen a") ? chosen : null), querySelectorAll: () => [] };
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

test("a list whose server is away says so, and goes on when it is back", async (t) => {
  const answers = [null, { ok: false, status: 503, text: async () => "" }, null, { ok: true, status: 200, text: async () => "new" }];
  const shown = [];
  const banners = [];
  const list = {
    contains: () => false, before: (each) => banners.push(each), querySelectorAll: () => [],
    replaceChildren: (...rows) => shown.push(...rows),
  };
  globalThis.DOMParser = class {
    parseFromString(text) {
      const fresh = text && { innerHTML: text, childNodes: [text] };
      return { querySelector: () => fresh, getElementById: () => null };
    }
  };
  globalThis.document = {
    activeElement: null, createElement: () => ({ setAttribute() {}, hidden: false }), querySelector: () => null, querySelectorAll: () => [],
  };
  globalThis.location = { href: "/" };
  t.mock.method(globalThis, "fetch", async () => answers.shift() ?? Promise.reject(new Error("refused")));
  const later = [];
  t.mock.method(globalThis, "setTimeout", (act) => later.push(act));
  new LiveList(list, null).keepRenewing();
  const states = [];
  while (answers.length) {
    later.shift()();
    while (!later.length) await new Promise(setImmediate);
    states.push(banners[0].hidden ? "" : banners[0].textContent.split(/[.,]/)[0]);
  }
  assert.deepStrictEqual(states, ["The server cannot be reached", "The server answers 503", "The server cannot be reached", ""]);
  assert.deepStrictEqual([shown, banners.length], [["new"], 1]);
});
