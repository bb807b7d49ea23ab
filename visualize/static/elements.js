// Finds and makes elements of the page. What kind of element a selector gives is for whoever asks to know.

/**
 * All elements that fit; their kind is that of the variable that takes them.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T[]}
 */
export function all(selector, root = document) {
  return /** @type {T[]} */ ([...root.querySelectorAll(selector)]);
}

/**
 * The first element that fits.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T | null}
 */
export function find(selector, root = document) {
  return /** @type {T | null} */ (root.querySelector(selector));
}

/**
 * The first element that fits, of those that the server always makes.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T}
 */
export function need(selector, root = document) {
  const element = root.querySelector(selector);
  if (element === null) throw new Error(`The page has no ${selector}.`);
  return /** @type {T} */ (element);
}

/**
 * The element that something happened to.
 * @param {Event} event
 */
export function targetOf(event) {
  return /** @type {HTMLElement} */ (event.target);
}

/**
 * The element that fits and in which something happened.
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function closestTo(event, selector) {
  return targetOf(event).closest(selector);
}

/**
 * @param {string} name
 * @param {string} text
 * @param {string} [title]
 */
export function part(name, text, title) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  if (title) element.title = title;
  return element;
}

/**
 * What draws on a canvas.
 * @param {HTMLCanvasElement} canvas
 */
export function penOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/** @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // A page from a disk may not use the clipboard in this way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

/**
 * What the browser keeps for all pages; null where there is nothing. A page from a disk may have no place of its own.
 * @param {string} key
 */
export function readStorage(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/**
 * @param {string} key
 * @param {string} text
 */
export function writeStorage(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    // It holds for this page alone.
  }
}
