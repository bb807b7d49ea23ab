// What the tab says of a run while it goes on: the sign before its title, and its icon. And what is opened for paper.

const ICON_SHAPES = {
  running: "<path d='M5 3l9 5-9 5z'/>",
  succeeded: "<path d='M3 9l4 4 7-10' fill='none' stroke-width='3'/>",
  failed: "<path d='M3 3l10 10M13 3L3 13' fill='none' stroke-width='3'/>",
  waiting: "<circle cx='8' cy='8' r='6' fill='none' stroke-width='3'/><circle cx='8' cy='8' r='2'/>",
};

// The icon that the server drew, with another shape and colour.
function redrawIcon(address, status, colour) {
  const shape = ICON_SHAPES[status] ?? "<circle cx='8' cy='8' r='5'/>";
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

const statusBadge = document.querySelector("#status .badge");
if (statusBadge) new MutationObserver(() => showHeadline(statusBadge)).observe(statusBadge, { childList: true });

// Paper cannot be clicked at: what is folded is open on it, and as it was afterwards.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open])")) {
    each.open = true;
    each.dataset.forPaper = "";
  }
});
addEventListener("afterprint", () => {
  for (const each of document.querySelectorAll("details[data-for-paper]")) {
    each.open = false;
    delete each.dataset.forPaper;
  }
});
