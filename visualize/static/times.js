// Where the time of a run went, as visualize/run_times.py divides it: the bars of a row until a moment, the stretches
// in which nothing ran for long, and the scale that leaves those out. It draws nothing.

import { hasRun } from "./edges.js";
import { SHARED } from "./shared.js";
import { secondsText } from "./texts.js";

export const PARTS = SHARED.parts;
const GAP = 0.05; // The width of a break, as a share of the time that is shown.
const MOST_GAPS = 0.4; // That of all breaks together.

export class Times {
  // `plain`: as the server and an exported page tell it; null: not known yet.
  constructor(plain) {
    this.begun = plain?.begun ?? 0;
    this.isKnown = plain !== null;
    this.end = plain?.end ?? null; // Of a run that waits, when it was asked for.
    this.read = ([part, start, end, note]) => ({ part: PARTS[part], start: this.begun + start, end: this.begun + end, note: note ?? "" });
    this.breaks = (plain?.breaks ?? []).map(this.read);
    this.rows = plain?.rows ?? {};
    this.parts = plain?.parts ?? {};
  }

  // The attempts and resumptions of a row, as far as they had come at a moment; each with its spans.
  bars(row, until) {
    const told = Object.hasOwn(this.rows, row.id) ? this.rows[row.id] : null;
    if (!told) {
      if (row.started === null || !hasRun(row)) return [];
      const end = row.ended ?? until;
      return [{ status: row.status, note: "", spans: [{ part: "worked", start: row.started, end, note: "" }] }];
    }
    const bars = told.map(([status, spans, note]) => ({ status, note, spans: spans.map(this.read) }));
    const last = bars.at(-1);
    if (last.status === "running" || last.status === "waiting") {
      last.spans.at(-1).end = row.ended ?? Math.max(until, last.spans.at(-1).start);
    }
    const found = bars.filter((bar) => bar.spans[0].start <= until);
    for (const bar of found) bar.spans = clip(bar.spans, until);
    // At a moment of the past the attempt that it was in had not ended as it did.
    const shown = found.at(-1);
    if (shown && shown.status !== "queued" && row.status !== "pending") shown.status = row.status;
    return found;
  }
}

function clip(spans, until) {
  const found = spans.filter((span, number) => number === 0 || span.start < until);
  found[found.length - 1].end = Math.min(found.at(-1).end, Math.max(until, found.at(-1).start));
  return found;
}

// Part → seconds, of bars and what is between them: from an attempt's failure or interruption to the next one.
export function partsOf(bars) {
  const found = Object.fromEntries(PARTS.map((part) => [part, 0]));
  let before = null;
  for (const bar of bars) {
    if (before !== null) found.stopped += Math.max(0, bar.spans[0].start - before);
    for (const span of bar.spans) found[span.part] += Math.max(0, span.end - span.start);
    before = bar.spans.at(-1).end;
  }
  return found;
}

// The parts in words, the longest first; nothing where all was work.
export function partsText(parts) {
  const told = Object.entries(parts).filter(([, seconds]) => seconds >= 0.001).sort((a, b) => b[1] - a[1]);
  if (!told.length || (told.length === 1 && told[0][0] === "worked")) return "";
  return told.map(([part, seconds]) => `${part} ${secondsText(seconds)}`).join(", ");
}

// The distance of the marks on a scale: the least round one of so many seconds or more.
export function stepOf(least) {
  const round = (number) => {
    const power = 10 ** Math.floor(Math.log10(number));
    return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= number);
  };
  const long = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
  return least <= 50 ? round(least) : long.find((each) => each >= least) ?? 86_400 * round(least / 86_400);
}

// The scale of a timeline: seconds from the start, with each break as narrow as the others.
export class Clock {
  constructor(run, now, times) {
    this.begun = run.begun ?? 0;
    this.end = Math.max(now ?? 0, run.last ?? 0, this.begun);
    const breaks = times?.isKnown ? times.breaks : run.breaks.map(([start, end]) => ({ part: "stopped", start, end }));
    this.breaks = breaks.filter((each) => each.start < this.end).map((each) => ({ ...each, end: Math.min(each.end, this.end) }));
    const lost = this.breaks.reduce((sum, each) => sum + each.end - each.start, 0);
    const left = Math.max(this.end - this.begun - lost, 1e-6);
    this.gap = this.breaks.length ? left * Math.min(GAP, MOST_GAPS / this.breaks.length) : 0;
    this.length = left + this.gap * this.breaks.length;
  }

  // Seconds from the start, breaks narrowed.
  at(moment) {
    let found = Math.max(0, moment - this.begun);
    for (const { start, end } of this.breaks) {
      const lost = Math.max(0, Math.min(moment, end) - start);
      if (lost) found += (lost / (end - start)) * this.gap - lost;
    }
    return Math.max(0, found);
  }

  share(moment) {
    return Math.min(1, this.at(moment) / this.length);
  }

  // The moment, in seconds from the start, that is at a place of the scale; null inside of a break.
  elapsed(place) {
    let found = place;
    for (const { start, end } of this.breaks) {
      const begin = this.at(start);
      if (place <= begin) break;
      if (place < begin + this.gap) return null;
      found += end - start - this.gap;
    }
    return found;
  }
}
