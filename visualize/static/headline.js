// What the tab says of a run while it goes on: the sign before its title, and its icon. And what is opened for paper.

import { SHARED } from "./shared.js";

// The icon that the server drew, with another shape and colour.
function redrawIcon(address, status, colour) {
  const shape = SHARED.tabShapes[status] ?? SHARED.tabShapes[""];
  const [kind, drawn] = [address.slice(0, address.indexOf(",") + 1), decodeURIComponent(address.slice(address.indexOf(",") + 1))];
  return kind + encodeURIComponent(drawn.replace(/<g .*<\/g>/, `<g fill='${colour}' stroke='${colour}'>${shape}</g>`));
}

// The title with the sign of a status before it, in place of the one that it had.
function signTitle(title, sign) {
  return title.replace(/^(\S )?/u, `${sign} `);
}

function showHeadline(badge) {
  const [sign, status] = badge.textContent.split(" ");
  const title = signTitle(document.title, sign);
  if (document.title === title) return;
  document.title = title;
  const icon = document.getElementById("icon");
  if (icon) icon.href = redrawIcon(icon.href, status, getComputedStyle(badge).borderTopColor);
}

export function startHeadline() {
  const badge = document.querySelector("#status .badge");
  if (badge) new MutationObserver(() => showHeadline(badge)).observe(badge, { childList: true });
  addEventListener("beforeprint", unfoldForPaper);
  addEventListener("afterprint", foldAfterPaper);
}

// Paper cannot be clicked at: what is folded is open on it, and as it was afterwards.
function unfoldForPaper() {
  for (const fold of document.querySelectorAll("details:not([open])")) {
    fold.open = true;
    fold.dataset.forPaper = "";
  }
}

function foldAfterPaper() {
  for (const fold of document.querySelectorAll("details[data-for-paper]")) {
    fold.open = false;
    delete fold.dataset.forPaper;
  }
}
