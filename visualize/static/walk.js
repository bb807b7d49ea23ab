// The graph by keyboard: arrows go along its edges.

export class Walk {
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
