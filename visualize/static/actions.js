// What can be done with a run: the form of an action over the page, and its command line as the form is filled in.

import { all, closestTo, copyText, find, need, part } from "./elements.js";
import { SHARED } from "./shared.js";
import { errorText } from "./texts.js";
import { dressValues } from "./values.js";

/** @typedef {{ option?: string, kind?: string, value: string, isChange?: boolean, isChanged?: boolean }} ActionField */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */

/**
 * A word as a shell takes it for one.
 * @param {string} word
 */
export function quoteWord(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
}

/**
 * What stands behind an option: the value, or `name=value`, in which an at sign would stand for a file. A long value is
 * put into a file.
 * @param {string} begin
 * @param {string} value
 */
function pairWord(begin, value) {
  if (!begin.endsWith("=")) return begin + value;
  if (value.length > SHARED.longValue) return `${begin}@${begin.slice(0, -1)}.txt`;
  return begin + (value.startsWith("@") ? "@" : "") + value;
}

/**
 * The words of one field.
 * @param {ActionField} field
 */
function fieldWords(field) {
  if (!field.option || !field.value || (field.isChange && !field.isChanged)) return [];
  if (field.kind === "switch" || field.kind === "kept") return field.option.split(" ");
  const values = field.kind === "list" ? field.value.split("\n").map((line) => line.trim()).filter(Boolean) : [field.value];
  const [option, ...rest] = field.option.split(" ");
  return values.flatMap((value) => [option, rest.length ? pairWord(rest.join(" "), value) : value]);
}

/**
 * @param {string[]} base
 * @param {ActionField[]} fields
 * @param {string[]} tail
 */
export function composeCommand(base, fields, tail) {
  const verb = fields.find((field) => field.kind === "verb")?.value || base[1];
  return [base[0], verb, ...base.slice(2), ...fields.flatMap(fieldWords), ...tail].map(quoteWord).join(" ");
}

/**
 * @param {Control} control
 * @returns {ActionField}
 */
function readField(control) {
  const { option, kind } = control.dataset;
  const isChange = "change" in control.dataset;
  if (control instanceof HTMLInputElement && control.type === "checkbox") {
    return { option, kind, isChange, value: control.checked ? "true" : "", isChanged: false };
  }
  const first = control instanceof HTMLSelectElement
    ? [...control.options].find((item) => item.defaultSelected)?.value ?? control.options[0]?.value : control.defaultValue;
  return { option, kind, isChange, value: control.value, isChanged: control.value !== first };
}

/** @param {HTMLFormElement} form */
function dressAction(form) {
  const command = need(".command", form);
  const [base, tail] = JSON.parse(command.dataset.words ?? "");
  const write = () => {
    const controls = /** @type {Control[]} */ ([...form.elements]);
    command.textContent = composeCommand(base, controls.filter((control) => control.dataset.kind).map(readField), tail);
  };
  form.addEventListener("input", write);
  write();
}

