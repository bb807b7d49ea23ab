// What a box says of a node: its name, its status over all the times that it ran, its time and cost. The words are those of
// visualize/style.py.

import { causeText, newUsage, OPEN, SETTLED } from "./fold.js";
import { SHARED } from "./shared.js";
import { COUNT, cutTo, dollars, secondsText, shortModel } from "./texts.js";

/** @import { Run } from "./fold.js" */
/** @import { NodeWords, Row, Site, Status, Usage } from "./types.d.ts" */

/** @param {Usage} usage */
function costText(usage) {
  if (usage.answered && !usage.priced) return "cost unknown";
  return `${usage.priced < usage.answered ? "over " : ""}${dollars(usage.cost)}`;
}

/** @param {Usage} usage */
function usageText(usage) {
  const calls = `${usage.calls} call${usage.calls === 1 ? "" : "s"}`;
  return [calls, `${COUNT.format(usage.tokens)} tokens`, costText(usage)].join(" · ");
}

/** @param {Row[]} rows */
function sumUsage(rows) {
  const total = newUsage();
  const keys = /** @type {(keyof Usage)[]} */ (Object.keys(total));
  for (const row of rows) for (const key of keys) total[key] += row.usage[key];
  return total;
}

/**
 * What is said of a site: its status over all the times that it ran, and its changing lines.
 * @param {Run} run
 * @param {Site} site
 * @param {number | null} now
 * @param {Status | null | undefined} parentStatus
 * @returns {NodeWords}
 */
export function describeSite(run, site, now, parentStatus) {
  const rows = run.times.get(site.path) ?? [];
  const statuses = new Set(rows.map((row) => row.status));
  let status = SHARED.statusOrder.find((each) => statuses.has(each)) ?? "pending";
  if (status === "pending" && parentStatus && SETTLED.has(parentStatus)) status = "skipped";
  const usage = sumUsage(rows);
  const retries = Math.max(0, ...rows.map((row) => row.retries));
  return {
    status,
    name: cutTo(site.id, SHARED.maxName) + countText(rows),
    standing: standingText(rows, status, now, retries),
    detail: detailText(run, rows, usage, now),
    model: rows.findLast((row) => row.calls.length)?.calls.at(-1)?.model || site.model || "",
    progress: rows.length === 1 ? mapProgress(site, rows[0]) : null,
    seconds: sumSeconds(rows, now),
    cost: usage.priced ? usage.cost : null,
  };
}

/**
 * Of a map's items, by the nodes directly in them: which share has ended, and which has failed.
 * @param {Site} site
 * @param {Row} row
 * @returns {[ended: number, failed: number] | null}
 */
function mapProgress(site, row) {
  if (site.kind !== "map" || !site.body?.sites.size || !row.total) return null;
  const whole = row.total * site.body.sites.size;
  const ended = SHARED.settled.reduce((sum, status) => sum + (row.inside[status] ?? 0), 0);
  return [Math.min(1, ended / whole), Math.min(1, (row.inside.failed ?? 0) / whole)];
}

/**
 * @param {Row[]} rows
 * @param {number | null} now
 */
function sumSeconds(rows, now) {
  const durations = rows.map((row) => durationOf(row, now)).filter((seconds) => seconds !== null);
  return durations.length ? durations.reduce((sum, seconds) => sum + seconds, 0) : null;
}

/** @param {Row[]} rows */
function countText(rows) {
  const count = rows.reduce((sum, row) => sum + row.units.size, 0);
  const total = rows.length === 1 ? rows[0].total : null;
  if (!count && total === null) return "";
  return ` ×${COUNT.format(count)}${total === null ? "" : ` of ${COUNT.format(total)}`}`;
}

/**
 * @param {Row[]} rows
 * @param {Status} status
 * @param {number | null} now
 * @param {number} retries
 */
function standingText(rows, status, now, retries) {
  const words = [`${SHARED.glyphs[status]} ${rows.length > 1 ? countStatuses(rows) : status}`];
  if (rows.length === 1 && rows[0].cause) words[0] += `: ${causeText(rows[0].cause)}`;
  const seconds = sumSeconds(rows, now);
  const hasTime = status !== "skipped" || rows.at(-1)?.cause === "error";
  if (seconds !== null && hasTime) words.push(secondsText(seconds));
  if (retries) words.push(`${retries + 1} attempts`);
  return words.join(" · ");
}

/**
 * How many of several rows succeeded, and what became of the others.
 * @param {Row[]} rows
 */
function countStatuses(rows) {
  /** @type {Map<Status, number>} */
  const counts = new Map();
  for (const { status } of rows) counts.set(status, (counts.get(status) ?? 0) + 1);
  const count = (/** @type {Status} */ status) => COUNT.format(counts.get(status) ?? 0);
  const others = SHARED.statusOrder.filter((status) => status !== "succeeded" && counts.has(status));
  return [`${count("succeeded")} of ${COUNT.format(rows.length)}`, ...others.map((status) => `${count(status)} ${status}`)].join(", ");
}

/**
 * @param {Row} row
 * @param {number | null} now
 */
function durationOf(row, now) {
  if (row.started === null) return null;
  const end = row.ended !== null ? row.ended : OPEN.has(row.status) ? now : null;
  return end === null ? null : Math.max(0, end - row.started);
}

/**
 * @param {Run} run
 * @param {Row[]} rows
 * @param {Usage} usage
 * @param {number | null} now
 */
function detailText(run, rows, usage, now) {
  const ask = rows.map((row) => run.asks.get(row.id)).findLast((each) => each);
  if (ask && now !== null) return cutTo(`asked ${shortModel(ask.model)} ${secondsText(Math.floor(now - ask.at))} ago`, SHARED.maxDetail);
  const error = rows.findLast((row) => row.error !== null)?.error;
  if (typeof error === "string") return cutTo(error, SHARED.maxName);
  const words = rows.length === 1 && rows[0].route !== null ? [`→ ${rows[0].route}`] : [];
  if (usage.calls) words.push(usageText(usage));
  return cutTo(words.join(" · "), SHARED.maxDetail);
}
