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

// The same page again, and its rows in place of ours; what is chosen stays chosen.
async function renew() {
  const focused = document.activeElement;
  const isBox = focused?.type === "checkbox";
  if (document.hidden || (list.contains(focused) && !isBox)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-list]");
    const presets = page.getElementById("presets");
    if (presets) document.getElementById("presets")?.replaceChildren(...presets.childNodes);
    if (!fresh || fresh.innerHTML === renew.last) return;
    renew.last = fresh.innerHTML;
    const chosen = document.querySelector("[data-list] tr.chosen a")?.getAttribute("href");
    list.replaceChildren(...fresh.childNodes);
    selectionBar?.paint();
    if (isBox) [...list.querySelectorAll("[name=run]")].find((box) => box.value === focused.value)?.focus();
    for (const row of openRows()) row.classList.toggle("chosen", chosen !== undefined && row.querySelector("a")?.getAttribute("href") === chosen);
  } catch {
    // The server is away for now; the next time will tell.
  }
}

if (list) {
  document.addEventListener("keydown", pressInList);
  if (list.dataset.list === "live") setInterval(renew, 2000);
}
