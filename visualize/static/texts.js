// Words for numbers and times, and texts cut to a length: as flowengine/core/records.py and visualize/style.py word them.

export const COUNT = new Intl.NumberFormat("en");

/** @param {number | null} duration */
export function secondsText(duration) {
  if (duration === null) return "";
  const seconds = Math.max(0, duration);
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const [whole, minutes, hours] = [1, 60, 3600].map((size) => Math.round(seconds / size));
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${COUNT.format(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** @param {number} amount */
export function dollars(amount) {
  if (amount > 0 && amount < 0.000001) return "under $0.000001";
  if (amount < 0.1) return amount === 0 ? "$0" : `$${amount.toFixed(amount < 0.0001 ? 6 : 4)}`;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/**
 * One line of at most so many characters, without control characters.
 * @param {string} text
 * @param {number} length
 */
export function cutTo(text, length) {
  const clean = text.slice(0, 4 * length).replace(/[\p{C}\p{Z}\s]+/gu, " ").trim();
  return clean.length <= length ? clean : `${clean.slice(0, length - 1)}…`;
}

/**
 * A name with a count behind it (`countText`), which stays whole as long as there is room. Names of one flow often begin
 * alike, so the middle goes.
 * @param {string} text
 * @param {number} length
 */
export function cutName(text, length) {
  const [, id = text, count = ""] = /^(.*?)( ×[\d,]+)?(?: of .*)?$/su.exec(text) ?? [];
  if (text.length <= length || length - count.length < 2) return cutTo(text, length);
  const room = length - count.length;
  if (id.length <= room) return id + count;
  const end = id.endsWith("…") ? 0 : Math.floor((room - 1) / 2); // What lost its end before is not cut twice.
  return `${id.slice(0, room - 1 - end)}…${end ? id.slice(-end) : ""}${count}`;
}

/**
 * A model's name without the provider before it.
 * @param {string} model
 */
export function shortModel(model) {
  return cutTo(model.slice(model.lastIndexOf("/") + 1), 22);
}

/** @param {unknown} error */
export function errorText(error) {
  return error instanceof Error ? error.message : String(error);
}
