// The queue page: uploads files, and shows the list of jobs as the server reports it.

import { announce, arrange, show } from "./dom.js";
import { acceptDroppedFiles } from "./file_drop.js";
import { counted } from "./formatting.js";
import { Poller } from "./poll.js";
import { Unreachable, readJson, request } from "./request.js";
import { fillJob, fillUpload, inWords, makeRow, tick } from "./row.js";
import { Uploads } from "./uploads.js";

const PAGE_JOBS = 50;
const MAX_LIMIT = 200; // jobs in one answer
const NEW_ESTIMATES_MS = 15000; // An estimate changes while the list does not: then the whole list is requested.
const MAX_SINGLE_REQUESTS = 5; // per poll, for rows that the list does not contain

const list = document.getElementById("jobs");
const form = document.getElementById("upload");
const field = document.getElementById("files");
const filter = list.dataset.status;
const title = document.title;

let held = !document.getElementById("busy").hidden;
let active = Number(list.dataset.active);
let next = list.dataset.next || null;
let etag = null;
let requestedAt = 0;

// -- the list --

const jobRows = () => [...list.children].filter((row) => !row.upload);

function drawJobs(jobs) {
  const ended = [];
  arrange(list, jobs, {
    key: (job) => job.id,
    make: makeRow,
    keep: () => true,
    fill(row, job) {
      if (row.dataset.status && row.job?.display.is_active && !job.display.is_active) ended.push(job);
      fillJob(row, job);
    },
  });
  for (const { upload } of [...list.children])
    if (upload?.state === "refused" && jobs.some((job) => isJobOf(job, upload))) upload.row.remove();
  announceEnded(ended);
  drawFrame();
}

/** Whether the server lists this refused upload too, as a failed job. */
function isJobOf(job, { file }) {
  return job.status === "failed" && job.original_filename === file.name && job.bytes === file.size;
}

function drawFrame() {
  list.dataset.active = active;
  show(document.getElementById("empty"), list.children.length === 0);
  show(document.getElementById("more"), Boolean(next));
  document.title = active > 0 ? `(${active}) ${title}` : title;
}

function announceEnded(ended) {
  const ready = ended.filter((job) => job.status === "complete");
  const failed = ended.filter((job) => job.status === "failed");
  if (ended.length > 3) {
    const parts = [
      ready.length && `${counted(ready.length, "file")} ready`,
      failed.length && `${counted(failed.length, "file")} failed`,
    ];
    announce(parts.filter(Boolean).join(", "));
  } else if (ended.length) {
    const lines = ready.map((job) => `${job.display.name} is ready to download`);
    announce(
      [...lines, ...failed.map(({ display }) => `${display.name} failed. ${display.help.what}`)].join(". "),
    );
  }
}

// -- the server --

async function requestJobs() {
  const limit = Math.min(Math.max(PAGE_JOBS, jobRows().length), MAX_LIMIT);
  const query = new URLSearchParams(filter ? { limit, status: filter } : { limit });
  const isOld = Date.now() - requestedAt > NEW_ESTIMATES_MS && answered.some((job) => job.estimate);
  const response = await request(`/api/jobs?${query}`, { headers: etag && !isOld ? { "If-None-Match": etag } : {} });
  if (response.status === 304) return null;
  requestedAt = Date.now();
  return { ...(await readJson(response)), etag: response.headers.get("ETag") };
}

/** Updates rows that the answer does not contain: older jobs, and jobs that no longer match the filter. */
async function requestOthers(answered) {
  const known = new Set(answered.map((job) => job.id));
  const others = jobRows().filter((row) => row.job?.display.is_active && !known.has(row.job.id));
  for (const row of others.slice(0, MAX_SINGLE_REQUESTS)) {
    const response = await request(`/api/jobs/${row.job.id}`);
    if (response.ok) {
      const job = await readJson(response);
      if (!job.display.is_active) announceEnded([job]);
      fillJob(row, job);
    }
  }
}

let answered = [];

