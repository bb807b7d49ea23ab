// Reads Markdown into a tree, and makes elements of it: text stays text, whatever a model has written.

const INLINE = [
  ["code", /^(`+)(?!`)([^]*?[^`])\1(?!`)/, (found) => ({ tag: "code", text: found[2].trim() })],
  ["strong", /^(\*\*|__)(?=\S)([^]*?\S)\1/, (found) => ({ tag: "strong", parts: readInline(found[2]) })],
  ["em", /^([*_])(?=\S)([^]*?[^\s*_])\1(?!\w)/, (found) => ({ tag: "em", parts: readInline(found[2]) })],
  ["del", /^~~(?=\S)([^]*?\S)~~/, (found) => ({ tag: "del", parts: readInline(found[1]) })],
  ["link", /^!?\[([^\]\n]*)\]\(([^()\s]*)(?:\s+"[^"]*")?\)/, (found) => linkTo(found[2], readInline(found[1]))],
  ["address", /^<?(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])>?/, (found) => linkTo(found[1], [found[1]])],
  ["escape", /^\\([\\`*_{}[\]()#+.!|~>-])/, (found) => found[1]],
];

// Only to pages: any other address is told in words.
function linkTo(address, parts) {
  return /^https?:\/\//i.test(address) ? { tag: "a", href: address, parts } : { tag: "span", parts: [...parts, ` (${address})`] };
}

export function readInline(text) {
  const parts = [];
  let plain = "";
  for (let at = 0; at < text.length; ) {
    const rest = "`*_~[!<h\\".includes(text[at]) ? text.slice(at, at + 5000) : "";
    const isInside = at > 0 && /\w/.test(text[at - 1]) && /[_h]/.test(text[at]);
    const [found, make] = (rest && !isInside && INLINE.map(([, rule, act]) => [rule.exec(rest), act]).find(([hit]) => hit)) || [];
    if (!found) { plain += text[at]; at += 1; continue; }
    if (plain) parts.push(plain);
    plain = "";
    parts.push(make(found));
    at += found[0].length;
  }
  if (plain) parts.push(plain);
  return parts;
}

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*([\w+#.-]*)/; // Code in a line that ends in it is no fence.
const HEADING = /^ {0,3}(#{1,6})\s+([^]*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const BARS = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/; // Of a trimmed line: blanks in two places would be tried in each.

function cellsOf(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((each) => readInline(each.trim()));
}

// A heading without the signs that close it, which a blank sets off.
function titleOf(text) {
  const whole = text.trim();
  let end = whole.length;
  while (whole[end - 1] === "#") end -= 1;
  return end === 0 || /\s/.test(whole[end - 1]) ? whole.slice(0, end).trim() : whole;
}

// The blocks of a text: {tag, parts | text | blocks | items | rows}.
export function readMarkdown(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  const take = (test) => {
    const from = at;
    while (at < lines.length && test(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) { at += 1; continue; }
    if (fence) {
      at += 1;
      const inside = take((each) => !each.trim().startsWith(fence[1]));
      at += 1;
      blocks.push({ tag: "pre", text: inside.join("\n"), language: fence[2] });
    } else if (HEADING.test(line)) {
      const found = HEADING.exec(line);
      at += 1;
      blocks.push({ tag: `h${Math.min(6, found[1].length + 2)}`, parts: readInline(titleOf(found[2])) });
    } else if (RULE.test(line)) {
      at += 1;
      blocks.push({ tag: "hr" });
    } else if (/^ {0,3}>/.test(line) && depth < 20) {
      const inside = take((each) => /^ {0,3}>/.test(each)).map((each) => each.replace(/^ {0,3}> ?/, ""));
      blocks.push({ tag: "blockquote", blocks: readMarkdown(inside.join("\n"), depth + 1) });
    } else if (line.includes("|") && BARS.test((lines[at + 1] ?? "").trim()) && lines[at + 1].includes("-")) {
      const head = cellsOf(line);
      at += 2;
      blocks.push({ tag: "table", head, rows: take((each) => each.includes("|")).map(cellsOf) });
    } else if (ITEM.test(line) && depth < 20) {
      blocks.push(readList(take((each) => ITEM.test(each) || (/^\s+\S/.test(each))), depth));
    } else {
      const words = take((each) => each.trim() && !FENCE.test(each) && !HEADING.test(each) && !RULE.test(each) && !ITEM.test(each) && !/^ {0,3}>/.test(each));
      if (!words.length) { words.push(lines[at]); at += 1; }
      blocks.push({ tag: "p", parts: readInline(words.join("\n")) });
    }
  }
  return blocks;
}

function readList(lines, depth) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= indent.length + 1) items.push([found[3]]);
    else items.at(-1).push(line.slice(Math.min(indent.length + 2, line.length - line.trimStart().length)));
  }
  const first = Number.parseInt(mark, 10);
  return {
    tag: Number.isNaN(first) ? "ul" : "ol", start: Number.isNaN(first) ? undefined : first,
    items: items.map((each) => readMarkdown(each.join("\n"), depth + 1)),
  };
}

// Whether a text is likely to be Markdown.
export function isMarkdown(text) {
  return /^ {0,3}(#{1,6} |```|> |[-*+] \S|\d{1,3}\. \S)/m.test(text) || /\*\*\S[^\n]*\*\*|\|\s*:?-{3,}|\[[^[\]\n]+\]\(https?:/.test(text);
}

export function showMarkdown(text) {
  const box = document.createElement("div");
  box.className = "markdown";
  box.append(...readMarkdown(text).map(showBlock));
  return box;
}

function showBlock(block) {
  const element = document.createElement(block.tag);
  if (block.text !== undefined) element.textContent = block.text;
  if (block.parts) element.append(...block.parts.map(showPart));
  if (block.blocks) element.append(...block.blocks.map(showBlock));
  if (block.start > 1) element.start = block.start;
  for (const item of block.items || []) {
    const line = document.createElement("li");
    // A line alone needs no paragraph of its own.
    if (item[0]?.tag === "p") line.append(...item[0].parts.map(showPart), ...item.slice(1).map(showBlock));
    else line.append(...item.map(showBlock));
    element.append(line);
  }
  if (block.head) {
    const rowOf = (cells, tag) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell) => showBlock({ tag, parts: cell })));
      return row;
    };
    element.append(rowOf(block.head, "th"), ...block.rows.map((cells) => rowOf(cells, "td")));
  }
  return element;
}

function showPart(piece) {
  if (typeof piece === "string") return document.createTextNode(piece);
  const element = document.createElement(piece.tag);
  if (piece.href) Object.assign(element, { href: piece.href, rel: "noopener noreferrer nofollow", target: "_blank" });
  if (piece.text !== undefined) element.textContent = piece.text;
  else element.append(...piece.parts.map(showPart));
  return element;
}
