// What the rows below the graph are: the timeline, the model calls, the events, the state.

import { attemptBars, barWords, breakMark, makeBar, ruler, spanBar } from "./bars.js";
import { criticalPath } from "./edges.js";
import { part } from "./elements.js";
import { toJson } from "./exact_json.js";
import { causeText, unitsOf } from "./fold.js";
import { SHARED } from "./shared.js";
import { stateOf } from "./shared_state.js";
import { COUNT, cutTo, dollars, secondsText } from "./texts.js";
import { Clock, partsOf, rangeOf } from "./times.js";

/** @import { Run } from "./fold.js" */
/** @import { Times } from "./times.js" */
/** @import { Call, Item, Level, Line, LineOf, MakeRow, Part, Row, RowSource } from "./types.d.ts" */

/** @typedef {Item & { row: Row, depth: number }} OrderedItem */

/**
 * All rows of a run in the order of the flow, bodies below their containers.
 * @param {Run} run
 */
export function orderedRows(run) {
  /** @type {Map<string, OrderedItem>} */
  const items = new Map();
  /** @type {(level: Level, unit: string, depth: number) => void} */
  const walk = (level, unit, depth) => {
    for (const site of level.sites.values()) {
      const row = run.rows.get(unit + site.id);
      if (!row) continue;
      items.set(row.id, { key: row.id, row, depth });
      if (site.body) for (const inside of unitsOf(row)) walk(site.body, inside, depth + 1);
    }
  };
  walk(run.top, "", 0);
  for (const row of run.rows.values()) if (!items.has(row.id)) items.set(row.id, { key: row.id, row, depth: 0 });
  return [...items.values()];
}

/**
 * @param {Run} run
 * @param {number | null} now
 * @param {Times} times
 * @returns {RowSource<OrderedItem>}
 */
export function timelineRows(run, now, times) {
  const clock = new Clock(run, now, times);
  const critical = criticalPath(run);
  const items = orderedRows(run);
  for (const item of items) item.class = critical.rows.has(item.row.id) ? "critical" : "";
  /** @type {MakeRow<OrderedItem>} */
  const make = ({ row, depth }, element) => {
    const name = part("name", "", row.id);
    if (critical.rows.has(row.id)) name.append(part("mark", "◆"));
    name.style.paddingLeft = `${20 + depth * 12}px`;
    const label = row.id.slice(depth ? row.spot.container?.length : 0).replace(/^\./, "");
    name.append(part(`glyph s-${row.status}`, SHARED.glyphs[row.status]), part("path", ` ${cutTo(label, 60)}`));
    const line = part("bars", "");
    const bars = times.bars(row, now ?? run.last ?? 0);
    if (bars.length) {
      const [start] = rangeOf(bars.find((bar) => bar.status !== "queued") ?? bars[0]);
      const [begin, end] = [rangeOf(bars[0])[0], rangeOf(bars[bars.length - 1])[1]];
      line.append(...clock.breaks.map((span) => breakMark(clock, span)), ...bars.flatMap((bar) => attemptBars(clock, bar)));
      for (const call of row.calls) {
        line.append(makeBar(clock, call.at - call.seconds, call.at, "call", `${call.purpose}: ${secondsText(call.seconds)}`));
      }
      line.append(barWords(clock, begin, end, tookText(end - start, partsOf(bars))));
    }
    element.append(name, line);
  };
  return [items, make, ruler(clock, "◆ critical path")];
}

/** @type {Set<Part>} */
const WAITS = new Set(["loading", "queued", "retried"]); // What belongs to a call.

/**
 * How long it took; where most of that was no work, what it was.
 * @param {number} seconds
 * @param {Record<Part, number>} parts
 */
function tookText(seconds, parts) {
  const [[most, length]] = Object.entries(parts).sort((a, b) => b[1] - a[1]);
  return most === "worked" || length <= 0 ? secondsText(seconds) : `${secondsText(seconds)} · ${most} ${secondsText(length)}`;
}

/**
 * @param {Run} run
 * @param {number | null} now
 * @param {Times} times
 * @returns {RowSource<Item & { row: Row, call: Call }>}
 */
