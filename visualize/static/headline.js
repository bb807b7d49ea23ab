// What the tab says of a run while it goes on: the sign before its title, and its icon. And what is opened for paper.

import { all, find } from "./elements.js";
import { SHARED } from "./shared.js";

/**
 * The icon that the server drew, with another shape and colour.
 * @param {string} address
 * @param {string} status
 * @param {string} colour
 */
function redrawIcon(address, status, colour) {
  const shape = SHARED.tabShapes[status] ?? SHARED.tabShapes[""];
  const at = address.indexOf(",") + 1;
  const icon = decodeURIComponent(address.slice(at));
  return address.slice(0, at) + encodeURIComponent(icon.replace(/<g .*<\/g>/, `<g fill='${colour}' stroke='${colour}'>${shape}</g>`));
}

/**
 * The title with the sign of a status before it, in place of the one that it had.
 * @param {string} title
 * @param {string} sign
 */
function signTitle(title, sign) {
  return title.replace(/^(\S )?/u, `${sign} `);
}

/** @param {HTMLElement} badge */
function showHeadline(badge) {
  const [sign, status] = (badge.textContent ?? "").split(" ");
  const title = signTitle(document.title, sign);
  if (document.title === title) return;
  document.title = title;
  /** @type {HTMLLinkElement | null} */
  const icon = find("#icon");
  if (icon) icon.href = redrawIcon(icon.href, status, getComputedStyle(badge).borderTopColor);
}

export function startHeadline() {
  const badge = find("#status .badge");
  if (badge) new MutationObserver(() => showHeadline(badge)).observe(badge, { childList: true });
  addEventListener("beforeprint", unfoldForPaper);
  addEventListener("afterprint", foldAfterPaper);
}

/**
 * @param {string} selector
 * @returns {HTMLDetailsElement[]}
 */
function folds(selector) {
  return all(selector);
}

// Paper cannot be clicked at: what is folded is open on it, and as it was afterwards.
function unfoldForPaper() {
  for (const fold of folds("details:not([open])")) {
    fold.open = true;
    fold.dataset.forPaper = "";
  }
}

function foldAfterPaper() {
  for (const fold of folds("details[data-for-paper]")) {
    fold.open = false;
    delete fold.dataset.forPaper;
  }
}
