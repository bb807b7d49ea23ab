// The panel of the chosen node: made by the server, or kept in the page that is one file.

import { dressApprovals } from "./approval.js";
import { placeOfRun } from "./bundle.js";
import { part } from "./elements.js";
import { SETTLED } from "./fold.js";
import { SHARED } from "./shared.js";
import { dressValues } from "./values.js";

export class Panel {
  constructor(box, head) {
    this.box = box;
    this.head = head;
    this.node = null; // whose panel is wanted
    this.writing = new Map(); // path → what an agent is writing
    this.pane = "all"; // which part of each node's panel is shown
    this.onPane = () => {};
    box.addEventListener("click", (event) => {
      const tab = event.target.closest("[data-open]");
      if (tab) this.onPane(tab.dataset.open);
    });
    box.addEventListener("keydown", (event) => this.stepTabs(event));
  }

  // A piece of what an agent is writing.
  hear(line) {
    this.writing.set(line.node, (line.begins ? "" : this.writing.get(line.node) || "") + line.text);
    this.paintWriting();
  }

  // Put a node's panel in; what was open stays open where it is the same node's.
  async load(node) {
    this.node = node;
    const isFilledIn = this.box.dataset.node === node && this.box.contains(document.activeElement) && document.activeElement.form;
    if (node === null || isFilledIn) return;
    const content = this.head.list ? this.stored(node) : await this.fetched(node);
    if (node !== this.node) return; // another one was chosen meanwhile
    const isSame = this.box.dataset.node === node;
    const wereOpen = [...this.box.querySelectorAll("details")].map((each) => each.open);
    const { scrollTop } = this.box;
    this.box.replaceChildren(content);
    this.box.dataset.node = node;
    this.linkCalls(node);
    this.openWays();
    this.showPane(this.pane);
    this.box.scrollTop = isSame ? scrollTop : 0;
    this.showCall();
    if (isSame) this.box.querySelectorAll("details").forEach((each, number) => { each.open = wereOpen[number] ?? each.open; });
    this.paintWriting();
  }

  // Each call of a model or a tool has an address of its own, to be handed on.
  linkCalls(node) {
    for (const call of this.box.querySelectorAll("section.call[data-seq]")) {
      const link = Object.assign(document.createElement("a"), { className: "call-link", textContent: "link" });
      link.href = `#${[...placeOfRun(), `node=${encodeURIComponent(node)}`, `call=${call.dataset.seq}`].join("&")}`;
      link.title = "The address of this call alone";
      call.prepend(link);
    }
  }

  // The call that the address names, once it is there.
  showCall() {
    const call = this.call === undefined ? null : this.box.querySelector(`section.call[data-seq="${Number(this.call)}"]`);
    if (!call) return;
    this.call = undefined;
    const pane = call.closest(".pane");
    if (pane?.hidden) this.showPane("all");
    for (const old of this.box.querySelectorAll(".panel-target")) old.classList.remove("panel-target");
    call.classList.add("panel-target");
    call.scrollIntoView({ block: "start" });
  }

  // The ways on from the node, where an edge was asked about.
  openWays() {
    const ways = this.box.querySelector("details:has(> ul.why)");
    if (!this.isAtWays || !ways) return;
    this.isAtWays = false;
    ways.open = true;
    ways.scrollIntoView({ block: "nearest" });
  }

  // One part of the panel, or all; where the node has no such part, all, and the choice is kept for the next node.
  showPane(name) {
    this.pane = name;
    const panes = [...this.box.querySelectorAll(".pane")];
    const isThere = panes.some((each) => each.dataset.pane === name);
    for (const each of panes) each.hidden = isThere && each.dataset.pane !== name;
    for (const tab of this.box.querySelectorAll("[data-open]")) {
      const isChosen = tab.dataset.open === (isThere ? name : "all");
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    dressValues(this.box);
    dressApprovals(this.box);
  }

  stepTabs(event) {
    const tabs = [...this.box.querySelectorAll("[data-open]")];
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const number = tabs.indexOf(event.target);
    if (!by || number < 0) return;
    event.preventDefault();
    const next = tabs[(number + by + tabs.length) % tabs.length];
    next.focus();
    this.onPane(next.dataset.open);
  }

  stored(node) {
    const number = this.head.list.indexOf(node);
    const templates = document.getElementById("panels").children;
    return number < 0 ? part("note", "The run has no such node.") : templates[number].content.cloneNode(true);
  }

  async fetched(node) {
    const template = document.createElement("template");
    try {
      const answer = await fetch(this.head.panels + encodeURIComponent(node), { headers: { Accept: "text/html" } });
      if (!answer.ok) return part("note bad", `The panel could not be loaded: ${answer.status} ${answer.statusText}`);
      template.innerHTML = await answer.text();
    } catch (error) {
      return part("note bad", `The panel could not be loaded: ${error.message}`);
    }
    return template.content;
  }

  // The panel tells of the whole run: what was not known yet at a moment (null: the newest) is hidden.
  show(run, at) {
    for (const each of this.box.querySelectorAll("[data-seq]")) {
      each.hidden = at !== null && Number(each.dataset.seq) > at;
    }
    const row = run.rows.get(this.box.dataset.node);
    const badge = this.box.querySelector(".node-panel > h2 .badge");
    if (badge) setBadge(badge, row ? row.status : "pending");
    const facts = this.box.querySelector(".node-panel > .facts");
    if (facts) facts.hidden = at !== null && !(row && SETTLED.has(row.status));
  }

  paintWriting() {
    const text = this.writing.get(this.node);
    let area = document.getElementById("writing");
    if (text === undefined) {
      if (area) area.remove();
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

export function setBadge(badge, status) {
  const text = `${SHARED.glyphs[status] || "·"} ${status}`;
  if (badge.textContent === text) return;
  badge.className = `badge s-${SHARED.statusOrder.includes(status) ? status : "paused"}`;
  badge.replaceChildren(part("glyph", SHARED.glyphs[status] || "·"), ` ${status}`);
}
