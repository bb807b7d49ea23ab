// Reads and writes JSON so that numbers stay as they were written: large whole ones, and those ending in `.0`.

// A number with a fraction that is zero: `1.0`, which this language would show as `1`.
export class Real extends Number {}

export function realOf(number) {
  return Number.isInteger(number) && Math.abs(number) < 1e15 ? new Real(number) : number;
}

// Texts, and numbers that this language does not keep as they are written: large whole ones, and those ending in `.0`.
const INEXACT = /"[^"\\]*(?:\\[^][^"\\]*)*"|(?<![\w.+-])-?(?:[1-9]\d{15,}|\d{1,15}\.0)(?![\d.eE])/g;
// Stands before such a number. It differs each time, so no text can forge it.
const EXACT = `exact number ${Math.random()} `;

function readExact(text) {
  return text.endsWith(".0") ? new Real(text) : BigInt(text);
}

// A value whose numbers are shown as they were written. `isPlain`: those ending in `.0` are numbers like any other.
export function parseJson(text, isPlain = false) {
  try {
    const found = JSON.parse(text); // First: of a text that is no JSON nothing is looked for.
    if (typeof text !== "string" || !(isPlain ? /(?<![\d.])\d{16}/ : /(?<![\d.])\d{16}|\d\.0(?![\d.eE])/).test(text)) return found;
    const mark = (each) => (each[0] === '"' || (isPlain && each.endsWith(".0")) ? each : `"${EXACT}${each}"`);
    return JSON.parse(text.replace(INEXACT, mark), (_, each) => (
      typeof each === "string" && each.startsWith(EXACT) ? readExact(each.slice(EXACT.length)) : each));
  } catch {
    return undefined;
  }
}

// What the server tells of a run: of the values of shared state the numbers are exact, all others are reckoned with.
export function parseTold(text) {
  const found = parseJson(text, true);
  if (!text.includes('"state"') || !/\d\.0(?![\d.eE])/.test(text)) return found;
  const exact = parseJson(text);
  const [lines, exactLines] = Array.isArray(found) ? [found, exact] : [[found], [exact]];
  for (const [at, line] of lines.entries()) if (line.state) line.state = exactLines[at].state;
  return found;
}

const MARKED = new RegExp(`"${EXACT}(-?\\d+(?:\\.0)?)"`, "g");

// The JSON of a value that `parseJson` gave; undefined for what has none. `isPlain`: the same for `1.0` and `1`.
export function toJson(value, isPlain = false) {
  const mark = (_, each) => {
    if (typeof each === "bigint") return `${EXACT}${each}`;
    return each instanceof Real && !isPlain ? `${EXACT}${each}.0` : each;
  };
  return JSON.stringify(value, mark)?.replace(MARKED, "$1");
}
