// The lists of runs and flows: keys, and the list that renews itself.

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

export function pressInList(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const link = document.querySelector("[data-list] tr.chosen a");
  const act = {
    x: () => document.querySelector("[data-list] tr.chosen [name=run]")?.click(),
    j: () => moveIn(1), k: () => moveIn(-1), "/": () => document.querySelector("[type=search]")?.focus(),
    // What has the focus is pressed itself.
    Enter: link && !event.target.closest("a, button, summary") ? () => link.click() : undefined,
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

const RENEW_EVERY = 2000;
const LOST_AFTER = 10_000;

// Puts the rows of the same page, asked for again, in place of the list's own.
export class LiveList {
  constructor(list, selectionBar) {
    this.list = list;
    this.selectionBar = selectionBar;
    this.renewedAt = new Date();
    this.banner = null; // that the list is not renewed, once that was so
    this.last = ""; // the rows as the server sent them last
  }

  // `why` the list is not renewed; "" where it is again.
  showAway(why) {
    if (!this.banner && why) {
      this.banner = document.createElement("div");
      this.banner.className = "banner";
      this.banner.setAttribute("role", "status");
      this.list.before(this.banner);
    }
    const text = why && `${why}. The list is as it was at ${this.renewedAt.toLocaleTimeString()}; it is tried again.`;
    if (!this.banner || this.banner.textContent === text) return;
    this.banner.textContent = text;
    this.banner.hidden = !why;
  }

  // The same page again, parsed; null, and why on the page, where there is none.
  async fetchPage() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(LOST_AFTER) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok && page.querySelector("[data-list]")) return page;
      this.showAway(`The server answers ${answer.status}, and gives no list`);
    } catch {
      this.showAway("The server cannot be reached");
    }
    return null;
  }

  // What is chosen stays chosen.
  async renew() {
    const { list } = this;
    const focus = document.activeElement;
    const isBox = focus?.type === "checkbox";
    if (document.hidden || (list.contains(focus) && !isBox)) return;
    const page = await this.fetchPage();
    if (!page) return;
    this.renewedAt = new Date();
    this.showAway("");
    const fresh = page.querySelector("[data-list]");
    const presets = page.getElementById("presets");
    if (presets) document.getElementById("presets")?.replaceChildren(...presets.childNodes);
    if (fresh.innerHTML === this.last) return;
    this.last = fresh.innerHTML;
    const href = document.querySelector("[data-list] tr.chosen a")?.getAttribute("href");
    list.replaceChildren(...fresh.childNodes);
    this.selectionBar?.paint();
    if (isBox) [...list.querySelectorAll("[name=run]")].find((box) => box.value === focus.value)?.focus();
    for (const row of openRows()) row.classList.toggle("chosen", href !== undefined && row.querySelector("a")?.getAttribute("href") === href);
  }

  // One request after the other, so that a slow server is not asked for several at once.
  keepRenewing() {
    setTimeout(() => this.renew().finally(() => this.keepRenewing()), RENEW_EVERY);
  }
}

export function startList(selectionBar) {
  const list = document.querySelector("[data-list]");
  if (!list) return;
  document.addEventListener("keydown", pressInList);
  if (list.dataset.list === "live") new LiveList(list, selectionBar).keepRenewing();
}
