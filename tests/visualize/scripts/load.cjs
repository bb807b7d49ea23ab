// Loads scripts of the viewer, which share one scope in a page, and gives some of their names.

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const vm = require("node:vm");

exports.load = (files, names, more = {}) => {
  const folder = join(__dirname, "..", "..", "..", "visualize", "static");
  const text = files.map((name) => readFileSync(join(folder, name), "utf8")).join("\n");
  return vm.runInNewContext(`"use strict"; ${text}\n;({ ${names.join(", ")} })`, { performance, ...more });
};
