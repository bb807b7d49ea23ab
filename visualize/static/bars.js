// Bars on a scale of time: attempts, the waits in them, breaks, and the marks of the scale.

import { part } from "./elements.js";
import { secondsText } from "./texts.js";
import { stepOf } from "./times.js";

export function ruler(clock, words) {
  const head = document.createElement("div");
  head.className = "row ruler";
  const bars = part("bars", "");
  head.append(part("name", words), bars);
  if (clock.length < 1e-3) return head; // Nothing has taken any time yet.
  const step = stepOf(clock.length / 6);
  const told = []; // Where words stand already.
  for (const each of clock.breaks) {
    const place = clock.share(each.start);
    const isFree = told.every((other) => place - other > 0.12);
    if (isFree) told.push(place);
    bars.append(breakMark(clock, each, isFree ? `≈ ${secondsText(each.end - each.start)}` : ""));
  }
  for (let at = 0; at < clock.length * 0.97; at += step) {
    const elapsed = clock.elapsed(at);
    if (elapsed === null || told.some((place) => Math.abs(at / clock.length - place) < 0.09)) continue;
    const tick = part("tick", secondsText(elapsed).replace(/ 0 (s|min|h)$/, ""));
    tick.style.left = `${(at / clock.length) * 100}%`;
    bars.append(tick);
  }
  return head;
}

export function bar(clock, from, to, name, title) {
  const element = part(`bar ${name}`, "", title);
  const left = clock.share(from);
  element.style.left = `${left * 100}%`;
  element.style.width = `${Math.max(0, clock.share(to) - left) * 100}%`;
  return element;
}

// Where nothing ran for long: as wide as every other break, whatever it took.
export function breakMark(clock, { part: name, start, end }, words = "") {
  const element = part(words ? "break told" : "break", "", `${secondsText(end - start)} in which nothing ran: ${name}`);
  if (words) element.append(part("", words));
  element.style.left = `${clock.share(start) * 100}%`;
  element.style.width = `${(clock.share(end) - clock.share(start)) * 100}%`;
  return element;
}

// One attempt of a row, and over it the parts of it that were no work.
export function attempt(clock, each) {
  const [start, end] = [each.spans[0].start, each.spans.at(-1).end];
  const words = [each.status, secondsText(end - start), each.note].filter(Boolean).join(", ");
  // What failed is told by the look of the bar; what is drawn over it are the waits.
  const others = each.spans.filter((span) => span.part !== "worked" && !(span.part === "retried" && span.note === each.note));
  return [bar(clock, start, end, `s-${each.status}`, words), ...others.map((span) => spanBar(clock, span))];
}

export function spanBar(clock, { part: name, start, end, note }) {
  return bar(clock, start, end, `span p-${name}`, [`${name} ${secondsText(end - start)}`, note].filter(Boolean).join(": "));
}

// Words behind a bar; before it or on it where there is no room.
export function beside(clock, from, to, text) {
  const words = part("took", text);
  const [left, right] = [clock.share(from), clock.share(to)];
  if (right < 0.75) words.style.left = `${right * 100}%`;
  else if (left > 0.3) words.style.right = `${(1 - left) * 100}%`;
  else {
    words.style.right = `${(1 - right) * 100}%`;
    words.classList.add("inside");
  }
  return words;
}
