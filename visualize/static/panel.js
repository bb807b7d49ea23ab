// The panel of the chosen node: made by the server, or kept in the page that is one file.

import { dressApprovals } from "./approval.js";
import { runPlace } from "./bundle.js";
import { all, closestTo, find, need, part, targetOf } from "./elements.js";
import { SETTLED } from "./fold.js";
import { SHARED } from "./shared.js";
import { errorText } from "./texts.js";
import { dressValues } from "./values.js";

/** @import { Run } from "./fold.js" */
/** @import { Head, RunStatus, Status, Token } from "./types.d.ts" */

export class Panel {
  /**
   * @param {HTMLElement} box
   * @param {Head} head
   */
  constructor(box, head) {
    this.box = box;
    this.head = head;
    /** @type {string | null} whose panel is wanted */
    this.node = null;
    /** @type {Map<string, string>} path → what an agent is writing */
    this.texts = new Map();
    this.pane = "all"; // which part of each node's panel is shown
    this.onPane = (/** @type {string} */ _name) => {};
    /** @type {string | null} the position of the call that the address names, until it is shown */
    this.call = null;
    this.isAtWays = false; // an edge was asked about
    box.addEventListener("click", (event) => {
      const name = closestTo(event, "[data-open]")?.dataset.open;
      if (name !== undefined) this.onPane(name);
    });
    box.addEventListener("keydown", (event) => this.stepTabs(event));
  }

  /**
   * A piece of what an agent is writing.
   * @param {Token} line
   */
  hear(line) {
    this.texts.set(line.node, (line.begins ? "" : this.texts.get(line.node) ?? "") + line.text);
    this.paintText();
  }

  /** @returns {HTMLDetailsElement[]} */
  get folds() {
    return all("details", this.box);
  }

  /**
   * Put a node's panel in; what was open stays open where it is the same node's.
   * @param {string | null} node
   */
  async load(node) {
    this.node = node;
    const focus = document.activeElement;
    const isFilledIn = this.box.dataset.node === node && this.box.contains(focus) && focus && "form" in focus && focus.form;
    if (node === null || isFilledIn) return;
    const content = this.head.list ? this.copyPanel(node, this.head.list) : await this.fetchPanel(node);
    if (node !== this.node) return; // another one was chosen meanwhile
    const isSame = this.box.dataset.node === node;
    const wereOpen = this.folds.map((fold) => fold.open);
    const { scrollTop } = this.box;
    this.box.replaceChildren(content);
    this.box.dataset.node = node;
    this.linkCalls(node);
    this.openWays();
    this.showPane(this.pane);
    this.box.scrollTop = isSame ? scrollTop : 0;
    this.showCall();
    if (isSame) this.folds.forEach((fold, number) => { fold.open = wereOpen[number] ?? fold.open; });
    this.paintText();
  }

  /**
   * Each call of a model or a tool has an address of its own, to be handed on.
   * @param {string} node
   */
  linkCalls(node) {
    for (const call of all("section.call[data-seq]", this.box)) {
      const link = Object.assign(document.createElement("a"), { className: "call-link", textContent: "link" });
      link.href = `#${[...runPlace(), `node=${encodeURIComponent(node)}`, `call=${call.dataset.seq}`].join("&")}`;
      link.title = "The address of this call alone";
      call.prepend(link);
    }
  }

  // The call that the address names, once it is there.
  showCall() {
    const call = this.call === null ? null : find(`section.call[data-seq="${Number(this.call)}"]`, this.box);
    if (!call) return;
    this.call = null;
    /** @type {HTMLElement | null} */
    const pane = call.closest(".pane");
    if (pane?.hidden) this.showPane("all");
    for (const old of all(".panel-target", this.box)) old.classList.remove("panel-target");
    call.classList.add("panel-target");
    call.scrollIntoView({ block: "start" });
  }

  // The ways on from the node, where an edge was asked about.
  openWays() {
    /** @type {HTMLDetailsElement | null} */
    const ways = find("details:has(> ul.why)", this.box);
    if (!this.isAtWays || !ways) return;
    this.isAtWays = false;
    ways.open = true;
    ways.scrollIntoView({ block: "nearest" });
  }

  /**
   * One part of the panel, or all; where the node has no such part, all, and the choice is kept for the next node.
   * @param {string} name
   */
  showPane(name) {
    this.pane = name;
    const panes = all(".pane", this.box);
    const isThere = panes.some((pane) => pane.dataset.pane === name);
    for (const pane of panes) pane.hidden = isThere && pane.dataset.pane !== name;
    for (const tab of all("[data-open]", this.box)) {
      const isChosen = tab.dataset.open === (isThere ? name : "all");
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    dressValues(this.box);
    dressApprovals(this.box);
  }

  /** @param {KeyboardEvent} event */
  stepTabs(event) {
    const next = nextTab(all("[data-open]", this.box), event);
    if (next) this.onPane(next.dataset.open ?? "all");
  }

  /**
   * @param {string} node
   * @param {string[]} nodes those whose panels are in the page
   */
  copyPanel(node, nodes) {
    const number = nodes.indexOf(node);
    const template = /** @type {HTMLTemplateElement | undefined} */ (need("#panels").children[number]);
    return template ? template.content.cloneNode(true) : part("note", "The run has no such node.");
  }

  /** @param {string} node */
  async fetchPanel(node) {
    const template = document.createElement("template");
    try {
      const answer = await fetch(`${this.head.panels}${encodeURIComponent(node)}`, { headers: { Accept: "text/html" } });
      if (!answer.ok) return part("note bad", `The panel could not be loaded: ${answer.status} ${answer.statusText}`);
      template.innerHTML = await answer.text();
    } catch (error) {
      return part("note bad", `The panel could not be loaded: ${errorText(error)}`);
    }
    return template.content;
  }

  /**
   * The panel tells of the whole run: what was not known yet at a moment is hidden.
   * @param {Run} run
   * @param {number | null} at null: the newest
   */
  show(run, at) {
    for (const element of all("[data-seq]", this.box)) element.hidden = at !== null && Number(element.dataset.seq) > at;
    const row = run.rows.get(this.box.dataset.node ?? "");
    const badge = find(".node-panel > h2 .badge", this.box);
    if (badge) setBadge(badge, row ? row.status : "pending");
    const facts = find(".node-panel > .facts", this.box);
    if (facts) facts.hidden = at !== null && !(row && SETTLED.has(row.status));
  }

  paintText() {
    const text = this.node === null ? undefined : this.texts.get(this.node);
    let area = find("#writing");
    if (text === undefined) {
      area?.remove();
      return;
    }
    if (!area) {
      area = document.createElement("pre");
      area.id = "writing";
      this.box.append(area);
    }
    area.textContent = text;
  }
}

/**
 * The tab that a key goes to; it has the focus then.
 * @param {HTMLElement[]} tabs
 * @param {KeyboardEvent} event
 */
export function nextTab(tabs, event) {
  const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  const number = tabs.indexOf(targetOf(event));
  if (!by || number < 0) return null;
  event.preventDefault();
  const next = tabs[(number + by + tabs.length) % tabs.length];
  next.focus();
  return next;
}

/**
 * @param {HTMLElement} badge
 * @param {Status | RunStatus} status
 */
export function setBadge(badge, status) {
  const glyph = SHARED.glyphs[status] ?? "·";
  if (badge.textContent === `${glyph} ${status}`) return;
  badge.className = `badge s-${SHARED.statusOrder.some((each) => each === status) ? status : "paused"}`;
  badge.replaceChildren(part("glyph", glyph), ` ${status}`);
}
