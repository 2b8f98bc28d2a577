// One line of the list: what a job, or an upload on its way, looks like.

import { put, set, show } from "./dom.js";
import { age, clock, counted, size, span } from "./words.js";

const { states, errors, send_again: sendAgain, no_name: noName } = JSON.parse(document.getElementById("wording").textContent);
const template = document.getElementById("row").content.firstElementChild;

export const isActive = (job) => job.status !== "complete" && job.status !== "failed";
const wasRefused = (job) => job.error_code === "NOT_PDF" || job.error_code === "TOO_LARGE";
export const nameOf = (job) => job.original_filename || noName;
export const inWords = (code) => errors[code] ?? errors.UNKNOWN;

export function makeRow() {
  return template.cloneNode(true);
}

function stateOf(job, held) {
  if (job.status === "queued" && held) return "held";
  if (job.status === "queued" && job.retry_after && Date.parse(job.retry_after) > clock.now()) return "retrying";
  if (job.status === "processing" && job.progress) return job.progress.step;
  if (job.status === "complete" && !job.can_download) return "expired";
  return job.status;
}

function detailOf(job, state) {
  if (state === "complete" && job.started_at && job.completed_at) {
    return `took ${span((Date.parse(job.completed_at) - Date.parse(job.started_at)) / 1000)}`;
  }
  if (state === "retrying") {
    return `in ${span((Date.parse(job.retry_after) - clock.now()) / 1000)}, attempt ${job.attempt_count + 1}`;
  }
  if (state === "failed") return wasRefused(job) ? "not accepted" : `after ${counted(job.attempt_count, "attempt")}`;
  return states[state].detail;
}

function helpFor(job) {
  if (job.status === "complete" && !job.can_download) return { ...errors.EXPIRED, detail: "" };
  if (job.status !== "failed") return null;
  const { what, advice } = inWords(job.error_code);
  const detail = `${job.error_code}: ${job.error_message ?? "–"}`;
  return { what, advice: job.can_retry || wasRefused(job) ? advice : sendAgain, detail };
}

/** `look`: name, bytes, state (a key of the table of states), detail, percent, help. */
function draw(row, look) {
  const { tone, icon, word } = states[look.state];
  const busy = tone === "busy";
  set(row, "data-tone", tone);
  set(row.querySelector(".mark use"), "href", `#i-${icon}`);
  row.querySelector(".mark .icon").classList.toggle("turns", icon === "spin");
  put(row.querySelector(".file bdi"), look.name);
  set(row.querySelector(".file"), "title", look.name);
  put(row.querySelector(".size"), size(look.bytes));
  put(row.querySelector(".word"), busy && look.percent !== null ? `${word} ${look.percent} %` : word);
  put(row.querySelector(".how"), look.detail);
  show(row.querySelector(".how"), !busy);
  drawBar(row.querySelector("progress"), busy, look);
  drawHelp(row.querySelector(".help"), look.help);
}

function drawBar(bar, busy, look) {
  set(bar, "aria-label", `Progress of ${look.name}`);
  set(bar, "value", look.percent);
  show(bar, busy);
}

function drawHelp(part, help) {
  show(part, help !== null);
  if (help === null) return;
  put(part.querySelector(".what"), help.what);
  put(part.querySelector(".advice"), help.advice);
  put(part.querySelector(".detail"), help.detail);
}

export function fillJob(row, job, held) {
  const state = stateOf(job, held);
  const name = nameOf(job);
  row.job = job;
  set(row, "data-status", job.status);
  draw(row, {
    name,
    state,
    bytes: job.bytes,
    detail: detailOf(job, state),
    help: helpFor(job),
    percent: job.progress ? job.progress.percent : null,
  });
  const time = row.querySelector(".age");
  set(time, "datetime", job.created_at);
  put(time, age(job.created_at, clock.now()));
  show(row.querySelector(".aged"), true);
  drawActions(row, job, name);
}

function drawActions(row, job, name) {
  const download = row.querySelector(".download");
  const again = row.querySelector(".again");
  set(download, "href", `/api/jobs/${job.id}/download`);
  put(download.querySelector(".unseen"), ` the XML of ${name}`);
  set(again, "action", `/jobs/${job.id}/retry`);
  put(again.querySelector(".unseen"), `: ${name}`);
  show(download, Boolean(job.can_download));
  show(again, Boolean(job.can_retry));
  show(row.querySelector(".drop-it"), false);
  // a button that goes away must not take the reader's place with it
  if (row.contains(document.activeElement) && document.activeElement.closest("[hidden]")) row.focus();
}

/** `upload`: file, state, percent, detail and help where they are known. */
export function fillUpload(row, upload) {
  const { name, size: bytes } = upload.file;
  draw(row, {
    name,
    bytes,
    state: upload.state,
    percent: upload.percent,
    detail: upload.detail ?? states[upload.state].detail,
    help: upload.help ?? null,
  });
  show(row.querySelector(".aged"), false);
  show(row.querySelector(".download"), false);
  show(row.querySelector(".again"), false);
  const dropIt = row.querySelector(".drop-it");
  show(dropIt, true);
  put(dropIt.querySelector(".verb"), upload.state === "refused" ? "Dismiss" : "Cancel");
  put(dropIt.querySelector(".unseen"), `: ${name}`);
}

/** Between two looks at the server: ages move on, and a retry that is due is not said to wait any longer. */
export function refresh(row, held) {
  if (row.job) fillJob(row, row.job, held);
}
