// One line of the list: what a job, or an upload on its way, views like.

import { put, set, show } from "./dom.js";
import { age, clock, roundedUp, size, span } from "./formatting.js";

const { states, errors } = JSON.parse(document.getElementById("wording").textContent);
const template = document.getElementById("row").content.firstElementChild;

/** What happened and what to do, for a file that was refused before the server had a job for it. */
export const inWords = (code) => errors[code] ?? errors.UNKNOWN;

export function makeRow() {
  return template.cloneNode(true);
}

/** The detail, with the time until the state ends by itself in front of it where that is known. */
function timed({ until, detail }) {
  return until ? `in ${span((Date.parse(until) - clock.now()) / 1000)}, ${detail}` : detail;
}

/** Empty where nothing can be said, or where that time is over. wording.py has the same words. */
function expectedEnd(estimate) {
  const left = estimate ? (Date.parse(estimate.done_by) - clock.now()) / 1000 : 0;
  return left > 0 ? `probably done within ${span(roundedUp(left))}` : "";
}

function drawExpected(row, estimate) {
  const part = row.querySelector(".expected");
  const words = expectedEnd(estimate);
  put(part, words);
  show(part, words !== "");
}

/** `view`: name, bytes, state (a key of the table of states), word, detail, percent, help. */
function draw(row, view) {
  const { tone, icon } = states[view.state];
  const { word } = view;
  const busy = tone === "busy";
  set(row, "data-tone", tone);
  set(row.querySelector(".mark use"), "href", `#i-${icon}`);
  row.querySelector(".mark .icon").classList.toggle("turns", icon === "spin");
  put(row.querySelector(".file bdi"), view.name);
  set(row.querySelector(".file"), "title", view.name);
  put(row.querySelector(".size"), size(view.bytes));
  put(row.querySelector(".word"), busy && view.percent !== null ? `${word} ${view.percent} %` : word);
  put(row.querySelector(".how"), view.detail);
  show(row.querySelector(".how"), !busy);
  drawBar(row.querySelector("progress"), busy, view);
  drawHelp(row.querySelector(".help"), view.help);
}

function drawBar(bar, busy, view) {
  set(bar, "aria-label", `Progress of ${view.name}`);
  set(bar, "value", view.percent);
  show(bar, busy);
}

function drawHelp(part, help) {
  show(part, help !== null);
  if (help === null) return;
  put(part.querySelector(".what"), help.what);
  put(part.querySelector(".advice"), help.advice);
  put(part.querySelector(".detail"), help.detail);
}

/** Draws what the server has computed. */
export function fillJob(row, job) {
  const { state, word, help, name } = job.display;
  row.job = job;
  set(row, "data-status", job.status);
  draw(row, {
    name,
    state,
    word,
    help,
    bytes: job.bytes,
    detail: timed(job.display),
    percent: job.progress ? job.progress.percent : null,
  });
  drawAge(row);
  drawExpected(row, job.estimate);
  show(row.querySelector(".aged"), true);
  drawActions(row, job, name);
}

function drawAge(row) {
  const time = row.querySelector(".age");
  set(time, "datetime", row.job.created_at);
  put(time, age(row.job.created_at, clock.now()));
}

function drawActions(row, job, name) {
  const download = row.querySelector(".download");
  const again = row.querySelector(".again");
  set(download, "href", `/api/jobs/${job.id}/download`);
  put(download.querySelector(".unseen"), ` the XML of ${name}`);
  set(again, "action", `/jobs/${job.id}/retry`);
  put(again.querySelector(".unseen"), `: ${name}`);
  const end = row.querySelector(".end");
  set(end, "action", `/jobs/${job.id}/cancel`);
  put(end.querySelector(".unseen"), `: ${name}`);
  show(download, Boolean(job.can_download));
  show(again, Boolean(job.can_retry));
  show(end, Boolean(job.can_cancel));
  show(row.querySelector(".dismiss"), false);
  // A button that disappears must not take the keyboard focus with it.
  if (row.contains(document.activeElement) && document.activeElement.closest("[hidden]")) row.focus();
}

/** `upload`: file, state, percent, detail and help where they are known. */
export function fillUpload(row, upload) {
  const { name, size: bytes } = upload.file;
  draw(row, {
    name,
    bytes,
    state: upload.state,
    word: states[upload.state].word,
    percent: upload.percent,
    detail: upload.detail ?? states[upload.state].detail,
    help: upload.help ?? null,
  });
  show(row.querySelector(".aged"), false);
  drawExpected(row, null);
  show(row.querySelector(".download"), false);
  show(row.querySelector(".again"), false);
  show(row.querySelector(".end"), false);
  const dismiss = row.querySelector(".dismiss");
  show(dismiss, true);
  put(dismiss.querySelector(".verb"), upload.state === "refused" ? "Dismiss" : "Cancel");
  put(dismiss.querySelector(".unseen"), `: ${name}`);
}

/** Between two polls: ages, the time until a retry and the expected end move on. True, once, when that time has come: the page polls. */
export function tick(row) {
  if (!row.job) return false;
  drawAge(row);
  drawExpected(row, row.job.estimate);
  const { until } = row.job.display;
  if (!until) return false;
  put(row.querySelector(".how"), timed(row.job.display));
  if (Date.parse(until) > clock.now() || row.polledFor === until) return false;
  row.polledFor = until;
  return true;
}