/** Shows the page of a form over ours; what cannot be done is told in it, and what was filled in stays. */
class ActionDialog {
  constructor() {
    this.box = document.createElement("dialog");
    this.box.className = "over";
    document.body.append(this.box);
    this.box.addEventListener("click", (event) => {
      if (event.target !== this.box && !closestTo(event, "[data-close]")) return;
      event.preventDefault();
      this.box.close();
    });
    this.box.addEventListener("keydown", (event) => event.stopPropagation()); // The page's own keys rest.
    this.box.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(/** @type {HTMLFormElement} */ (event.target));
    });
  }

  /** @param {string} address */
  async open(address) {
    await this.fill(() => fetch(address, { headers: { Accept: "text/html" } }));
    if (!this.box.open) this.box.showModal();
    find("form input:not([type=hidden]), form textarea, form button[type=submit]", this.box)?.focus();
  }

  /** @param {() => Promise<Response>} ask */
  async fill(ask) {
    try {
      const answer = await ask();
      const text = await answer.text();
      if (answer.ok && answer.headers.get("content-type")?.startsWith("application/json")) {
        this.go(JSON.parse(text).address);
        return;
      }
      const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      this.box.replaceChildren(main ?? part("note bad", `The server answered ${answer.status} ${answer.statusText}.`));
    } catch (error) {
      this.box.replaceChildren(part("note bad", `The server cannot be reached: ${errorText(error)}`));
    }
    this.box.setAttribute("aria-label", find("h1", this.box)?.textContent || "Action");
    /** @type {HTMLFormElement[]} */
    const forms = all("form.act", this.box);
    forms.forEach(dressAction);
    find(".note.bad", this.box)?.setAttribute("role", "alert");
    dressValues(this.box);
  }

  /** @param {HTMLFormElement} form */
  async send(form) {
    /** @type {HTMLButtonElement} */
    const button = need("[type=submit]", form);
    if (button.disabled) return;
    button.disabled = true;
    await this.fill(() => post(form, formBody(form)));
    this.box.scrollTop = 0;
  }

  /**
   * The same page is loaded anew: it goes on as another one would.
   * @param {string} address
   */
  go(address) {
    const to = new URL(address, location.href);
    const isHere = to.pathname === location.pathname && to.search === location.search;
    location.assign(to);
    if (isHere) location.reload();
  }
}

/** @param {HTMLFormElement} form */
function formBody(form) {
  return new URLSearchParams(/** @type {any} */ (new FormData(form)));
}

/**
 * Sends what is filled in to the address of a form. Its `action` may be a field of the same name.
 * @param {HTMLFormElement} form
 * @param {URLSearchParams} body
 */
function post(form, body) {
  return fetch(form.getAttribute("action") ?? "", { method: "POST", body, headers: { Accept: "application/json" } });
}

/** @type {ActionDialog | null} */
let actionDialog = null;

/** @param {MouseEvent} event */
async function hearClick(event) {
  const copy = closestTo(event, "[data-copy]");
  if (copy) {
    copy.textContent = (await copyText(find("pre", copy.parentElement ?? document)?.textContent ?? "")) ? "Copied" : "Not copied";
    return;
  }
  const link = /** @type {HTMLAnchorElement | null} */ (closestTo(event, "a[data-act]"));
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !globalThis.HTMLDialogElement) return;
  event.preventDefault();
  actionDialog ??= new ActionDialog();
  actionDialog.open(link.href);
}

/**
 * The playground says while it is filled in which commands ask it and fork the run with it, or why none does.
 * @param {HTMLFormElement} form
 */
function dressPlayground(form) {
  let timer = 0;
  let last = 0;
  const check = async () => {
    last += 1;
    const number = last;
    const body = formBody(form);
    body.set("do", "check");
    try {
      const answer = await post(form, body);
      if (!answer.ok || number !== last) return;
      const texts = await answer.json();
      for (const box of all("[data-made]", form)) {
        const command = texts[box.dataset.made ?? ""];
        need(".command", box).textContent = command;
        box.hidden = !command;
      }
      need("[data-said]", form).textContent = texts.said;
    } catch {
      // The server is away; what is sent will tell.
    }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 250); });
}

/**
 * A form is sent once.
 * @param {HTMLFormElement} form
 */
function sendOnce(form) {
  form.addEventListener("submit", (event) => {
    if (form.classList.contains("sent")) event.preventDefault();
    form.classList.add("sent");
    if (event.submitter) event.submitter.textContent += " …";
  });
}

export function startActions() {
  /** @type {(selector: string) => HTMLFormElement[]} */
  const forms = (selector) => all(selector);
  document.addEventListener("click", hearClick);
  forms("main form.act").forEach(dressAction);
  forms("form.play").forEach(dressPlayground);
  forms("form.act, form.play").forEach(sendOnce);
  // A page that is shown again by the browser's Back has its buttons again.
  addEventListener("pageshow", (event) => event.persisted && find("form.sent") && location.reload());
}
