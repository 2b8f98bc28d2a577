// The list of failed jobs, with their reasons and the buttons that retry them.

import { changeMatching } from "./bulk.js";
import { arrange, put, set, show } from "./dom.js";
import { showMessage } from "./dialogue.js";
import { age, clock, counted } from "./formatting.js";
import { requestAsOperator } from "./operator.js";

const PAGE_JOBS = 20;
const MAX_LIMIT = 200; // jobs in one answer
const TYPING_PAUSE_MS = 300;

const list = document.getElementById("failures");
const filter = document.getElementById("filter");
const selectAll = document.getElementById("select-all");
const selected = new Set();

let jobs = [];
let next = null;
let wanted = PAGE_JOBS;

function filterValues() {
  const { code, owner, dead } = filter.elements;
  return { code: code.value, owner: owner.value.trim(), dead: dead.checked };
}

/** Requests as many jobs as are shown, newest first. */
export async function requestFailures() {
  const { code, owner, dead } = filterValues();
  const found = [];
  let before = null;
  do {
    const query = new URLSearchParams({ status: "failed", limit: Math.min(wanted - found.length, MAX_LIMIT) });
    for (const [name, value] of Object.entries({ code, owner, dead, before })) if (value) query.set(name, value);
    const answer = await requestAsOperator(`jobs?${query}`);
    found.push(...answer.jobs);
    before = answer.next;
  } while (before && found.length < wanted);
  jobs = found;
  next = before;
  draw();
}

function draw() {
  const known = new Set(jobs.map((job) => job.id));
  for (const id of selected) if (!known.has(id)) selected.delete(id);
  arrange(list, jobs, {
    key: (job) => job.id,
    make: () => document.getElementById("failure-row").content.firstElementChild.cloneNode(true),
    fill: fillFailure,
  });
  drawEmpty();
  show(document.getElementById("bulk"), jobs.length > 0);
  show(document.getElementById("more-failures"), Boolean(next));
  drawSelection();
}

/** A filter that matches nothing must not look like a queue without failures. */
function drawEmpty() {
  const { code, owner, dead } = filterValues();
  const chosen = Boolean(code || owner || dead);
  show(document.getElementById("no-failures"), jobs.length === 0 && !chosen);
  show(document.getElementById("no-matches"), jobs.length === 0 && chosen);
}

function fillFailure(row, job) {
  const name = job.original_filename || "(no name)";
  put(row.querySelector(".file bdi"), name);
  set(row.querySelector(".file"), "title", name);
  put(row.querySelector(".owner"), `${job.owner_session_id ?? "no owner"}`);
  set(row.querySelector(".owner"), "title", `job ${job.id}, owner ${job.owner_session_id ?? "–"}`);
  put(row.querySelector(".code"), job.error_code);
  show(row.querySelector(".given-up"), job.dead_letter);
  put(row.querySelector(".attempts"), counted(job.attempt_count, "attempt"));
  put(row.querySelector(".message"), job.error_message ?? "");
  const when = row.querySelector(".when");
  set(when, "datetime", job.failed_at ?? job.updated_at);
  put(when, age(job.failed_at ?? job.updated_at, clock.now()));
  set(row.querySelector(".chosen"), "aria-label", `Select ${name}`);
  put(row.querySelector(".retry .unseen"), `: ${name}`);
}

function drawSelection() {
  for (const row of list.children) row.querySelector(".chosen").checked = selected.has(row.dataset.key);
  const button = document.getElementById("retry-selected");
  put(button, selected.size ? `Retry selected (${selected.size})` : "Retry selected");
  button.disabled = selected.size === 0;
  selectAll.checked = jobs.length > 0 && selected.size === jobs.length;
  selectAll.indeterminate = selected.size > 0 && selected.size < jobs.length;
}

function inWords({ code, owner, dead }) {
  const parts = [code && `code ${code}`, owner && `owner ${owner}`, dead && "given up"].filter(Boolean);
  return parts.length ? `Every failed job with ${parts.join(", ")}` : "Every failed job of every owner";
}

/** `handle(step)` runs a step that uses the server, and shows its errors. */
export function listenToFailures(handle) {
  const retry = (body) =>
    handle(async () => {
      const { message } = await requestAsOperator("retry-failed", { method: "POST", body });
      showMessage(message);
      selected.clear();
      await requestFailures();
    });

  const startOver = () => {
    wanted = PAGE_JOBS;
    selected.clear();
    handle(requestFailures);
  };
  let typing = 0;
  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(startOver, event.target.type === "search" ? TYPING_PAUSE_MS : 0);
  });

  list.addEventListener("change", (event) => {
    const { key } = event.target.closest(".failure").dataset;
    if (event.target.checked) selected.add(key);
    else selected.delete(key);
    drawSelection();
  });
  selectAll.addEventListener("change", () => {
    selected.clear();
    if (selectAll.checked) for (const job of jobs) selected.add(job.id);
    drawSelection();
  });

  list.addEventListener("click", (event) => {
    if (event.target.closest(".retry")) retry({ ids: [event.target.closest(".failure").dataset.key] });
  });
  document.getElementById("retry-selected").addEventListener("click", () => retry({ ids: [...selected] }));
  document.getElementById("retry-matching").addEventListener("click", () => {
    const { code, owner, dead } = filterValues();
    const text = `${inWords(filterValues())} is queued again, also those that are not shown here. A job whose uploaded file is gone, or that waits for another job, stays as it is.`;
    const chosen = { ...(code && { code }), ...(owner && { owner }), ...(dead && { dead }) };
    handle(async () => {
      await changeMatching("retry-failed", chosen, {
        title: "Retry all that match?",
        text,
        verb: "Retry all",
        done: "queued",
        word: "queued again",
        keeps: true,
      });
      selected.clear();
      await requestFailures();
    });
  });
  document.querySelector("#no-matches button").addEventListener("click", () => {
    filter.reset();
    filter.elements.code.focus();
    startOver();
  });
  document.querySelector("#more-failures button").addEventListener("click", () => {
    wanted += PAGE_JOBS;
    handle(requestFailures);
  });
}
