// A run while it goes on: whom it asks, how long it may still take, whether the server is there, and whom to tell.

import { find, need, readStorage, writeStorage } from "./elements.js";
import { listAt, ownValue, SETTLED } from "./fold.js";
import { nodeOf } from "./row_items.js";
import { cutTo, secondsText } from "./texts.js";

/** @import { Run } from "./fold.js" */
/** @import { RunPage } from "./run.js" */
/** @import { Line, Row, Token } from "./types.d.ts" */

const STORED_CHOICE = "flowengine.notify";

/**
 * Seconds until the run's end, by how long its nodes took in earlier runs; null where nothing is known. Along the longest
 * way through what is not settled yet.
 * @param {{ top: Pick<Run["top"], "edges"> & { sites: Map<string, unknown> }, rows: Map<string, Pick<Row, "status" | "started">> }} run
 * @param {Record<string, number>} usual site → seconds, of the nodes that most runs come to
 * @param {number} now
 */
export function timeLeft(run, usual, now) {
  if (!Object.keys(usual).length) return null;
  /** @type {Map<string, number>} */
  const ends = new Map();
  /** @type {Map<string, string[]>} */
  const parents = new Map();
  for (const [source, target] of run.top.edges) listAt(parents, target).push(source);
  const rest = (/** @type {string} */ id) => {
    const row = run.rows.get(id);
    if (!row || SETTLED.has(row.status)) return 0;
    const whole = ownValue(usual, id) ?? 0;
    return row.started === null || row.status === "pending" ? whole : Math.max(0, whole - (now - row.started));
  };
  for (const id of run.top.sites.keys()) {
    const before = (parents.get(id) ?? []).map((parent) => ends.get(parent) ?? 0);
    ends.set(id, Math.max(0, ...before) + rest(id));
  }
  return Math.max(0, ...ends.values());
}

export class Live {
  /** @param {RunPage} page */
  constructor(page) {
    this.page = page;
    this.isFollowing = false;
    this.isGoing = false; // it follows just now
    /** @type {Date | null} since when the server cannot be reached */
    this.gone = null;
    this.banner = document.createElement("div");
    this.banner.className = "banner";
    this.banner.setAttribute("role", "status");
    this.banner.hidden = true;
    need(".run-head").after(this.banner);
    this.followButton = find("[data-follow]");
    this.followButton?.addEventListener("click", () => this.follow(!this.isFollowing));
    this.notifyButton = find("[data-notify]");
    this.notifyButton?.addEventListener("click", () => this.changeNotify());
    this.paintNotify();
  }

  // --- what is heard

  /**
   * Whether a piece of text is news: whoever comes late is told again of what was written, also where it has ended by now.
   * @param {Token} line
   */
  hearToken(line) {
    const run = this.page.newest;
    const row = run.rows.get(line.node);
    const last = row?.calls.at(-1);
    const isOld = !row || SETTLED.has(row.status) || (line.model !== undefined && last && last.at - last.seconds > line.at);
    if (!isOld && line.model !== undefined) run.asks.set(line.node, { model: line.model, at: line.at });
    return !isOld;
  }

  /** @param {Line} line */
  hear(line) {
    const { asks } = this.page.newest;
    if (["call", "finish", "fail", "skip", "cancel"].includes(line.kind)) asks.delete(nodeOf(line) ?? "");
    if (line.kind === "start" && this.isFollowing && !this.page.newest.sites.get(this.page.siteOf(line.node))?.body) this.go(line.node);
    if (line.kind === "asked") this.notify(`${this.flow} asks`, line.message, line.node);
    if (line.kind !== "end") return;
    asks.clear();
    this.notify(`${this.flow}: ${line.status}`, line.error ?? "", line.node);
  }

  get flow() {
    return need("h1").firstChild?.textContent?.trim() || "The run";
  }

  // --- following

  /** @param {boolean} isOn */
  follow(isOn) {
    this.isFollowing = isOn;
    this.followButton?.setAttribute("aria-pressed", String(isOn));
    if (!isOn) return;
    if (this.page.at !== null) this.page.moveTo(this.page.lines.length - 1);
    const rows = [...this.page.newest.rows.values()].filter((row) => row.status === "running" && !this.page.newest.sites.get(row.spot.site)?.body);
    const last = rows.sort((a, b) => (a.started ?? 0) - (b.started ?? 0)).at(-1);
    if (last) this.go(last.id);
  }

  /** @param {string} path */
  go(path) {
    this.isGoing = true;
    this.page.choose(path);
    this.isGoing = false;
  }

  // Somebody goes where they want to: that is not taken from them.
  leave() {
    if (this.isFollowing && !this.isGoing) this.follow(false);
  }

  // --- the server

  /** @param {boolean} isOver */
  lose(isOver) {
    this.gone ??= new Date();
    const since = this.gone.toLocaleTimeString();
    this.banner.textContent = isOver
      ? `The server let go of this page at ${since}, and the run is not known to have ended. Load the page anew.`
      : `The server cannot be reached since ${since}. What is shown is as it was then, and the clock stands; it is tried again.`;
    this.banner.hidden = false;
    this.page.paint();
  }

  find() {
    this.gone = null;
    this.banner.hidden = true;
    this.page.paint();
  }

  // --- time

  /**
   * @param {Run} run
   * @param {number | null} now
   */
  paint(run, now) {
    const area = find("#left");
    if (!area) return;
    const { seconds: usual, runs } = this.page.head.usual ?? { seconds: {}, runs: 0 };
    const seconds = now === null || run.status !== "running" ? null : timeLeft(run, usual, now);
    const words = seconds === null ? "" : seconds < 1 ? "any moment" : `about ${secondsText(Math.round(seconds))}`;
    const text = words && `${words} (by ${runs} run${runs === 1 ? "" : "s"})`;
    if (area.textContent !== text) area.textContent = text;
    const box = area.closest("div");
    if (box) box.hidden = !text;
  }

  // --- notifications

  get mayNotify() {
    return "Notification" in window && Notification.permission === "granted" && readStorage(STORED_CHOICE) === "yes";
  }

  async changeNotify() {
    const isOn = !this.mayNotify;
    if (isOn && "Notification" in window && Notification.permission !== "granted") await Notification.requestPermission();
    writeStorage(STORED_CHOICE, isOn ? "yes" : "no");
    this.paintNotify();
  }

  paintNotify() {
    const button = this.notifyButton;
    if (!button) return;
    const isRefused = !("Notification" in window) || Notification.permission === "denied";
    button.setAttribute("aria-pressed", String(this.mayNotify));
    button.title = isRefused ? "The browser does not allow notifications of this page" : "Of a question, a failure and the end, while you look elsewhere";
  }

  /**
   * While the page is looked at, it says so itself.
   * @param {string} title
   * @param {string} body
   * @param {string | undefined} node
   */
  notify(title, body, node) {
    if (!this.mayNotify || (!document.hidden && document.hasFocus())) return;
    const notice = new Notification(title, { body: cutTo(body || "", 200), tag: `${this.page.head.run} ${node ?? ""}` });
    notice.onclick = () => {
      window.focus();
      if (node) this.page.choose(node);
    };
  }
}
