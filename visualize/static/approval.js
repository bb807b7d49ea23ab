// The form of a question: its text as Markdown, the time that is left, and fields only for the choice that needs them.

import { part } from "./elements.js";
import { parseJson } from "./exact_json.js";
import { isMarkdown, showMarkdown } from "./markdown.js";

// How long it is until a moment, in the two largest units.
export function leftText(seconds) {
  if (seconds <= 0) return "its time is up";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "less than a second left";
  const parts = units.slice(first, first + 2).map(([name, size], number) => {
    const whole = Math.floor((number ? seconds % units[first][1] : seconds) / size);
    return whole || !number ? `${whole} ${name}` : "";
  });
  return `${parts.filter(Boolean).join(" ")} left`;
}

// What is wrong with a field, in words that stay beside it.
function checkField(field) {
  const hint = field.parentElement.querySelector(".misfit") || field.parentElement.appendChild(part("misfit", ""));
  hint.setAttribute("role", "alert");
  hint.textContent = field.validity.valid ? "" : field.validationMessage;
  field.setAttribute("aria-invalid", String(!field.validity.valid));
}

function checkJson(field) {
  const isJson = !field.value.trim() || parseJson(field.value) !== undefined;
  field.setCustomValidity(isJson ? "" : "This is no JSON.");
}

function dressApproval(section) {
  section.classList.add("dressed");
  const form = section.querySelector("form");
  const fields = form.querySelector("[data-form-for]");
  const show = (isShown) => { fields.hidden = fields.disabled = !isShown; };
  if (fields) show(false);
  // The first press on a choice with a form opens the form; the next one sends it.
  for (const button of form.querySelectorAll("[data-form]")) {
    button.addEventListener("click", (event) => {
      if (!fields.hidden) return;
      event.preventDefault();
      show(true);
      fields.querySelector("input, select, textarea")?.focus();
    });
  }
  form.addEventListener("focusout", (event) => event.target.name?.startsWith("form") && checkField(event.target));
  form.addEventListener("input", (event) => {
    if (event.target.name === "form") checkJson(event.target);
    if (event.target.getAttribute("aria-invalid") === "true") checkField(event.target);
  });
  const left = section.querySelector("[data-until]");
  const count = () => { left.textContent = ` (${leftText(Number(left.dataset.until) - Date.now() / 1000)})`; };
  if (left) {
    count();
    const timer = setInterval(() => (left.isConnected ? count() : clearInterval(timer)), 1000);
  }
}

export function dressApprovals(root) {
  for (const text of root.querySelectorAll("[data-markdown]")) {
    text.removeAttribute("data-markdown");
    if (isMarkdown(text.textContent)) text.replaceChildren(showMarkdown(text.textContent));
  }
  root.querySelectorAll(".approval:not(.dressed)").forEach(dressApproval);
}
