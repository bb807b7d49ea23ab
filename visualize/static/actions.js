// What can be done with a run: the form of an action over the page, and its command line as the form is filled in.

import { copyText, part } from "./elements.js";
import { SHARED } from "./shared.js";
import { dressValues } from "./values.js";

// A word as a shell takes it for one.
export function quoteWord(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
}

// What stands behind an option: the value, or `name=value`, in which an at sign would stand for a file. A long value is
// put into a file.
function pairWord(begin, value) {
  if (!begin.endsWith("=")) return begin + value;
  if (value.length > SHARED.longValue) return `${begin}@${begin.slice(0, -1)}.txt`;
  return begin + (value.startsWith("@") ? "@" : "") + value;
}

// The words of one field: { option, kind, value, isChange, isChanged }.
function fieldWords(field) {
  if (!field.option || !field.value || (field.isChange && !field.isChanged)) return [];
  if (field.kind === "switch" || field.kind === "kept") return field.option.split(" ");
  const values = field.kind === "list" ? field.value.split("\n").map((each) => each.trim()).filter(Boolean) : [field.value];
  const [option, ...rest] = field.option.split(" ");
  return values.flatMap((value) => [option, rest.length ? pairWord(rest.join(" "), value) : value]);
}

export function composeCommand(base, fields, tail) {
  const verb = fields.find((each) => each.kind === "verb")?.value || base[1];
  return [base[0], verb, ...base.slice(2), ...fields.flatMap(fieldWords), ...tail].map(quoteWord).join(" ");
}

function readField(control) {
  const isSwitch = control.type === "checkbox";
  const first = control.tagName === "SELECT"
    ? [...control.options].find((each) => each.defaultSelected)?.value ?? control.options[0]?.value : control.defaultValue;
  return {
    option: control.dataset.option, kind: control.dataset.kind, isChange: "change" in control.dataset,
    value: isSwitch ? (control.checked ? "true" : "") : control.value, isChanged: !isSwitch && control.value !== first,
  };
}

function dressAction(form) {
  const command = form.querySelector(".command");
  const [base, tail] = JSON.parse(command.dataset.words);
  const write = () => {
    command.textContent = composeCommand(base, [...form.elements].filter((each) => each.dataset.kind).map(readField), tail);
  };
  form.addEventListener("input", write);
  write();
}

// Shows the page of a form over ours; what cannot be done is told in it, and what was filled in stays.
class ActionDialog {
  constructor() {
    this.box = document.createElement("dialog");
    this.box.className = "over";
    document.body.append(this.box);
    this.box.addEventListener("click", (event) => {
      if (event.target !== this.box && !event.target.closest("[data-close]")) return;
      event.preventDefault();
      this.box.close();
    });
    this.box.addEventListener("keydown", (event) => event.stopPropagation()); // The page's own keys rest.
    this.box.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(event.target);
    });
  }

  async open(address) {
    await this.fill(() => fetch(address, { headers: { Accept: "text/html" } }));
    if (!this.box.open) this.box.showModal();
    this.box.querySelector("form input:not([type=hidden]), form textarea, form button[type=submit]")?.focus();
  }

  async fill(ask) {
    try {
      const answer = await ask();
      const text = await answer.text();
      if (answer.ok && answer.headers.get("content-type")?.startsWith("application/json")) {
        this.go(JSON.parse(text).address);
        return;
      }
      const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      this.box.replaceChildren(main || part("note bad", `The server answered ${answer.status} ${answer.statusText}.`));
    } catch (error) {
      this.box.replaceChildren(part("note bad", `The server cannot be reached: ${error.message}`));
    }
    this.box.setAttribute("aria-label", this.box.querySelector("h1")?.textContent || "Action");
    this.box.querySelectorAll("form.act").forEach(dressAction);
    this.box.querySelector(".note.bad")?.setAttribute("role", "alert");
    dressValues(this.box);
  }

  async send(form) {
    const button = form.querySelector("[type=submit]");
    if (button.disabled) return;
    button.disabled = true;
    const body = new URLSearchParams(new FormData(form));
    const headers = { Accept: "application/json" };
    await this.fill(() => fetch(form.getAttribute("action"), { method: "POST", body, headers }));
    this.box.scrollTop = 0;
  }

  // The same page is loaded anew: it goes on as another one would.
  go(address) {
    const to = new URL(address, location.href);
    const isHere = to.pathname === location.pathname && to.search === location.search;
    location.assign(to);
    if (isHere) location.reload();
  }
}

let actionDialog = null;

async function hearClick(event) {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    copy.textContent = (await copyText(copy.parentElement.querySelector("pre").textContent)) ? "Copied" : "Not copied";
    return;
  }
  const link = event.target.closest("a[data-act]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !window.HTMLDialogElement) return;
  event.preventDefault();
  actionDialog ||= new ActionDialog();
  actionDialog.open(link.href);
}

// The playground says while it is filled in which commands ask it and fork the run with it, or why none does.
function dressPlayground(form) {
  let timer = 0;
  let asked = 0;
  const check = async () => {
    const number = ++asked;
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "check");
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { Accept: "application/json" } });
      if (!answer.ok || number !== asked) return;
      const found = await answer.json();
      for (const made of form.querySelectorAll("[data-made]")) {
        made.querySelector(".command").textContent = found[made.dataset.made];
        made.hidden = !found[made.dataset.made];
      }
      form.querySelector("[data-said]").textContent = found.said;
    } catch {
      // The server is away; what is sent will tell.
    }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 250); });
}

// A form is sent once.
function sendOnce(form) {
  form.addEventListener("submit", (event) => {
    if (form.classList.contains("sent")) event.preventDefault();
    form.classList.add("sent");
    if (event.submitter) event.submitter.textContent += " …";
  });
}

export function startActions() {
  document.addEventListener("click", hearClick);
  document.querySelectorAll("main form.act").forEach(dressAction);
  document.querySelectorAll("form.play").forEach(dressPlayground);
  document.querySelectorAll("form.act, form.play").forEach(sendOnce);
  // A page that is shown again by the browser's Back has its buttons again.
  addEventListener("pageshow", (event) => event.persisted && document.querySelector("form.sent") && location.reload());
}
