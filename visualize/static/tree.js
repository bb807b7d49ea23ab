// The graph's twin, a tree that says the same in words: made when it is first asked for, level by level.

import { all, closestTo, find, need, part, targetOf } from "./elements.js";
import { listAt } from "./fold.js";
import { describeSite } from "./node_words.js";
import { SHARED } from "./shared.js";
import { cutTo, shortModel } from "./texts.js";

/** @import { RunPage } from "./run.js" */
/** @import { Level } from "./types.d.ts" */

const TREE_ITEM = "[role=treeitem]";

export class Tree {
  /**
   * @param {HTMLElement} box
   * @param {RunPage} page
   */
  constructor(box, page) {
    this.box = box;
    this.page = page;
    /** @type {Map<string, HTMLElement>} path of a site → its element */
    this.items = new Map();
    box.addEventListener("click", (event) => {
      const item = closestTo(event, TREE_ITEM);
      if (!item) return;
      if (targetOf(event).classList.contains("twist")) this.expand(item, item.getAttribute("aria-expanded") !== "true");
      else this.choose(item);
    });
    box.addEventListener("keydown", (event) => this.press(event));
  }

  show() {
    if (!this.items.size) {
      this.fillLevel(this.box, this.page.newest.top, 1);
      this.setFocusable(find(TREE_ITEM, this.box));
    }
    this.paint();
    const chosen = this.page.node === null ? null : this.items.get(this.page.siteOf(this.page.node));
    (chosen ?? find("[tabindex='0']", this.box))?.focus();
  }

  /**
   * @param {HTMLElement} box
   * @param {Level} level
   * @param {number} depth
   */
  fillLevel(box, level, depth) {
    /** @type {Map<string, string[]>} */
    const next = new Map();
    for (const [source, target, labels] of level.edges) listAt(next, source).push(labels.length ? `${target} (${labels.join(", ")})` : target);
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

  /**
   * @param {HTMLElement} item
   * @param {boolean} isOpen
   */
  expand(item, isOpen) {
    const site = this.page.newest.sites.get(item.dataset.path ?? "");
    if (!site?.body) return;
    item.setAttribute("aria-expanded", String(isOpen));
    need(".twist", item).textContent = isOpen ? "▾" : "▸";
    let group = find(":scope > [role=group]", item);
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
      if (!site) continue;
      const node = describeSite(run, site, now, site.parent === null ? null : this.page.graph.statuses.get(site.parent));
      const [glyph, words] = [need(".glyph", item), need(".said", item)];
      const text = [site.kind, node.model && shortModel(node.model), node.standing.replace(/^\S+ /, ""), node.detail].filter(Boolean).join(" · ");
      if (words.textContent !== text) words.textContent = text;
      const sign = SHARED.glyphs[node.status];
      if (glyph.textContent !== sign) glyph.textContent = sign;
      glyph.className = `glyph s-${node.status}`;
      item.setAttribute("aria-selected", String(path === chosen));
      item.classList.toggle("chosen", path === chosen);
    }
  }

  /** @param {HTMLElement} item */
  choose(item) {
    this.setFocusable(item);
    this.page.choose(this.page.pathOfSite(item.dataset.path ?? ""));
    this.paint();
  }

  /** @param {HTMLElement | null} item the one that Tab comes to */
  setFocusable(item) {
    for (const other of all("[tabindex='0']", this.box)) other.tabIndex = -1;
    if (item) item.tabIndex = 0;
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const item = closestTo(event, TREE_ITEM);
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = all(TREE_ITEM, this.box).filter((other) => !other.closest("[role=group][hidden]"));
    const isOpen = item.getAttribute("aria-expanded") === "true";
    /** @type {HTMLElement | null | undefined} */
    const parent = item.parentElement?.closest(TREE_ITEM);
    const go = (/** @type {HTMLElement | null | undefined} */ to) => {
      if (!to) return;
      this.setFocusable(to);
      to.focus();
    };
    /** @type {Record<string, (() => void) | undefined>} */
    const acts = {
      ArrowDown: () => go(items[items.indexOf(item) + 1]),
      ArrowUp: () => go(items[items.indexOf(item) - 1]),
      ArrowRight: () => (isOpen ? go(find(TREE_ITEM, item)) : this.expand(item, true)),
      ArrowLeft: () => (isOpen ? this.expand(item, false) : go(parent)),
      Home: () => go(items[0]),
      End: () => go(items.at(-1)),
      Enter: () => this.choose(item),
      " ": () => this.choose(item),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
