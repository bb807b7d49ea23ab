// Bars on a scale of time: attempts, the waits in them, breaks, and the marks of the scale.

import { part } from "./elements.js";
import { secondsText } from "./texts.js";
import { rangeOf, stepOf } from "./times.js";

/** @import { Clock } from "./times.js" */
/** @import { Bar, Span } from "./types.d.ts" */

/**
 * The head of a list: the marks of the scale, behind some words.
 * @param {Clock} clock
 * @param {string} words
 */
export function ruler(clock, words) {
  const head = document.createElement("div");
  head.className = "row ruler";
  const bars = part("bars", "");
  head.append(part("name", words), bars);
  if (clock.length < 1e-3) return head; // Nothing has taken any time yet.
  const step = stepOf(clock.length / 6);
  /** @type {number[]} */
  const places = []; // Where words stand already.
  for (const span of clock.breaks) {
    const place = clock.share(span.start);
    const isFree = places.every((other) => place - other > 0.12);
    if (isFree) places.push(place);
    bars.append(breakMark(clock, span, isFree ? `≈ ${secondsText(span.end - span.start)}` : ""));
  }
  for (let at = 0; at < clock.length * 0.97; at += step) {
    const elapsed = clock.elapsed(at);
    if (elapsed === null || places.some((place) => Math.abs(at / clock.length - place) < 0.09)) continue;
    const tick = part("tick", secondsText(elapsed).replace(/ 0 (s|min|h)$/, ""));
    tick.style.left = `${(at / clock.length) * 100}%`;
    bars.append(tick);
  }
  return head;
}

/**
 * @param {Clock} clock
 * @param {number} start
 * @param {number} end
 * @param {string} name
 * @param {string} title
 */
export function makeBar(clock, start, end, name, title) {
  const element = part(`bar ${name}`, "", title);
  const left = clock.share(start);
  element.style.left = `${left * 100}%`;
  element.style.width = `${Math.max(0, clock.share(end) - left) * 100}%`;
  return element;
}

/**
 * Where nothing ran for long: as wide as every other break, whatever it took.
 * @param {Clock} clock
 * @param {Span} span
 */
export function breakMark(clock, { part: name, start, end }, words = "") {
  const element = part(words ? "break told" : "break", "", `${secondsText(end - start)} in which nothing ran: ${name}`);
  if (words) element.append(part("", words));
  element.style.left = `${clock.share(start) * 100}%`;
  element.style.width = `${(clock.share(end) - clock.share(start)) * 100}%`;
  return element;
}

/**
 * One attempt of a row, and over it the parts of it that were no work.
 * @param {Clock} clock
 * @param {Bar} bar
 */
export function attemptBars(clock, bar) {
  const [start, end] = rangeOf(bar);
  const words = [bar.status, secondsText(end - start), bar.note].filter(Boolean).join(", ");
  // What failed is told by the look of the bar; what is drawn over it are the waits.
  const waits = bar.spans.filter((span) => span.part !== "worked" && !(span.part === "retried" && span.note === bar.note));
  return [makeBar(clock, start, end, `s-${bar.status}`, words), ...waits.map((span) => spanBar(clock, span))];
}

/**
 * @param {Clock} clock
 * @param {Span} span
 */
export function spanBar(clock, { part: name, start, end, note }) {
  return makeBar(clock, start, end, `span p-${name}`, [`${name} ${secondsText(end - start)}`, note].filter(Boolean).join(": "));
}

/**
 * Words behind a bar; before it or on it where there is no room.
 * @param {Clock} clock
 * @param {number} start
 * @param {number} end
 * @param {string} text
 */
export function barWords(clock, start, end, text) {
  const words = part("took", text);
  const [left, right] = [clock.share(start), clock.share(end)];
  if (right < 0.75) words.style.left = `${right * 100}%`;
  else if (left > 0.3) words.style.right = `${(1 - left) * 100}%`;
  else {
    words.style.right = `${(1 - right) * 100}%`;
    words.classList.add("inside");
  }
  return words;
}
