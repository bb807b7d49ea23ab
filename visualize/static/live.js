// A run while it goes on: whom it asks, how long it may still take, whether the server is there, and whom to tell.

import { ownOf, SETTLED } from "./fold.js";
import { cutTo, secondsText } from "./texts.js";

const TOLD = "flowengine.notify";

// Seconds until the run's end, by how long its nodes took in earlier runs; null where nothing is known. Along the
// longest way through what is not settled yet: `usual` is site → seconds, of the nodes that most runs come to.
export function timeLeft(run, usual, now) {
  if (!Object.keys(usual).length) return null;
  const until = new Map();
  const parents = new Map();
  for (const [source, target] of run.top.edges) parents.set(target, [...(parents.get(target) ?? []), source]);
  const left = (id) => {
    const row = run.rows.get(id);
    if (!row || SETTLED.has(row.status)) return 0;
    const whole = ownOf(usual, id) ?? 0;
    return row.started === null || row.status === "pending" ? whole : Math.max(0, whole - (now - row.started));
  };
  for (const id of run.top.sites.keys()) {
    const before = (parents.get(id) ?? []).map((each) => until.get(each) ?? 0);
    until.set(id, Math.max(0, ...before) + left(id));
  }
  return Math.max(0, ...until.values());
}

export class Live {
  constructor(page) {
    this.page = page;
    this.page.newest.asks = new Map(); // path → the model that was asked, and when
    this.isFollowing = false;
    this.gone = null; // since when the server cannot be reached
    this.banner = document.createElement("div");
    this.banner.className = "banner";
    this.banner.setAttribute("role", "status");
    this.banner.hidden = true;
    document.querySelector(".run-head").after(this.banner);
    this.followButton = document.querySelector("[data-follow]");
    this.followButton?.addEventListener("click", () => this.follow(!this.isFollowing));
    this.notifyButton = document.querySelector("[data-notify]");
    this.notifyButton?.addEventListener("click", () => this.changeNotify());
    this.paintNotify();
  }

  // --- what is heard

  hear(line) {
    const { asks } = this.page.newest;
    const row = line.node === undefined ? null : this.page.newest.rows.get(line.node);
    if (line.kind === "token") {
      // Whoever comes late is told again of what was written, also where it has ended by now.
      const last = row?.calls.at(-1);
      const isOld = !row || SETTLED.has(row.status) || (line.model !== undefined && last && last.at - last.seconds > line.at);
      if (!isOld && line.model !== undefined) asks.set(line.node, { model: line.model, at: line.at });
      return !isOld;
    }
    if (["call", "finish", "fail", "skip", "cancel"].includes(line.kind)) asks.delete(line.node);
    if (line.kind === "end") asks.clear();
    if (line.kind === "start" && this.isFollowing && !this.page.newest.sites.get(this.page.siteOf(line.node))?.body) this.go(line.node);
    if (line.kind === "asked") this.tell(`${this.flow} asks`, line.message, line.node);
    if (line.kind === "end") this.tell(`${this.flow}: ${line.status}`, line.error ?? "", line.node);
    return true;
  }

  get flow() {
    return document.querySelector("h1").firstChild.textContent.trim() || "The run";
  }

  // --- following

  follow(isOn) {
    this.isFollowing = isOn;
    this.followButton?.setAttribute("aria-pressed", String(isOn));
    if (!isOn) return;
    if (this.page.at !== null) this.page.moveTo(this.page.lines.length - 1);
    const running = [...this.page.newest.rows.values()].filter((row) => row.status === "running" && !this.page.newest.sites.get(row.spot.site)?.body);
    const last = running.sort((a, b) => a.started - b.started).at(-1);
    if (last) this.go(last.id);
  }

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

  paint(run, now) {
    const area = document.getElementById("left");
    if (!area) return;
    const usual = this.page.head.usual ?? {};
    const seconds = now === null || run.status !== "running" ? null : timeLeft(run, usual.seconds ?? {}, now);
    const words = seconds === null ? "" : seconds < 1 ? "any moment" : `about ${secondsText(Math.round(seconds))}`;
    const text = words && `${words} (by ${usual.runs} run${usual.runs === 1 ? "" : "s"})`;
    if (area.textContent !== text) area.textContent = text;
    area.closest("div").hidden = !text;
  }

  // --- notifications

  get mayNotify() {
    return "Notification" in window && Notification.permission === "granted" && this.kept === "yes";
  }

  get kept() {
    try {
      return localStorage.getItem(TOLD);
    } catch {
      return null;
    }
  }

  async changeNotify() {
    const isOn = !this.mayNotify;
    if (isOn && "Notification" in window && Notification.permission !== "granted") await Notification.requestPermission();
    try {
      localStorage.setItem(TOLD, isOn ? "yes" : "no");
    } catch {
      // It is asked again the next time.
    }
    this.paintNotify();
  }

  paintNotify() {
    const button = this.notifyButton;
    if (!button) return;
    const isRefused = !("Notification" in window) || Notification.permission === "denied";
    button.setAttribute("aria-pressed", String(this.mayNotify));
    button.title = isRefused ? "The browser does not allow notifications of this page" : "Of a question, a failure and the end, while you look elsewhere";
  }

  // While the page is looked at, it says so itself.
  tell(title, body, node) {
    if (!this.mayNotify || (!document.hidden && document.hasFocus())) return;
    const told = new Notification(title, { body: cutTo(body || "", 200), tag: `${this.page.head.run} ${node ?? ""}` });
    told.onclick = () => {
      window.focus();
      if (node) this.page.choose(node);
    };
  }
}