async function poll() {
  try {
    const [answer, status] = await Promise.all([requestJobs(), request("/api/status").then(readJson)]);
    const changed = (answer !== null && answer.etag !== etag) || held !== isHeld(status);
    held = isHeld(status);
    if (answer) {
      etag = answer.etag; // A 304 from now on refers to `answered`, which is drawn again then.
      answered = answer.jobs;
      active = answer.active;
      if (jobRows().length <= PAGE_JOBS) next = answer.next;
    }
    drawJobs(answered);
    await requestOthers(answered);
    show(document.getElementById("away"), false);
    show(document.getElementById("busy"), held);
    return { changed, pollAgain: active > 0 || held || jobRows().some((row) => row.job?.display.is_active) };
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    show(document.getElementById("away"), true);
    etag = null;
    return { changed: false, pollAgain: true };
  }
}

function isHeld(status) {
  return status.breaker !== "closed";
}

const poller = new Poller(poll);

// -- uploads --

function rowOf(upload) {
  if (!upload.row) {
    upload.row = makeRow();
    upload.row.upload = upload;
    upload.row.dataset.key = crypto.randomUUID?.() ?? `upload-${Math.random()}`;
    list.prepend(upload.row);
    drawFrame();
  }
  return upload.row;
}

const uploads = new Uploads(Number(form.dataset.maxBytes), {
  changed: (upload) => fillUpload(rowOf(upload), upload),
  arrived(upload, job, isNew) {
    const known = list.querySelector(`[data-key="${job.id}"]`);
    if (known) upload.row.remove();
    const row = known ?? upload.row;
    row.upload = undefined;
    row.dataset.key = job.id;
    fillJob(row, job);
    row.classList.remove("fresh");
    requestAnimationFrame(() => row.classList.add("fresh"));
    if (isNew && !job.display.is_active) announceEnded([job]); // A quick job ends before its upload is answered.
    else announce(`${upload.file.name} ${known && !isNew ? "is in the list already" : "is uploaded"}`);
    poller.soon();
  },
  refused(upload, code, message) {
    upload.help = { ...inWords(code), detail: message && `${code}: ${message}` };
    fillUpload(rowOf(upload), upload);
    announce(`${upload.file.name} was not accepted. ${upload.help.what}`);
  },
});

function send(files) {
  const chosen = [...files];
  for (const file of chosen) uploads.add(file, form.elements.mapping?.value);
  if (chosen.length) announce(`${counted(chosen.length, "file")} chosen`);
}

field.addEventListener("change", () => {
  send(field.files);
  field.value = "";
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send(field.files);
  field.value = "";
});

acceptDroppedFiles(send);

addEventListener("beforeunload", (event) => {
  if (uploads.count) event.preventDefault();
});

// -- buttons --

list.addEventListener("submit", async (event) => {
  event.preventDefault();
  const row = event.target.closest(".job");
  const button = event.target.querySelector("button");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  try {
    const action = event.target.classList.contains("end") ? "cancel" : "retry";
    const response = await request(`/api/jobs/${row.dataset.key}/${action}`, { method: "POST" });
    const answer = await readJson(response);
    if (response.ok) {
      fillJob(row, answer);
      announce(`${answer.display.name} ${action === "cancel" ? "is cancelled" : "waits in line again"}`);
    } else {
      announce(answer.error.message);
    }
    etag = null;
    poller.soon();
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    show(document.getElementById("away"), true);
    poller.soon();
  } finally {
    button.removeAttribute("aria-disabled");
  }
});

list.addEventListener("click", (event) => {
  if (!event.target.closest(".dismiss")) return;
  const row = event.target.closest(".job");
  const neighbour = row.nextElementSibling ?? row.previousElementSibling;
  uploads.cancel(row.upload);
  row.remove();
  drawFrame();
  (neighbour ?? field).focus();
});

document.querySelector("#more a").addEventListener("click", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ limit: PAGE_JOBS, before: next, ...(filter && { status: filter }) });
  try {
    const answer = await readJson(await request(`/api/jobs?${query}`));
    const first = answer.jobs[0];
    for (const job of answer.jobs) {
      const row = list.querySelector(`[data-key="${job.id}"]`) ?? list.appendChild(makeRow());
      row.dataset.key = job.id;
      fillJob(row, job);
    }
    next = answer.next;
    drawFrame();
    announce(`${counted(answer.jobs.length, "older file")} shown`);
    if (first) list.querySelector(`[data-key="${first.id}"]`).focus();
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    show(document.getElementById("away"), true);
    poller.soon();
  }
});

setInterval(() => {
  if (document.hidden) return;
  const due = jobRows().filter(tick);
  if (due.length) poller.soon(); // Only the server knows the next state.
}, 1000);

poller.soon();
