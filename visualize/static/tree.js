// The graph's twin, a tree that says the same in words: made when it is first asked for, level by level.

import { part } from "./elements.js";
import { saidOf } from "./node_words.js";
import { SHARED } from "./shared.js";
import { cutTo, shortModel } from "./texts.js";

export class Tree {
  constructor(box, page) {
    Object.assign(this, { box, page });
    this.items = new Map(); // path of a site → its element
    box.addEventListener("click", (event) => {
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      if (event.target.classList.contains("twist")) this.expand(item, item.getAttribute("aria-expanded") !== "true");
      else this.choose(item);
    });
    box.addEventListener("keydown", (event) => this.press(event));
  }

  show() {
    if (!this.items.size) {
      this.fillLevel(this.box, this.page.newest.top, 1);
      this.focusable(this.box.querySelector("[role=treeitem]"));
    }
    this.paint();
    const chosen = this.page.node === null ? null : this.items.get(this.page.siteOf(this.page.node));
    (chosen ?? this.box.querySelector("[tabindex='0']"))?.focus();
  }

  fillLevel(box, level, depth) {
    const next = new Map();
    for (const [source, target, labels] of level.edges) {
      next.set(source, [...(next.get(source) ?? []), labels.length ? `${target} (${labels.join(", ")})` : target]);
    }
    for (const site of level.sites.values()) {
      const item = document.createElement("div");
      item.setAttribute("role", "treeitem");
      item.setAttribute("aria-level", String(depth));
      item.setAttribute("aria-selected", "false");
      item.tabIndex = -1;
      item.dataset.path = site.path;
      if (site.body) item.setAttribute("aria-expanded", "false");
      const line = part("line", "");
      line.style.paddingLeft = `${(depth - 1) * 18}px`;
      const ways = next.get(site.id);
      line.append(
        part("twist", site.body ? "▸" : ""), part("glyph", ""), part("name", ` ${cutTo(site.id, 60)} `),
        part("said soft", ""), part("ways soft", ways ? ` → ${cutTo(ways.join(", "), 80)}` : ""),
      );
      item.append(line);
      box.append(item);
      this.items.set(site.path, item);
    }
  }

  expand(item, isOpen) {
    const site = this.page.newest.sites.get(item.dataset.path);
    if (!site?.body) return;
    item.setAttribute("aria-expanded", String(isOpen));
    item.querySelector(".twist").textContent = isOpen ? "▾" : "▸";
    let group = item.querySelector(":scope > [role=group]");
    if (!group && isOpen) {
      group = document.createElement("div");
      group.setAttribute("role", "group");
      item.append(group);
      this.fillLevel(group, site.body, Number(item.getAttribute("aria-level")) + 1);
      this.paint();
    }
    if (group) group.hidden = !isOpen;
  }

  paint() {
    if (this.box.hidden) return;
    const chosen = this.page.node === null ? null : this.page.siteOf(this.page.node);
    const { shown: run } = this.page;
    const now = this.page.isGoing() ? Date.now() / 1000 : run.last;
    for (const [path, item] of this.items) {
      const site = run.sites.get(path);
      const said = saidOf(run, site, now, site.parent === null ? null : this.page.graph.statuses?.get(site.parent));
      const [glyph, words] = [item.querySelector(".glyph"), item.querySelector(".said")];
      const text = [site.kind, said.model && shortModel(said.model), said.standing.replace(/^\S+ /, ""), said.detail].filter(Boolean).join(" · ");
      if (words.textContent !== text) words.textContent = text;
      if (glyph.textContent !== SHARED.glyphs[said.status]) glyph.textContent = SHARED.glyphs[said.status];
      glyph.className = `glyph s-${said.status}`;
      item.setAttribute("aria-selected", String(path === chosen));
      item.classList.toggle("chosen", path === chosen);
    }
  }

  choose(item) {
    this.focusable(item);
    this.page.choose(this.page.pathOfSite(item.dataset.path));
    this.paint();
  }

  focusable(item) {
    for (const each of this.box.querySelectorAll("[tabindex='0']")) each.tabIndex = -1;
    if (item) item.tabIndex = 0;
  }

  press(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...this.box.querySelectorAll("[role=treeitem]")].filter((each) => !each.closest("[role=group][hidden]"));
    const isOpen = item.getAttribute("aria-expanded") === "true";
    const around = item.parentElement.closest("[role=treeitem]");
    const go = (to) => { if (to) { this.focusable(to); to.focus(); } };
    const act = {
      ArrowDown: () => go(all[all.indexOf(item) + 1]),
      ArrowUp: () => go(all[all.indexOf(item) - 1]),
      ArrowRight: () => (isOpen ? go(item.querySelector("[role=treeitem]")) : this.expand(item, true)),
      ArrowLeft: () => (isOpen ? this.expand(item, false) : go(around)),
      Home: () => go(all[0]),
      End: () => go(all.at(-1)),
      Enter: () => this.choose(item),
      " ": () => this.choose(item),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
