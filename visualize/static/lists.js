// The lists of runs and flows: keys, and the list that renews itself.

const list = document.querySelector("[data-list]");

function openRows() {
  return [...document.querySelectorAll("[data-list] tbody tr")];
}

function moveIn(by) {
  const rows = openRows();
  const number = rows.findIndex((row) => row.classList.contains("chosen"));
  const to = Math.min(rows.length - 1, Math.max(0, number + by));
  if (!rows.length) return;
  if (number >= 0) rows[number].classList.remove("chosen");
  rows[to].classList.add("chosen");
  rows[to].scrollIntoView({ block: "nearest" });
}

function pressInList(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const chosen = document.querySelector("[data-list] tr.chosen a");
  const act = {
    x: () => document.querySelector("[data-list] tr.chosen [name=run]")?.click(),
    j: () => moveIn(1), k: () => moveIn(-1), "/": () => document.querySelector("[type=search]")?.focus(),
    // What has the focus is pressed itself.
    Enter: chosen && !event.target.closest("a, button, summary") ? () => chosen.click() : undefined,
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

const RENEW_EVERY = 2000;
const LOST_AFTER = 10_000;
let renewedAt = new Date();
let banner = null; // that the list is not renewed, once that was so

// `why` the list is not renewed; "" where it is again.
function sayAway(why) {
  if (!banner && why) {
    banner = document.createElement("div");
    banner.className = "banner";
    banner.setAttribute("role", "status");
    list.before(banner);
  }
  const text = why && `${why}. The list is as it was at ${renewedAt.toLocaleTimeString()}; it is tried again.`;
  if (!banner || banner.textContent === text) return;
  banner.textContent = text;
  banner.hidden = !why;
}

// The same page again, parsed; null, and why on the page, where there is none.
async function fetchAnew() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(LOST_AFTER) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok && page.querySelector("[data-list]")) return page;
    sayAway(`The server answers ${answer.status}, and gives no list`);
  } catch {
    sayAway("The server cannot be reached");
  }
  return null;
}

// Its rows in place of ours; what is chosen stays chosen.
async function renew() {
  const focused = document.activeElement;
  const isBox = focused?.type === "checkbox";
  if (document.hidden || (list.contains(focused) && !isBox)) return;
  const page = await fetchAnew();
  if (!page) return;
  renewedAt = new Date();
  sayAway("");
  const fresh = page.querySelector("[data-list]");
  const presets = page.getElementById("presets");
  if (presets) document.getElementById("presets")?.replaceChildren(...presets.childNodes);
  if (fresh.innerHTML === renew.last) return;
  renew.last = fresh.innerHTML;
  const chosen = document.querySelector("[data-list] tr.chosen a")?.getAttribute("href");
  list.replaceChildren(...fresh.childNodes);
  selectionBar?.paint();
  if (isBox) [...list.querySelectorAll("[name=run]")].find((box) => box.value === focused.value)?.focus();
  for (const row of openRows()) row.classList.toggle("chosen", chosen !== undefined && row.querySelector("a")?.getAttribute("href") === chosen);
}

// One after the other, so that a slow server is not asked for several at once.
function keepRenewing() {
  renew().finally(() => setTimeout(keepRenewing, RENEW_EVERY));
}

if (list) {
  document.addEventListener("keydown", pressInList);
  if (list.dataset.list === "live") setTimeout(keepRenewing, RENEW_EVERY);
}
