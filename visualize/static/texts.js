// Words for numbers and times, and texts cut to a length: as flowengine/core/records.py and visualize/style.py word them.

export const COUNT = new Intl.NumberFormat("en");

export function secondsText(seconds) {
  if (seconds === null) return "";
  const found = Math.max(0, seconds);
  if (found < 0.9995) return `${Math.round(found * 1000)} ms`;
  if (found < 59.95) return `${found.toFixed(1)} s`;
  const [whole, minutes, hours] = [1, 60, 3600].map((size) => Math.round(found / size));
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${COUNT.format(Math.floor(hours / 24))} d ${hours % 24} h`;
}

export function dollars(amount) {
  if (amount > 0 && amount < 0.000001) return "under $0.000001";
  if (amount < 0.1) return amount === 0 ? "$0" : `$${amount.toFixed(amount < 0.0001 ? 6 : 4)}`;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

// One line of at most so many characters, without control characters.
export function cutTo(text, length) {
  const clean = text.slice(0, 4 * length).replace(/[\p{C}\p{Z}\s]+/gu, " ").trim();
  return clean.length <= length ? clean : `${clean.slice(0, length - 1)}…`;
}

// A name with a count behind it (`timesOf`), which stays whole as long as there is room. Names of one flow often begin
// alike, so the middle goes.
export function cutName(text, length) {
  const [, id, count = ""] = /^(.*?)( ×[\d,]+)?(?: of .*)?$/su.exec(text);
  if (text.length <= length || length - count.length < 2) return cutTo(text, length);
  const room = length - count.length;
  if (id.length <= room) return id + count;
  const end = id.endsWith("…") ? 0 : Math.floor((room - 1) / 2); // What lost its end before is not cut twice.
  return `${id.slice(0, room - 1 - end)}…${end ? id.slice(-end) : ""}${count}`;
}

// A model's name without the vendor before it.
export function shortModel(model) {
  return cutTo(model.slice(model.lastIndexOf("/") + 1), 22);
}
