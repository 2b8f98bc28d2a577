// Changes to many jobs: a preview that has to be confirmed, and progress that can be stopped.

import { confirm, showMessage } from "./dialogue.js";
import { put, show } from "./dom.js";
import { counted } from "./formatting.js";
import { requestAsOperator } from "./operator.js";

const BATCH_JOBS = 500; // in one request
const NAMES_SHOWN = 3;

let stopped = false;
const bar = document.getElementById("bulk-progress");

document.getElementById("bulk-stop").addEventListener("click", () => {
  stopped = true;
});

function sampleInWords({ matching, sample }) {
  const names = sample.slice(0, NAMES_SHOWN).map((job) => job.original_filename || "(no name)");
  const rest = matching - names.length;
  return `${names.join(", ")}${rest > 0 ? ` and ${rest.toLocaleString("en")} more` : ""}`;
}

function draw(words, tried, wanted) {
  const progress = bar.querySelector("progress");
  progress.max = wanted;
  progress.value = Math.min(tried, wanted);
  put(bar.querySelector(".bulk-words"), words);
}

/**
 * Shows how many jobs match and the first of them, and changes them when the operator confirms.
 * `path`: of the API; `filter`: its body; `title`, `text`, `verb`: of the dialogue; `done`: the key of the answer that
 * counts what was changed; `word`: for it; `keeps`: whether a job that was skipped still matches.
 */
export async function changeMatching(path, filter, { title, text, verb, ...counting }) {
  const found = await requestAsOperator(path, { method: "POST", body: { ...filter, dry_run: true } });
  if (found.matching === 0) {
    showMessage("No job matches");
    return;
  }
  const counts = counted(found.matching, "job");
  if (!(await confirm(title, `${counts}: ${sampleInWords(found)}. ${text}`, verb))) return;
  await changeInBatches(path, filter, found.matching, counting);
}

async function changeInBatches(path, filter, matching, { done, word, keeps = false }) {
  let changed = 0;
  let skipped = 0;
  stopped = false;
  show(bar, true);
  try {
    while (!stopped) {
      draw(`${changed.toLocaleString("en")} ${word}`, changed + skipped, matching);
      // What was skipped and still matches is the oldest.
      const body = { ...filter, limit: BATCH_JOBS, skip: keeps ? skipped : 0 };
      const answer = await requestAsOperator(path, { method: "POST", body });
      changed += answer[done];
      skipped += answer.skipped;
      if (answer.left === 0) break;
    }
  } finally {
    show(bar, false);
  }
  const rest = skipped ? `, ${skipped.toLocaleString("en")} left as they were` : "";
  showMessage(`${stopped ? "Stopped: " : ""}${changed.toLocaleString("en")} ${word}${rest}`);
}
