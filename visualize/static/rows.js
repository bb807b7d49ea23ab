// The list below the graph: many rows of one height, of which only those in sight are made. What the rows are
// (the timeline, the model calls, the events, the state) is decided here as well; when they change is not.

const HEIGHT = 22;

class Rows {
  // `onChoose` hears the row that was clicked.
  constructor(box, onChoose) {
    this.box = box;
    this.inner = document.createElement("div");
    this.inner.className = "rows";
    this.inner.tabIndex = 0;
    this.inner.setAttribute("role", "listbox");
    this.inner.setAttribute("aria-label", "Rows");
    this.none = part("note", "");
    box.append(this.inner, this.none);
    this.onChoose = onChoose;
    this.inner.addEventListener("keydown", (event) => this.press(event));
    this.items = [];
    this.made = new Map(); // number → element
    this.chosen = null;
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => {
      this.draw(true);
      this.thin();
    }).observe(box);
    this.inner.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) onChoose(this.items[Number(row.dataset.row)]);
    });
  }

  // `make(item, element)` fills a row; items with the same `key` are the same row. `none`: what is said of no items.
  show(items, make, head = null, none = "") {
    this.items = items;
    this.none.textContent = items.length ? "" : none;
    this.make = make;
    this.inner.style.height = `${items.length * HEIGHT + (head ? HEIGHT : 0)}px`;
    this.offset = head ? HEIGHT : 0;
    if (this.head) this.head.remove();
    this.head = head;
    head?.setAttribute("aria-hidden", "true");
    if (head) this.inner.append(head);
    this.draw(true);
    this.thin();
  }

  // Of the head's words those that stand free of the ones before them.
  thin() {
    let free = -Infinity;
    for (const tick of this.head?.querySelectorAll(".tick") ?? []) {
      tick.hidden = false;
      const { left, right } = tick.getBoundingClientRect();
      tick.hidden = left < free;
      if (!tick.hidden) free = right + 4;
    }
  }

  draw(again = false) {
    const from = Math.max(0, Math.floor((this.box.scrollTop - this.offset) / HEIGHT) - 4);
    const to = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + 4);
    for (const [number, element] of this.made) {
      if (!again && number >= from && number < to) continue;
      element.remove();
      this.made.delete(number);
    }
    for (let number = from; number < to; number += 1) {
      if (this.made.has(number)) continue;
      const element = document.createElement("div");
      const item = this.items[number];
      element.className = `row ${item.key === this.chosen ? "chosen" : ""} ${item.class || ""}`;
      element.dataset.row = number;
      element.id = `row-${number}`;
      element.setAttribute("role", "option");
      element.setAttribute("aria-selected", String(item.key === this.chosen));
      element.setAttribute("aria-posinset", String(number + 1));
      element.setAttribute("aria-setsize", String(this.items.length));
      element.style.top = `${number * HEIGHT + this.offset}px`;
      this.make(item, element);
      this.made.set(number, element);
      this.inner.append(element);
    }
  }

  // Arrows go from row to row.
  press(event) {
    if (event.target !== this.inner || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.items.findIndex((item) => item.key === this.chosen);
    const last = this.items.length - 1;
    const to = { ArrowDown: now + 1, ArrowUp: Math.max(0, now - 1), Home: 0, End: last, PageDown: now + 10, PageUp: Math.max(0, now - 10) }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    const item = this.items[Math.min(last, to)];
    this.onChoose(item);
    this.choose(item.key);
    this.draw();
  }

  choose(key, bring = true) {
    this.chosen = key;
    for (const [number, element] of this.made) {
      const isChosen = this.items[number].key === key;
      element.classList.toggle("chosen", isChosen);
      element.setAttribute("aria-selected", String(isChosen));
      if (isChosen) this.inner.setAttribute("aria-activedescendant", element.id);
    }
    const number = bring ? this.items.findIndex((item) => item.key === key) : -1;
    if (number < 0) return;
    const top = number * HEIGHT + this.offset;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop + this.offset) this.box.scrollTop = top - 2 * HEIGHT;
    else if (top + HEIGHT > scrollTop + clientHeight) this.box.scrollTop = top + 2 * HEIGHT - clientHeight;
  }
}

function part(name, text, title) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  if (title) element.title = title;
  return element;
}

// --- bars on a scale of time

function ruler(clock, words) {
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

function bar(clock, from, to, name, title) {
  const element = part(`bar ${name}`, "", title);
  const left = clock.share(from);
  element.style.left = `${left * 100}%`;
  element.style.width = `${Math.max(0, clock.share(to) - left) * 100}%`;
  return element;
}

// Where nothing ran for long: as wide as every other break, whatever it took.
function breakMark(clock, { part: name, start, end }, words = "") {
  const element = part(words ? "break told" : "break", "", `${secondsText(end - start)} in which nothing ran: ${name}`);
  if (words) element.append(part("", words));
  element.style.left = `${clock.share(start) * 100}%`;
  element.style.width = `${(clock.share(end) - clock.share(start)) * 100}%`;
  return element;
}

// One attempt of a row, and over it the parts of it that were no work.
function attempt(clock, each) {
  const [start, end] = [each.spans[0].start, each.spans.at(-1).end];
  const words = [each.status, secondsText(end - start), each.note].filter(Boolean).join(", ");
  // What failed is told by the look of the bar; what is drawn over it are the waits.
  const others = each.spans.filter((span) => span.part !== "worked" && !(span.part === "retried" && span.note === each.note));
  return [bar(clock, start, end, `s-${each.status}`, words), ...others.map((span) => spanBar(clock, span))];
}

function spanBar(clock, { part: name, start, end, note }) {
  return bar(clock, start, end, `span p-${name}`, [`${name} ${secondsText(end - start)}`, note].filter(Boolean).join(": "));
}

// Words behind a bar; before it or on it where there is no room.
function beside(clock, from, to, text) {
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

// --- what the rows are

// All rows of a run in the order of the flow, bodies below their containers.
function orderedRows(run) {
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

function timelineRows(run, now, times) {
  const clock = new Clock(run, now, times);
  const critical = criticalPath(run);
  const items = orderedRows(run);
  for (const item of items) item.class = critical.rows.has(item.row.id) ? "critical" : "";
  const make = ({ row, depth }, element) => {
    const name = part("name", "", row.id);
    if (critical.rows.has(row.id)) name.append(part("mark", "◆"));
    name.style.paddingLeft = `${20 + depth * 12}px`;
    const label = depth ? row.id.slice(row.spot.container.length).replace(/^\./, "") : row.id;
    name.append(part(`glyph s-${row.status}`, GLYPHS[row.status]), part("path", ` ${cutTo(label, 60)}`));
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

function callRows(run, now, times) {
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

function eventRows(lines) {
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

function wordsOf(line) {
  const words = WORDS[line.kind];
  return words ? words(line) || "" : "";
}

function stateRows(run, before) {
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
