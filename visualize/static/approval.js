// The form of a question: its text as Markdown, the time that is left, and fields only for the choice that needs them.

import { all, find, need, part, targetOf } from "./elements.js";
import { parseJson } from "./exact_json.js";
import { isMarkdown, showMarkdown } from "./markdown.js";

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Field */

/** @type {[name: string, seconds: number][]} */
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/**
 * How long it is until a moment, in the two largest units.
 * @param {number} seconds
 */
export function countdownText(seconds) {
  if (seconds <= 0) return "its time is up";
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "less than a second left";
  const parts = UNITS.slice(first, first + 2).map(([name, size], number) => {
    const whole = Math.floor((number ? seconds % UNITS[first][1] : seconds) / size);
    return whole || !number ? `${whole} ${name}` : "";
  });
  return `${parts.filter(Boolean).join(" ")} left`;
}

/**
 * What is wrong with a field, in words that stay beside it.
 * @param {Field} field
 */
function checkField(field) {
  const box = /** @type {HTMLElement} */ (field.parentElement);
  const hint = find(".misfit", box) ?? box.appendChild(part("misfit", ""));
  hint.setAttribute("role", "alert");
  hint.textContent = field.validity.valid ? "" : field.validationMessage;
  field.setAttribute("aria-invalid", String(!field.validity.valid));
}

/** @param {Field} field */
function checkJson(field) {
  const isJson = !field.value.trim() || parseJson(field.value) !== undefined;
  field.setCustomValidity(isJson ? "" : "This is no JSON.");
}

/** @param {HTMLElement} section */
function dressApproval(section) {
  section.classList.add("dressed");
  const form = need("form", section);
  /** @type {HTMLFieldSetElement | null} */
  const fields = find("[data-form-for]", form);
  if (fields) {
    const show = (/** @type {boolean} */ isShown) => { fields.hidden = fields.disabled = !isShown; };
    show(false);
    // The first press on a choice with a form opens the form; the next one sends it.
    for (const button of all("[data-form]", form)) {
      button.addEventListener("click", (event) => {
        if (!fields.hidden) return;
        event.preventDefault();
        show(true);
        find("input, select, textarea", fields)?.focus();
      });
    }
  }
  const fieldOf = (/** @type {Event} */ event) => /** @type {Field} */ (targetOf(event));
  form.addEventListener("focusout", (event) => fieldOf(event).name?.startsWith("form") && checkField(fieldOf(event)));
  form.addEventListener("input", (event) => {
    const field = fieldOf(event);
    if (field.name === "form") checkJson(field);
    if (field.getAttribute("aria-invalid") === "true") checkField(field);
  });
  const clock = find("[data-until]", section);
  if (!clock) return;
  const count = () => { clock.textContent = ` (${countdownText(Number(clock.dataset.until) - Date.now() / 1000)})`; };
  count();
  const timer = setInterval(() => (clock.isConnected ? count() : clearInterval(timer)), 1000);
}

/** @param {ParentNode} root */
export function dressApprovals(root) {
  for (const element of all("[data-markdown]", root)) {
    element.removeAttribute("data-markdown");
    const text = element.textContent ?? "";
    if (isMarkdown(text)) element.replaceChildren(showMarkdown(text));
  }
  all(".approval:not(.dressed)", root).forEach(dressApproval);
}
