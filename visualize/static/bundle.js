// Several runs in one file: the one that the address names is put in place before the rest of our script looks for it.

function runInAddress() {
  return new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B")).get("run");
}

// The run of the file that is shown; null: their list, or the file of one run, or a page of a server.
let bundledRun = null;

// What stands in an address before the node and the moment.
export function placeOfRun() {
  return bundledRun === null ? [] : [`run=${encodeURIComponent(bundledRun)}`];
}

function showBundledRun(template) {
  bundledRun = template.dataset.run;
  document.getElementById("bundle").replaceWith(template.content);
  document.body.className = "run file";
  document.title = `${template.dataset.title} · FlowEngine`;
}

// Another run, or the list, is the file anew. A link to a node of this run does not name the run.
function hearPlace() {
  const asked = runInAddress();
  if (asked === bundledRun) return;
  if (asked === null && location.hash.length > 1) history.replaceState(null, "", `#${[...placeOfRun(), location.hash.slice(1)].join("&")}`);
  else location.reload();
}

// Of the list only the runs with these words.
function findRuns(text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll("#bundle tbody tr")) {
    const said = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => said.includes(word));
  }
}

export function startBundle() {
  const templates = [...document.querySelectorAll("template[data-run]")];
  if (!templates.length) return;
  const template = templates.find(({ dataset }) => dataset.run === runInAddress());
  if (template) showBundledRun(template);
  document.getElementById("bundle-find")?.addEventListener("input", (event) => findRuns(event.target.value));
  addEventListener("hashchange", hearPlace);
}
