// Reads Markdown into a tree, and makes elements of it: text stays text, whatever a model has written.

/** @typedef {string | Inline} Piece */
/** @typedef {{ tag: string, text?: string, parts?: Piece[], href?: string }} Inline */
/**
 * @typedef {{
 *   tag: string, text?: string, language?: string, parts?: Piece[], blocks?: Block[], items?: Block[][], start?: number,
 *   head?: Piece[][], rows?: Piece[][][],
 * }} Block
 */

/** @type {[rule: RegExp, make: (match: RegExpExecArray) => Piece][]} */
const INLINE = [
  [/^(`+)(?!`)([^]*?[^`])\1(?!`)/, (match) => ({ tag: "code", text: match[2].trim() })],
  [/^(\*\*|__)(?=\S)([^]*?\S)\1/, (match) => ({ tag: "strong", parts: readInline(match[2]) })],
  [/^([*_])(?=\S)([^]*?[^\s*_])\1(?!\w)/, (match) => ({ tag: "em", parts: readInline(match[2]) })],
  [/^~~(?=\S)([^]*?\S)~~/, (match) => ({ tag: "del", parts: readInline(match[1]) })],
  [/^!?\[([^\]\n]*)\]\(([^()\s]*)(?:\s+"[^"]*")?\)/, (match) => linkTo(match[2], readInline(match[1]))],
  [/^<?(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])>?/, (match) => linkTo(match[1], [match[1]])],
  [/^\\([\\`*_{}[\]()#+.!|~>-])/, (match) => match[1]],
];

/**
 * Only to pages: any other address is told in words.
 * @param {string} address
 * @param {Piece[]} parts
 */
function linkTo(address, parts) {
  return /^https?:\/\//i.test(address) ? { tag: "a", href: address, parts } : { tag: "span", parts: [...parts, ` (${address})`] };
}

/**
 * The first of the rules that a text begins with, as a piece and how long it is.
 * @param {string} text
 * @returns {[piece: Piece, length: number] | null}
 */
function readPiece(text) {
  for (const [rule, make] of INLINE) {
    const match = rule.exec(text);
    if (match) return [make(match), match[0].length];
  }
  return null;
}

/**
 * @param {string} text
 * @returns {Piece[]}
 */
export function readInline(text) {
  /** @type {Piece[]} */
  const parts = [];
  let plain = "";
  for (let at = 0; at < text.length; ) {
    const isInside = at > 0 && /\w/.test(text[at - 1]) && /[_h]/.test(text[at]);
    const next = "`*_~[!<h\\".includes(text[at]) && !isInside ? readPiece(text.slice(at, at + 5000)) : null;
    if (!next) { plain += text[at]; at += 1; continue; }
    if (plain) parts.push(plain);
    plain = "";
    parts.push(next[0]);
    at += next[1];
  }
  if (plain) parts.push(plain);
  return parts;
}

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*([\w+#.-]*)/; // Code in a line that ends in it is no fence.
const HEADING = /^ {0,3}(#{1,6})\s+([^]*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>/;
const BARS = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/; // Of a trimmed line: blanks in two places would be tried in each.

/** @param {string} line */
function cellsOf(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => readInline(cell.trim()));
}

/**
 * A heading without the signs that close it, which a blank sets off.
 * @param {string} text
 */
function titleOf(text) {
  const whole = text.trim();
  let end = whole.length;
  while (whole[end - 1] === "#") end -= 1;
  return end === 0 || /\s/.test(whole[end - 1]) ? whole.slice(0, end).trim() : whole;
}

/** @param {string} line */
function isParagraph(line) {
  return Boolean(line.trim()) && ![FENCE, HEADING, RULE, ITEM, QUOTE].some((rule) => rule.test(line));
}

/**
 * The blocks of a text.
 * @param {string} text
 * @returns {Block[]}
 */
export function readMarkdown(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  const take = (/** @type {(line: string) => boolean} */ test) => {
    const from = at;
    while (at < lines.length && test(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const [fence, heading] = [FENCE.exec(line), HEADING.exec(line)];
    if (!line.trim()) { at += 1; continue; }
    if (fence) {
      at += 1;
      const inside = take((each) => !each.trim().startsWith(fence[1]));
      at += 1;
      blocks.push({ tag: "pre", text: inside.join("\n"), language: fence[2] });
    } else if (heading) {
      at += 1;
      blocks.push({ tag: `h${Math.min(6, heading[1].length + 2)}`, parts: readInline(titleOf(heading[2])) });
    } else if (RULE.test(line)) {
      at += 1;
      blocks.push({ tag: "hr" });
    } else if (QUOTE.test(line) && depth < 20) {
      const inside = take((each) => QUOTE.test(each)).map((each) => each.replace(/^ {0,3}> ?/, ""));
      blocks.push({ tag: "blockquote", blocks: readMarkdown(inside.join("\n"), depth + 1) });
    } else if (line.includes("|") && BARS.test((lines[at + 1] ?? "").trim()) && lines[at + 1].includes("-")) {
      const head = cellsOf(line);
      at += 2;
      blocks.push({ tag: "table", head, rows: take((each) => each.includes("|")).map(cellsOf) });
    } else if (ITEM.test(line) && depth < 20) {
      blocks.push(readList(take((each) => ITEM.test(each) || /^\s+\S/.test(each)), depth));
    } else {
      const words = take(isParagraph);
      if (!words.length) { words.push(lines[at]); at += 1; }
      blocks.push({ tag: "p", parts: readInline(words.join("\n")) });
    }
  }
  return blocks;
}

/**
 * @param {string[]} lines the first one begins an item
 * @param {number} depth
 * @returns {Block}
 */
function readList(lines, depth) {
  const [, indent, mark] = ITEM.exec(lines[0]) ?? ["", "", ""];
  /** @type {string[][]} */
  const items = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= indent.length + 1) items.push([match[3]]);
    else items.at(-1)?.push(line.slice(Math.min(indent.length + 2, line.length - line.trimStart().length)));
  }
  const first = Number.parseInt(mark, 10);
  return {
    tag: Number.isNaN(first) ? "ul" : "ol", start: Number.isNaN(first) ? undefined : first,
    items: items.map((item) => readMarkdown(item.join("\n"), depth + 1)),
  };
}

/**
 * Whether a text is likely to be Markdown.
 * @param {string} text
 */
export function isMarkdown(text) {
  return /^ {0,3}(#{1,6} |```|> |[-*+] \S|\d{1,3}\. \S)/m.test(text) || /\*\*\S[^\n]*\*\*|\|\s*:?-{3,}|\[[^[\]\n]+\]\(https?:/.test(text);
}

/** @param {string} text */
export function showMarkdown(text) {
  const box = document.createElement("div");
  box.className = "markdown";
  box.append(...readMarkdown(text).map(showBlock));
  return box;
}

/**
 * @param {Block} block
 * @returns {HTMLElement}
 */
function showBlock(block) {
  const element = document.createElement(block.tag);
  if (block.text !== undefined) element.textContent = block.text;
  if (block.parts) element.append(...block.parts.map(showPart));
  if (block.blocks) element.append(...block.blocks.map(showBlock));
  if (block.start !== undefined && block.start > 1) element.setAttribute("start", String(block.start));
  for (const [first, ...rest] of block.items ?? []) {
    const line = document.createElement("li");
    // A line alone needs no paragraph of its own.
    if (first?.tag === "p") line.append(...(first.parts ?? []).map(showPart));
    else if (first) line.append(showBlock(first));
    line.append(...rest.map(showBlock));
    element.append(line);
  }
  if (block.head) {
    const rowOf = (/** @type {Piece[][]} */ cells, /** @type {string} */ tag) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell) => showBlock({ tag, parts: cell })));
      return row;
    };
    element.append(rowOf(block.head, "th"), ...(block.rows ?? []).map((cells) => rowOf(cells, "td")));
  }
  return element;
}

/**
 * @param {Piece} piece
 * @returns {Node}
 */
function showPart(piece) {
  if (typeof piece === "string") return document.createTextNode(piece);
  const element = document.createElement(piece.tag);
  if (piece.href) Object.assign(element, { href: piece.href, rel: "noopener noreferrer nofollow", target: "_blank" });
  if (piece.text !== undefined) element.textContent = piece.text;
  else element.append(...(piece.parts ?? []).map(showPart));
  return element;
}
