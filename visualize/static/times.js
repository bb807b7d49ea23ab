// Where the time of a run went, as visualize/run_times.py divides it: the bars of a row until a moment, the stretches
// in which nothing ran for long, and the scale that leaves those out. It draws nothing.

import { hasRun } from "./edges.js";
import { ownValue } from "./fold.js";
import { SHARED } from "./shared.js";
import { secondsText } from "./texts.js";

/** @import { Run } from "./fold.js" */
/** @import { Bar, Part, PlainTimes, Row, Span } from "./types.d.ts" */

const GAP = 0.05; // The width of a break, as a share of the time that is shown.
const MOST_GAPS = 0.4; // That of all breaks together.

export class Times {
  /** @param {PlainTimes | null} plain as the server and an exported page tell it; null: not known yet */
  constructor(plain) {
    this.begun = plain?.begun ?? 0;
    this.isKnown = plain !== null;
    this.end = plain?.end ?? 0; // Of a run that waits, when it was asked for.
    this.breaks = (plain?.breaks ?? []).map((span) => this.readSpan(span));
    this.rows = plain?.rows ?? {};
    this.parts = plain?.parts ?? {};
  }

  /**
   * @param {PlainTimes["breaks"][number]} plain
   * @returns {Span}
   */
  readSpan([part, start, end, note]) {
    return { part: SHARED.parts[part], start: this.begun + start, end: this.begun + end, note: note ?? "" };
  }

  /**
   * The attempts and resumptions of a row, as far as they had come at a moment; each with its spans.
   * @param {Row} row
   * @param {number} until
   * @returns {Bar[]}
   */
  bars(row, until) {
    const plain = ownValue(this.rows, row.id);
    if (!plain) {
      if (row.started === null || !hasRun(row)) return [];
      const end = row.ended ?? until;
      return [{ status: row.status, note: "", spans: [{ part: "worked", start: row.started, end, note: "" }] }];
    }
    const all = plain.map(([status, spans, note]) => ({ status, note, spans: spans.map((span) => this.readSpan(span)) }));
    const last = all[all.length - 1];
    if (last.status === "running" || last.status === "waiting") {
      const span = last.spans[last.spans.length - 1];
      span.end = row.ended ?? Math.max(until, span.start);
    }
    const bars = all.filter((bar) => bar.spans[0].start <= until);
    for (const bar of bars) bar.spans = clipSpans(bar.spans, until);
    // At a moment of the past the attempt that it was in had not ended as it did.
    const shown = bars.at(-1);
    if (shown && shown.status !== "queued" && row.status !== "pending") shown.status = row.status;
    return bars;
  }
}

/**
 * @param {Bar} bar
 * @returns {[start: number, end: number]}
 */
export function rangeOf(bar) {
  return [bar.spans[0].start, bar.spans[bar.spans.length - 1].end];
}

/**
 * @param {Span[]} spans
 * @param {number} until
 */
function clipSpans(spans, until) {
  const clip = spans.filter((span, number) => number === 0 || span.start < until);
  const last = clip[clip.length - 1];
  last.end = Math.min(last.end, Math.max(until, last.start));
  return clip;
}

/**
 * Part → seconds, of bars and what is between them: from an attempt's failure or interruption to the next one.
 * @param {Bar[]} bars
 */
export function partsOf(bars) {
  const parts = /** @type {Record<Part, number>} */ (Object.fromEntries(SHARED.parts.map((part) => [part, 0])));
  /** @type {number | null} */
  let before = null;
  for (const bar of bars) {
    const [start, end] = rangeOf(bar);
    if (before !== null) parts.stopped += Math.max(0, start - before);
    for (const span of bar.spans) parts[span.part] += Math.max(0, span.end - span.start);
    before = end;
  }
  return parts;
}

/**
 * The parts in words, the longest first; nothing where all was work.
 * @param {Partial<Record<Part, number>>} parts
 */
export function partsText(parts) {
  const entries = Object.entries(parts).filter(([, seconds]) => seconds >= 0.001).sort((a, b) => b[1] - a[1]);
  if (!entries.length || (entries.length === 1 && entries[0][0] === "worked")) return "";
  return entries.map(([part, seconds]) => `${part} ${secondsText(seconds)}`).join(", ");
}

/**
 * The distance of the marks on a scale: the least round one of so many seconds or more.
 * @param {number} least
 */
export function stepOf(least) {
  const round = (/** @type {number} */ number) => {
    const power = 10 ** Math.floor(Math.log10(number));
    return [1, 2, 5].map((digit) => digit * power).find((step) => step >= number) ?? 10 * power;
  };
  const long = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
  return least <= 50 ? round(least) : long.find((step) => step >= least) ?? 86_400 * round(least / 86_400);
}

/** The scale of a timeline: seconds from the start, with each break as narrow as the others. */
export class Clock {
  /**
   * @param {Pick<Run, "begun" | "last" | "breaks">} run
   * @param {number | null} now
   * @param {Times | null} times
   */
  constructor(run, now, times) {
    this.begun = run.begun ?? 0;
    this.end = Math.max(now ?? 0, run.last ?? 0, this.begun);
    /** @type {Span[]} */
    const breaks = times?.isKnown ? times.breaks : run.breaks.map(([start, end]) => ({ part: "stopped", start, end, note: "" }));
    this.breaks = breaks.filter((span) => span.start < this.end).map((span) => ({ ...span, end: Math.min(span.end, this.end) }));
    const idle = this.breaks.reduce((sum, { start, end }) => sum + end - start, 0);
    const busy = Math.max(this.end - this.begun - idle, 1e-6);
    this.gap = this.breaks.length ? busy * Math.min(GAP, MOST_GAPS / this.breaks.length) : 0;
    this.length = busy + this.gap * this.breaks.length;
  }

  /**
   * Seconds from the start, breaks narrowed.
   * @param {number} moment
   */
  at(moment) {
    let place = Math.max(0, moment - this.begun);
    for (const { start, end } of this.breaks) {
      const idle = Math.max(0, Math.min(moment, end) - start);
      if (idle) place += (idle / (end - start)) * this.gap - idle;
    }
    return Math.max(0, place);
  }

  /** @param {number} moment */
  share(moment) {
    return Math.min(1, this.at(moment) / this.length);
  }

  /**
   * The moment, in seconds from the start, that is at a place of the scale; null inside of a break.
   * @param {number} place
   */
  elapsed(place) {
    let seconds = place;
    for (const { start, end } of this.breaks) {
      const begin = this.at(start);
      if (place <= begin) break;
      if (place < begin + this.gap) return null;
      seconds += end - start - this.gap;
    }
    return seconds;
  }
}
