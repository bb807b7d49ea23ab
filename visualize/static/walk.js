// The graph by keyboard: arrows go along its edges. And its twin, a tree that says the same in words.

class Walk {
  // `page`: the run's page, which knows what is drawn and what is chosen.
  constructor(page) {
    this.page = page;
    this.graph = page.graph;
    this.at = 0;
    this.outs = page.head.drawn.map(() => []);
    this.ins = page.head.drawn.map(() => []);
    const edges = page.head.edges.length ? page.head.edges : this.deepEdges();
    for (const [source, target] of edges) {
      this.outs[source].push(target);
      this.ins[target].push(source);
    }
    this.graph.groups[0]?.setAttribute("tabindex", "0");
    this.graph.svg.addEventListener("focusin", (event) => {
      const group = event.target.closest("[data-node]");
      if (group) this.mark(Number(group.dataset.node));
    });
    this.graph.svg.addEventListener("keydown", (event) => this.press(event));
  }

  // Of a graph whose edges are not in its head, since they are too many to be painted.
  deepEdges() {
    const found = [];
    const walk = (level) => {
      for (const [source, target] of level.edges) {
        const ends = [source, target].map((id) => this.graph.numbers.get(level.sites.get(id)?.path));
        if (ends.every((each) => each !== undefined)) found.push(ends);
      }
      for (const site of level.containers) walk(site.body);
    };
    walk(this.page.newest.top);
    return found;
  }

  mark(number) {
    this.graph.groups[this.at]?.setAttribute("tabindex", "-1");
    this.at = number;
    this.graph.groups[number].setAttribute("tabindex", "0");
  }

  go(number) {
    if (number === undefined || number === null) return;
    const { x, y } = this.graph.placeOf(number);
    this.page.zoom.show(x, y, 0.3);
    this.mark(number);
    this.graph.groups[number].focus({ preventScroll: true });
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.acts(event.shiftKey)[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  acts(isShifted) {
    const along = (ends) => this.go(this.first(ends));
    const choose = () => this.page.choose(this.page.pathOfSite(this.page.head.drawn[this.at]));
    const { folding } = this.page;
    return {
      ArrowDown: () => (isShifted ? this.go(this.inside()[0]) : along(this.outs[this.at])),
      ArrowUp: () => (isShifted ? this.go(folding.parents[this.at]) : along(this.ins[this.at])),
      ArrowRight: () => this.go(this.beside(1)),
      ArrowLeft: () => this.go(this.beside(-1)),
      Home: () => this.go(0),
      End: () => this.go(this.graph.groups.findLastIndex((_, number) => !folding.isHidden(number))),
      Enter: choose,
      " ": choose,
      o: () => { folding.toggle(this.at); this.graph.groups[this.at].focus({ preventScroll: true }); },
    };
  }

  // Of several ways the one that was taken, else the leftmost.
  first(ends) {
    const shown = ends.filter((each) => !this.page.folding.isHidden(each));
    const ran = (number) => (["pending", "skipped"].includes(this.graph.statuses?.get(this.page.head.drawn[number])) ? 1 : 0);
    return shown.sort((a, b) => ran(a) - ran(b) || this.graph.placeOf(a).x - this.graph.placeOf(b).x)[0];
  }

  inside() {
    const { folding } = this.page;
    const found = folding.parents.flatMap((parent, number) => (parent === this.at && !folding.isHidden(number) ? [number] : []));
    return found.sort((a, b) => this.graph.placeOf(a).y - this.graph.placeOf(b).y);
  }

  // The next node of the same row, to the right or to the left.
  beside(by) {
    const { folding } = this.page;
    const here = this.graph.placeOf(this.at);
    let [best, gap] = [null, Infinity];
    folding.parents.forEach((parent, number) => {
      if (parent !== folding.parents[this.at] || number === this.at || folding.isHidden(number)) return;
      const { x, y } = this.graph.placeOf(number);
      const far = (x - here.x) * by;
      const reach = (this.graph.sizeOf(number)[1] + this.graph.sizeOf(this.at)[1]) / 2;
      if (far > 0 && far < gap && Math.abs(y - here.y) < reach) [best, gap] = [number, far];
    });
    return best;
  }
}

// The tree: made when it is first asked for, level by level.
class Tree {
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
      if (glyph.textContent !== GLYPHS[said.status]) glyph.textContent = GLYPHS[said.status];
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
