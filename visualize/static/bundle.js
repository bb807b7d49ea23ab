// Several runs in one file: the one that the address names is put in place before the rest of our script looks for it.

import { all, find, need, targetOf } from "./elements.js";

/** What is behind the sign in the address, by its names. A plus is one. */
export function readAddress() {
  return new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
}

/** @type {string | null} the run of the file that is shown; null: their list, or the file of one run, or a page of a server */
let shownRun = null;

/** What stands in an address before the node and the moment. */
export function runPlace() {
  return shownRun === null ? [] : [`run=${encodeURIComponent(shownRun)}`];
}

/** @param {HTMLTemplateElement} template */
function showRun(template) {
  shownRun = template.dataset.run ?? null;
  need("#bundle").replaceWith(template.content);
  document.body.className = "run file";
  document.title = `${template.dataset.title} · FlowEngine`;
}

// Another run, or the list, is the file anew. A link to a node of this run does not name the run.
function hearPlace() {
  const run = readAddress().get("run");
  if (run === shownRun) return;
  if (run === null && location.hash.length > 1) history.replaceState(null, "", `#${[...runPlace(), location.hash.slice(1)].join("&")}`);
  else location.reload();
}

/**
 * Of the list only the runs with these words.
 * @param {string} text
 */
function filterRuns(text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const row of all("#bundle tbody tr")) {
    const content = row.textContent?.toLowerCase() ?? "";
    row.hidden = !words.every((word) => content.includes(word));
  }
}

export function startBundle() {
  /** @type {HTMLTemplateElement[]} */
  const templates = all("template[data-run]");
  if (!templates.length) return;
  const run = readAddress().get("run");
  const template = templates.find(({ dataset }) => dataset.run === run);
  if (template) showRun(template);
  find("#bundle-find")?.addEventListener("input", (event) => filterRuns(/** @type {HTMLInputElement} */ (targetOf(event)).value));
  addEventListener("hashchange", hearPlace);
}