export function callRows(run, now, times) {
  const clock = new Clock(run, now, times);
  const items = [...run.rows.values()].flatMap((row) => row.calls.map((call) => ({ key: call.node, row, call })));
  items.sort((a, b) => a.call.seq - b.call.seq);
  /** @type {MakeRow<typeof items[number]>} */
  const make = ({ row, call }, element) => {
    const line = part("bars", "");
    const tokens = call.tokens === undefined ? "" : ` · ${COUNT.format(call.tokens)} tokens`;
    const cost = call.cost === undefined ? "" : ` · ${dollars(call.cost)}`;
    const words = `${secondsText(call.seconds)}${tokens}${cost}`;
    // What it waited for lies between the call before it and its own time.
    const before = Math.max(...row.calls.filter((other) => other.seq < call.seq).map((other) => other.at), row.started ?? 0);
    const spans = times.bars(row, now ?? run.last ?? 0).flatMap((bar) => bar.spans);
    const waits = spans.filter((span) => WAITS.has(span.part) && span.start >= before && span.end <= call.at);
    line.append(...waits.map((span) => spanBar(clock, span)));
    line.append(makeBar(clock, call.at - call.seconds, call.at, `call ${call.error === undefined ? "" : "bad"}`, words));
    line.append(barWords(clock, call.at - call.seconds, call.at, words));
    element.append(part("name", `${cutTo(row.id, 40)} · ${call.purpose} · ${call.model}`, row.id), line);
  };
  return [items, make, ruler(clock, "")];
}

/**
 * @param {Line[]} lines
 * @returns {RowSource<Item & { line: Line }>}
 */
export function eventRows(lines) {
  const items = lines.map((line) => ({ key: `#${line.seq}`, line }));
  const begin = lines.length ? lines[0].at : 0;
  /** @type {MakeRow<typeof items[number]>} */
  const make = ({ line }, element) => {
    const elapsed = line.at - begin;
    const node = nodeOf(line) ?? "";
    element.append(
      part("seq", String(line.seq)), part("moment", `+${elapsed.toFixed(elapsed < 100 ? 2 : 0)} s`), part(`kind k-${line.kind}`, line.kind),
      part("path", cutTo(node, 60), node), part("words", wordsOf(line)),
    );
  };
  return [items, make];
}

/**
 * The node that a line is about; the end of a run is about the whole of it.
 * @param {Line} line
 */
export function nodeOf(line) {
  return line.kind !== "end" && "node" in line ? line.node : undefined;
}

/** @type {{ [K in Line["kind"]]?: (line: LineOf<K>) => string }} */
const WORDS = {
  begin: (line) => `${line.flow}`,
  end: (line) => [line.status, line.error].filter(Boolean).join(": "),
  finish: (line) => [line.route === undefined ? "" : `→ ${line.route}`, line.output].filter(Boolean).join("  "),
  fail: (line) => line.error,
  skip: (line) => causeText(line.cause),
  call: (line) => [line.purpose, line.model, secondsText(line.seconds), line.error].filter(Boolean).join(", "),
  tool: (line) => `${line.name} ${line.begins ? "begins" : line.failed ? "failed" : secondsText(line.seconds)}`,
  retry: (line) => `attempt ${line.attempt} failed: ${line.error}`,
  judged: (line) => `round ${line.number}: ${line.score === undefined ? "" : line.score.toFixed(2)} ${line.passed ? "passed" : "did not pass"}`,
  map: (line) => `${COUNT.format(line.total)} items`,
  map_stopped: (line) => `${COUNT.format(line.done)} done, ${COUNT.format(line.cancelled)} cancelled, ${COUNT.format(line.left)} not begun`,
  round: (line) => `round ${line.number} ${line.stopped ? "stopped" : "went on"}`,
  "asked": (line) => `${line.message} (${line.choices.join(", ")})`,
  answered: (line) => `${line.choice}${line.by ? ` by ${line.by}` : ""}`,
  reused: (line) => `the result of run ${line.run}`,
  "told": (line) => line.text,
};

/** @param {Line} line */
export function wordsOf(line) {
  const words = /** @type {((line: Line) => string) | undefined} */ (WORDS[line.kind]);
  return words?.(line) ?? "";
}

/**
 * @param {Run} run
 * @param {Run | null} before
 * @returns {RowSource<Item & { name: string, text: string | undefined }>}
 */
export function stateRows(run, before) {
  const [state, past] = [stateOf(run), before ? stateOf(before) : new Map()];
  const items = [...state].map(([key, value]) => {
    const text = toJson(value);
    return { key: `=${key}`, name: key, text, class: text === toJson(past.get(key)) ? "" : "changed" };
  });
  /** @type {MakeRow<Item & { name: string, text: string | undefined }>} */
  const make = ({ name, text }, element) => {
    element.append(part("name", cutTo(name, 60)), part("words", cutTo(text ?? "", 300), text));
  };
  return [items, make];
}
