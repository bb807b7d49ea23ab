// Reads and writes JSON so that numbers stay as they were written: large whole ones, and those ending in `.0`.

/** A number with a fraction that is zero: `1.0`, which this language would show as `1`. */
export class Real extends Number {}

/** @param {number} number */
export function realOf(number) {
  return Number.isInteger(number) && Math.abs(number) < 1e15 ? new Real(number) : number;
}

// Texts, and numbers that this language does not keep as they are written: large whole ones, and those ending in `.0`.
const INEXACT = /"[^"\\]*(?:\\[^][^"\\]*)*"|(?<![\w.+-])-?(?:[1-9]\d{15,}|\d{1,15}\.0)(?![\d.eE])/g;
// Stands before such a number. It differs each time, so no text can forge it.
const EXACT = `exact number ${Math.random()} `;

/** @param {string} text */
function readExact(text) {
  return text.endsWith(".0") ? new Real(text) : BigInt(text);
}

/**
 * A value whose numbers are shown as they were written; undefined for what is no JSON. `isPlain`: those ending in `.0` are
 * numbers like any other.
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text, isPlain = false) {
  try {
    const value = JSON.parse(text); // First: of a text that is no JSON nothing is looked for.
    if (typeof text !== "string" || !(isPlain ? /(?<![\d.])\d{16}/ : /(?<![\d.])\d{16}|\d\.0(?![\d.eE])/).test(text)) return value;
    const mark = (/** @type {string} */ token) => (token[0] === '"' || (isPlain && token.endsWith(".0")) ? token : `"${EXACT}${token}"`);
    return JSON.parse(text.replace(INEXACT, mark), (_, item) => (
      typeof item === "string" && item.startsWith(EXACT) ? readExact(item.slice(EXACT.length)) : item));
  } catch {
    return undefined;
  }
}

/**
 * What the server sends of a run: of the values of shared state the numbers are exact, all others are reckoned with.
 * @param {string} text
 * @returns {any}
 */
export function parseFeed(text) {
  const plain = parseJson(text, true);
  if (!text.includes('"state"') || !/\d\.0(?![\d.eE])/.test(text)) return plain;
  const exact = parseJson(text);
  const [lines, exactLines] = Array.isArray(plain) ? [plain, exact] : [[plain], [exact]];
  for (const [at, line] of lines.entries()) if (line.state) line.state = exactLines[at].state;
  return plain;
}

const MARKED = new RegExp(`"${EXACT}(-?\\d+(?:\\.0)?)"`, "g");

/**
 * The JSON of a value that `parseJson` gave; undefined for what has none. `isPlain`: the same for `1.0` and `1`.
 * @param {unknown} value
 * @returns {string | undefined}
 */
export function toJson(value, isPlain = false) {
  const mark = (/** @type {string} */ _, /** @type {unknown} */ item) => {
    if (typeof item === "bigint") return `${EXACT}${item}`;
    return item instanceof Real && !isPlain ? `${EXACT}${item}.0` : item;
  };
  return JSON.stringify(value, mark)?.replace(MARKED, "$1");
}
