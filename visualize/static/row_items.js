// What the rows below the graph are: the timeline, the model calls, the events, the state.

import { attempt, bar, beside, breakMark, ruler, spanBar } from "./bars.js";
import { criticalPath } from "./edges.js";
import { part } from "./elements.js";
import { toJson } from "./exact_json.js";
import { causeText, unitsOf } from "./fold.js";
import { SHARED } from "./shared.js";
import { stateOf } from "./shared_state.js";
import { COUNT, cutTo, dollars, secondsText } from "./texts.js";
import { Clock, partsOf } from "./times.js";

// All rows of a run in the order of the flow, bodies below their containers.
export function orderedRows(run) {
  const found = [];
  const seen = new Set();
  const walk = (level, unit, depth) => {
    for (const site of level.sites.values()) {
      const row = run.rows.get(unit + site.id);
      if (!row) continue;
      seen.add(row.id);
      found.push({ key: row.id, row, depth });
      if (site.body) for (const each of unitsOf(row)) walk(site.body, each, depth + 1);
    }
  };
  walk(run.top, "", 0);
  for (const row of run.rows.values()) if (!seen.has(row.id)) found.push({ key: row.id, row, depth: 0 });
  return found;
}

export function timelineRows(run, now, times) {
  const clock = new Clock(run, now, times);
  const critical = criticalPath(run);
  const items = orderedRows(run);
  for (const item of items) item.class = critical.rows.has(item.row.id) ? "critical" : "";
  const make = ({ row, depth }, element) => {
    const name = part("name", "", row.id);
    if (critical.rows.has(row.id)) name.append(part("mark", "◆"));
    name.style.paddingLeft = `${20 + depth * 12}px`;
    const label = depth ? row.id.slice(row.spot.container.length).replace(/^\./, "") : row.id;
    name.append(part(`glyph s-${row.status}`, SHARED.glyphs[row.status]), part("path", ` ${cutTo(label, 60)}`));
    const bars = part("bars", "");
    const tried = times.bars(row, now ?? run.last);
    if (tried.length) {
      const first = tried.find((each) => each.status !== "queued") ?? tried[0];
      const [start, end] = [first.spans[0].start, tried.at(-1).spans.at(-1).end];
      bars.append(...clock.breaks.map((each) => breakMark(clock, each)), ...tried.flatMap((each) => attempt(clock, each)));
      for (const call of row.calls) {
        bars.append(bar(clock, call.at - call.seconds, call.at, "call", `${call.purpose}: ${secondsText(call.seconds)}`));
      }
      bars.append(beside(clock, tried[0].spans[0].start, end, tookText(end - start, partsOf(tried))));
    }
    element.append(name, bars);
  };
  return [items, make, ruler(clock, "◆ critical path")];
}

const WAITS = new Set(["loading", "queued", "retried"]); // What belongs to a call.

// How long it took; where most of that was no work, what it was.
function tookText(seconds, parts) {
  const [most] = Object.entries(parts).sort((a, b) => b[1] - a[1]);
  return most[0] === "worked" || most[1] <= 0 ? secondsText(seconds) : `${secondsText(seconds)} · ${most[0]} ${secondsText(most[1])}`;
}

export function callRows(run, now, times) {
  const clock = new Clock(run, now, times);
  const calls = [];
  for (const row of run.rows.values()) for (const call of row.calls) calls.push({ key: call.node, row, call });
  calls.sort((a, b) => a.call.seq - b.call.seq);
  const make = ({ row, call }, element) => {
    const bars = part("bars", "");
    const tokens = call.tokens === undefined ? "" : ` · ${COUNT.format(call.tokens)} tokens`;
    const cost = call.cost === undefined ? "" : ` · ${dollars(call.cost)}`;
    const words = `${secondsText(call.seconds)}${tokens}${cost}`;
    // What it waited for lies between the call before it and its own time.
    const before = Math.max(...row.calls.filter((each) => each.seq < call.seq).map((each) => each.at), row.started ?? 0);
    const spans = times.bars(row, now ?? run.last).flatMap((each) => each.spans);
    const waits = spans.filter((span) => WAITS.has(span.part) && span.start >= before && span.end <= call.at);
    bars.append(...waits.map((span) => spanBar(clock, span)));
    bars.append(bar(clock, call.at - call.seconds, call.at, `call ${call.error === undefined ? "" : "bad"}`, words));
    bars.append(beside(clock, call.at - call.seconds, call.at, words));
    element.append(part("name", `${cutTo(row.id, 40)} · ${call.purpose} · ${call.model}`, row.id), bars);
  };
  return [calls, make, ruler(clock, "")];
}

export function eventRows(lines) {
  const items = lines.map((line) => ({ key: `#${line.seq}`, line }));
  const begun = lines.length ? lines[0].at : 0;
  const make = ({ line }, element) => {
    const moment = `+${(line.at - begun).toFixed(line.at - begun < 100 ? 2 : 0)} s`;
    const node = line.kind === "end" ? "" : line.node || "";
    element.append(
      part("seq", String(line.seq)), part("moment", moment), part(`kind k-${line.kind}`, line.kind),
      part("path", cutTo(node, 60), node), part("words", wordsOf(line)),
    );
  };
  return [items, make];
}

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
  round: (line) => `round ${line.number} ${line.stopped ? "stopped" : "went on"}`,
  asked: (line) => `${line.message} (${line.choices.join(", ")})`,
  answered: (line) => `${line.choice}${line.by ? ` by ${line.by}` : ""}`,
  reused: (line) => `the result of run ${line.run}`,
  told: (line) => line.text,
};

export function wordsOf(line) {
  const words = WORDS[line.kind];
  return words ? words(line) || "" : "";
}

export function stateRows(run, before) {
  const [state, was] = [stateOf(run), before ? stateOf(before) : new Map()];
  const items = [...state].map(([key, value]) => {
    const text = toJson(value);
    return { key: `=${key}`, name: key, text, class: text === toJson(was.get(key)) ? "" : "changed" };
  });
  const make = ({ name, text }, element) => {
    element.append(part("name", cutTo(name, 60)), part("words", cutTo(text ?? "", 300), text));
  };
  return [items, make];
}
