// Repaints the graph that the server drew: classes for statuses, and the lines that change. The words are those of
// visualize/style.py.

const GLYPHS = {
  pending: "○", running: "▶", waiting: "‖", succeeded: "✓", failed: "✗", skipped: "–", cancelled: "■",
  paused: "‖", partial: "◐",
};

const COUNT = new Intl.NumberFormat("en");

function secondsText(seconds) {
  if (seconds === null) return "";
  const found = Math.max(0, seconds);
  if (found < 1) return `${Math.round(found * 1000)} ms`;
  if (found < 60) return `${found.toFixed(1)} s`;
  if (found < 3600) return `${Math.floor(found / 60)} min ${Math.floor(found % 60)} s`;
  if (found < 86400) return `${Math.floor(found / 3600)} h ${Math.floor((found % 3600) / 60)} min`;
  return `${COUNT.format(Math.floor(found / 86400))} d ${Math.floor((found % 86400) / 3600)} h`;
}

function dollars(amount) {
  if (amount === 0) return "$0";
  return amount < 0.1 ? `$${amount.toFixed(4)}` : `$${amount.toFixed(2)}`;
}

function costText(found) {
  if (found.answered && !found.priced) return "cost unknown";
  return `${found.priced < found.answered ? "over " : ""}${dollars(found.cost)}`;
}

function spending(found) {
  const calls = `${found.calls} call${found.calls === 1 ? "" : "s"}`;
  return [calls, `${COUNT.format(found.tokens)} tokens`, costText(found)].join(" · ");
}

// One line of at most so many characters, without control characters.
function cutTo(text, length) {
  const clean = text.slice(0, 4 * length).replace(/[\p{C}\p{Z}\s]+/gu, " ").trim();
  return clean.length <= length ? clean : `${clean.slice(0, length - 1)}…`;
}

function together(rows) {
  const total = usage();
  for (const row of rows) for (const key of Object.keys(total)) total[key] += row.usage[key];
  return total;
}

// What is said of a site: its status over all the times that it ran, and its changing lines.
function saidOf(run, site, now, parentStatus) {
  const rows = run.times.get(site.path) || [];
  const statuses = new Set(rows.map((row) => row.status));
  let status = TELLING.find((each) => statuses.has(each)) || "pending";
  if (status === "pending" && SETTLED.has(parentStatus)) status = "skipped";
  const last = rows.at(-1);
  const found = together(rows);
  const retries = Math.max(0, ...rows.map((row) => row.retries));
  return {
    status,
    name: cutTo(site.id, 32) + timesOf(rows),
    standing: standingOf(rows, status, now, retries),
    detail: detailOf(rows, last, found),
  };
}

function timesOf(rows) {
  const begun = rows.reduce((sum, row) => sum + row.units.size, 0);
  const total = rows.length === 1 ? rows[0].total : null;
  if (!begun && total === null) return "";
  return ` ×${COUNT.format(begun)}${total === null ? "" : ` of ${COUNT.format(total)}`}`;
}

function standingOf(rows, status, now, retries) {
  const said = [];
  if (rows.length > 1) {
    const counts = new Map();
    for (const row of rows) counts.set(row.status, (counts.get(row.status) || 0) + 1);
    said.push([...counts].map(([each, count]) => `${GLYPHS[each]} ${COUNT.format(count)}`).join(" "));
  } else {
    const cause = rows.length && rows[0].cause ? `: ${rows[0].cause.replaceAll("_", " ")}` : "";
    said.push(`${GLYPHS[status]} ${status}${cause}`);
  }
  const spent = rows.map((row) => lasted(row, now)).filter((each) => each !== null);
  const hasTime = status !== "skipped" || (rows.length && rows.at(-1).cause === "error");
  if (spent.length && hasTime) said.push(secondsText(spent.reduce((sum, each) => sum + each, 0)));
  if (retries) said.push(`${retries + 1} attempts`);
  return said.join(" · ");
}

function lasted(row, now = null) {
  if (row.started === null) return null;
  const end = row.ended !== null ? row.ended : OPEN.has(row.status) ? now : null;
  return end === null ? null : Math.max(0, end - row.started);
}

