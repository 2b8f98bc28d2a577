// The queue page: uploads, the list, and what the server says of it.

import { announce, arrange, show } from "./dom.js";
import { Poller } from "./poll.js";
import { fillJob, fillUpload, inWords, isActive, makeRow, nameOf, refresh } from "./row.js";
import { Uploads } from "./uploads.js";
import { clock, counted } from "./words.js";

const PAGE = 50;
const MOST = 200; // of one answer
const ONE_BY_ONE = 5; // rows outside the answer, at each look

const list = document.getElementById("jobs");
const form = document.getElementById("upload");
const field = document.getElementById("files");
const filter = list.dataset.status;
const title = document.title;

let held = !document.getElementById("busy").hidden;
let active = Number(list.dataset.active);
let next = list.dataset.next || null;
let etag = null;

// -- the list --

const jobRows = () => [...list.children].filter((row) => !row.upload);

function drawJobs(jobs) {
  const ended = [];
  arrange(list, jobs, {
    key: (job) => job.id,
    make: makeRow,
    keep: () => true,
    fill(row, job) {
      if (row.dataset.status && row.job && isActive(row.job) && !isActive(job)) ended.push(job);
      fillJob(row, job, held);
    },
  });
  for (const { upload } of [...list.children])
    if (upload?.state === "refused" && jobs.some((job) => isThat(job, upload))) upload.row.remove();
  tell(ended);
  drawFrame();
}

/** What the server has refused it also keeps in the list. */
function isThat(job, { file }) {
  return job.status === "failed" && job.original_filename === file.name && job.bytes === file.size;
}

function drawFrame() {
  list.dataset.active = active;
  show(document.getElementById("empty"), list.children.length === 0);
  show(document.getElementById("more"), Boolean(next));
  document.title = active > 0 ? `(${active}) ${title}` : title;
}

function tell(ended) {
  const ready = ended.filter((job) => job.status === "complete");
  const failed = ended.filter((job) => job.status === "failed");
  if (ended.length > 3) {
    const parts = [
      ready.length && `${counted(ready.length, "file")} ready`,
      failed.length && `${counted(failed.length, "file")} failed`,
    ];
    announce(parts.filter(Boolean).join(", "));
  } else if (ended.length) {
    const lines = ready.map((job) => `${nameOf(job)} is ready to download`);
    announce(
      [...lines, ...failed.map((job) => `${nameOf(job)} failed. ${inWords(job.error_code).what}`)].join(". "),
    );
  }
}

// -- the server --

class Away extends Error {}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Away();
  }
  if (response.status >= 500) throw new Away();
  clock.heard(response);
  return response;
}

/** An answer that breaks off is none. */
async function read(response) {
  try {
    return await response.json();
  } catch {
    throw new Away();
  }
}

async function askForJobs() {
  const limit = Math.min(Math.max(PAGE, jobRows().length), MOST);
  const query = new URLSearchParams(filter ? { limit, status: filter } : { limit });
  const response = await ask(`/api/jobs?${query}`, { headers: etag ? { "If-None-Match": etag } : {} });
  return response.status === 304 ? null : { ...(await read(response)), etag: response.headers.get("ETag") };
}

/** Rows that the answer does not reach to: older ones, and those that have left the filter. */
async function askForOthers(answered) {
  const known = new Set(answered.map((job) => job.id));
  const others = jobRows().filter((row) => row.job && isActive(row.job) && !known.has(row.job.id));
  for (const row of others.slice(0, ONE_BY_ONE)) {
    const response = await ask(`/api/jobs/${row.job.id}`);
    if (response.ok) {
      const job = await read(response);
      if (!isActive(job)) tell([job]);
      fillJob(row, job, held);
    }
  }
}

let answered = [];

async function look() {
  try {
    const [answer, status] = await Promise.all([askForJobs(), ask("/api/status").then(read)]);
    const changed = answer !== null || held !== isHeld(status);
    held = isHeld(status);
    if (answer) {
      etag = answer.etag; // only now: an answer that was not drawn must not be taken for seen
      answered = answer.jobs;
      active = answer.active;
      if (jobRows().length <= PAGE) next = answer.next;
    }
    drawJobs(answered);
    await askForOthers(answered);
    show(document.getElementById("away"), false);
    show(document.getElementById("busy"), held);
    return { changed, goOn: active > 0 || held || jobRows().some((row) => row.job && isActive(row.job)) };
  } catch (error) {
    if (!(error instanceof Away)) throw error;
    show(document.getElementById("away"), true);
    etag = null;
    return { changed: false, goOn: true };
  }
}

function isHeld(status) {
  return status.breaker !== "closed";
}

const poller = new Poller(look);

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
  arrived(upload, job) {
    const known = list.querySelector(`[data-key="${job.id}"]`);
    if (known) upload.row.remove();
    const row = known ?? upload.row;
    row.upload = undefined;
    row.dataset.key = job.id;
    fillJob(row, job, held);
    row.classList.remove("fresh");
    requestAnimationFrame(() => row.classList.add("fresh"));
    announce(known ? `${upload.file.name} is in the list already` : `${upload.file.name} is uploaded`);
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

// the whole page takes files: missing the zone would open the PDF and close the list
let over = 0;
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

addEventListener("dragenter", (event) => {
  if (!hasFiles(event)) return;
  over += 1;
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => {
  if (!hasFiles(event)) return;
  over -= 1;
  if (over <= 0) document.body.classList.remove("dragging");
});
addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  over = 0;
  document.body.classList.remove("dragging");
  send(event.dataTransfer.files);
});

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
    const response = await ask(`/api/jobs/${row.dataset.key}/retry`, { method: "POST" });
    const answer = await read(response);
    if (response.ok) {
      fillJob(row, answer, held);
      announce(`${nameOf(answer)} waits in line again`);
    } else {
      announce(answer.error.message);
    }
    etag = null;
    poller.soon();
  } catch (error) {
    if (!(error instanceof Away)) throw error;
    show(document.getElementById("away"), true);
    poller.soon();
  } finally {
    button.removeAttribute("aria-disabled");
  }
});

list.addEventListener("click", (event) => {
  if (!event.target.closest(".drop-it")) return;
  const row = event.target.closest(".job");
  const neighbour = row.nextElementSibling ?? row.previousElementSibling;
  uploads.cancel(row.upload);
  row.remove();
  drawFrame();
  (neighbour ?? field).focus();
});

document.querySelector("#more a").addEventListener("click", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ limit: PAGE, before: next, ...(filter && { status: filter }) });
  try {
    const answer = await read(await ask(`/api/jobs?${query}`));
    const first = answer.jobs[0];
    for (const job of answer.jobs) {
      const row = list.querySelector(`[data-key="${job.id}"]`) ?? list.appendChild(makeRow());
      row.dataset.key = job.id;
      fillJob(row, job, held);
    }
    next = answer.next;
    drawFrame();
    announce(`${counted(answer.jobs.length, "older file")} shown`);
    if (first) list.querySelector(`[data-key="${first.id}"]`).focus();
  } catch (error) {
    if (!(error instanceof Away)) throw error;
    show(document.getElementById("away"), true);
    poller.soon();
  }
});

setInterval(() => {
  if (!document.hidden) for (const row of jobRows()) refresh(row, held);
}, 1000);

poller.soon();
