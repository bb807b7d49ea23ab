// What a box says of a node: its name, its status over all the times that it ran, its time and cost. The words are those of
// visualize/style.py.

import { causeText, OPEN, SETTLED, usage } from "./fold.js";
import { SHARED } from "./shared.js";
import { COUNT, cutTo, dollars, secondsText, shortModel } from "./texts.js";

function costText(found) {
  if (found.answered && !found.priced) return "cost unknown";
  return `${found.priced < found.answered ? "over " : ""}${dollars(found.cost)}`;
}

function spending(found) {
  const calls = `${found.calls} call${found.calls === 1 ? "" : "s"}`;
  return [calls, `${COUNT.format(found.tokens)} tokens`, costText(found)].join(" · ");
}

function together(rows) {
  const total = usage();
  for (const row of rows) for (const key of Object.keys(total)) total[key] += row.usage[key];
  return total;
}

// What is said of a site: its status over all the times that it ran, and its changing lines.
export function saidOf(run, site, now, parentStatus) {
  const rows = run.times.get(site.path) || [];
  const statuses = new Set(rows.map((row) => row.status));
  let status = SHARED.statusOrder.find((each) => statuses.has(each)) || "pending";
  if (status === "pending" && SETTLED.has(parentStatus)) status = "skipped";
  const last = rows.at(-1);
  const found = together(rows);
  const retries = Math.max(0, ...rows.map((row) => row.retries));
  return {
    status,
    name: cutTo(site.id, SHARED.maxName) + timesOf(rows),
    standing: standingOf(rows, status, now, retries),
    detail: detailOf(rows, last, found, run, now),
    model: rows.findLast((row) => row.calls.length)?.calls.at(-1).model || site.model || "",
    filled: rows.length === 1 ? filledOf(site, last) : null,
    seconds: spentBy(rows, now),
    cost: found.priced ? found.cost : null,
  };
}

// Of a map's items, by the nodes directly in them: which share has ended, and which has failed.
function filledOf(site, row) {
  if (site.kind !== "map" || !site.body?.sites.size || !row.total) return null;
  const whole = row.total * site.body.sites.size;
  const ended = [...SETTLED].reduce((sum, status) => sum + (row.inside[status] || 0), 0);
  return [Math.min(1, ended / whole), Math.min(1, (row.inside.failed || 0) / whole)];
}

function spentBy(rows, now) {
  const spent = rows.map((row) => lasted(row, now)).filter((each) => each !== null);
  return spent.length ? spent.reduce((sum, each) => sum + each, 0) : null;
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
    const others = SHARED.statusOrder.filter((each) => each !== "succeeded" && counts.has(each));
    const head = `${SHARED.glyphs[status]} ${COUNT.format(counts.get("succeeded") || 0)} of ${COUNT.format(rows.length)}`;
    said.push([head, ...others.map((each) => `${COUNT.format(counts.get(each))} ${each}`)].join(", "));
  } else {
    const cause = rows.length && rows[0].cause ? `: ${causeText(rows[0].cause)}` : "";
    said.push(`${SHARED.glyphs[status]} ${status}${cause}`);
  }
  const spent = spentBy(rows, now);
  const hasTime = status !== "skipped" || (rows.length && rows.at(-1).cause === "error");
  if (spent !== null && hasTime) said.push(secondsText(spent));
  if (retries) said.push(`${retries + 1} attempts`);
  return said.join(" · ");
}

function lasted(row, now = null) {
  if (row.started === null) return null;
  const end = row.ended !== null ? row.ended : OPEN.has(row.status) ? now : null;
  return end === null ? null : Math.max(0, end - row.started);
}

function detailOf(rows, last, found, run = null, now = null) {
  const asked = rows.map((row) => run?.asks?.get(row.id)).findLast((each) => each);
  if (asked && now !== null) return cutTo(`asked ${shortModel(asked.model)} ${secondsText(Math.floor(now - asked.at))} ago`, SHARED.maxDetail);
  const failed = rows.findLast((row) => row.error !== null);
  if (failed) return cutTo(failed.error, SHARED.maxName);
  const said = rows.length === 1 && last.route !== null ? [`→ ${last.route}`] : [];
  if (found.calls) said.push(spending(found));
  return cutTo(said.join(" · "), SHARED.maxDetail);
}