function detailOf(rows, last, found) {
  const failed = rows.findLast((row) => row.error !== null);
  if (failed) return cutTo(failed.error, 32);
  const said = rows.length === 1 && last.route !== null ? [`→ ${last.route}`] : [];
  if (found.calls) said.push(spending(found));
  return cutTo(said.join(" · "), 40);
}

class Graph {
  constructor(svg, head) {
    this.svg = svg;
    this.head = head;
    this.isCompact = svg.classList.contains("compact");
    this.groups = [];
    for (const group of svg.querySelectorAll("[data-node]")) this.groups[Number(group.dataset.node)] = group;
    this.edges = [...svg.querySelectorAll("[data-edge]")];
    this.painted = [];
    this.numbers = new Map(head.drawn.map((path, number) => [path, number]));
  }

  paint(run, now) {
    const critical = criticalPath(run);
    const statuses = new Map();
    this.head.drawn.forEach((path, number) => {
      const site = run.sites.get(path);
      const said = saidOf(run, site, now, site.parent === null ? null : statuses.get(site.parent));
      statuses.set(path, said.status);
      said.isCritical = (run.times.get(path) || []).some((row) => critical.has(row.id));
      this.paintNode(number, said);
    });
    for (const path of this.edges) {
      const [source, target, labels] = this.head.edges[Number(path.dataset.edge)];
      const { state, isCritical } = edgeOf(run, this.head.drawn[source], this.head.drawn[target], labels, critical);
      const name = `edge ${state}${isCritical ? " critical" : ""}`;
      if (path.getAttribute("class") !== name) path.setAttribute("class", name);
    }
  }

  paintNode(number, said) {
    const key = `${said.status}\n${said.name}\n${said.standing}\n${said.detail}\n${said.isCritical}`;
    if (this.painted[number] === key) return;
    this.painted[number] = key;
    const group = this.groups[number];
    const classes = group.classList;
    if (!classes.contains(`s-${said.status}`)) {
      for (const each of [...classes]) if (each.startsWith("s-")) classes.remove(each);
      classes.add(`s-${said.status}`);
    }
    if (classes.contains("critical") !== said.isCritical) classes.toggle("critical");
    if (this.isCompact) {
      this.write(group, ".name", `${GLYPHS[said.status]} ${said.name}`);
      return;
    }
    this.write(group, ".name", said.name);
    this.write(group, ".standing", said.standing);
    this.write(group, ".detail", said.detail);
  }

  write(group, line, text) {
    const element = group.querySelector(`:scope > ${line}`);
    if (element && element.textContent !== text) element.textContent = text;
  }

  choose(path) {
    for (const each of this.svg.querySelectorAll(".chosen")) each.classList.remove("chosen");
    const group = this.groups[this.numbers.get(path)];
    if (group) group.classList.add("chosen");
    return group || null;
  }

  // Keep in view what has the text in its path; everything where it is empty.
  dim(matches) {
    this.head.drawn.forEach((path, number) => this.groups[number].classList.toggle("dim", !matches(path)));
  }
}

// Of a large graph, only what is in sight is displayed: the browser lays out nothing else.
class Sight {
  constructor(graph, box) {
    this.box = box;
    this.spots = graph.groups.map((group) => {
      const [x, y] = group.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
      return { group, x, y, isFrame: group.classList.contains("frame"), isShown: !group.hasAttribute("display") };
    });
    this.shown = new Set(this.spots.filter((spot) => spot.isShown));
    new ResizeObserver(() => this.look(this.last)).observe(box);
  }

  // What was shown and is out of sight is hidden, and the other way round. `place`: the scene's x, y and scale.
  look(place) {
    this.last = place;
    if (!place) return;
    const { x, y, scale } = place;
    const [left, top] = [-x / scale - 200, -y / scale - 60];
    const [right, bottom] = [left + this.box.clientWidth / scale + 400, top + this.box.clientHeight / scale + 120];
    const now = new Set();
    for (const spot of this.spots) {
      const inside = spot.x >= left && spot.x <= right && spot.y >= top && spot.y <= bottom;
      if (inside || spot.isFrame) now.add(spot);
    }
    for (const spot of this.shown) if (!now.has(spot)) spot.group.setAttribute("display", "none");
    for (const spot of now) if (!this.shown.has(spot)) spot.group.removeAttribute("display");
    this.shown = now;
  }
}
