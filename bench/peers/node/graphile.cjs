// graphile-worker: plain, or in batches (LOCAL_QUEUE jobs claimed ahead, completions written COMPLETE_DELAY_MS late).
"use strict";

const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { concurrency, convert } = require("./work.cjs");

const { DATABASE_URL, LOCAL_QUEUE, COMPLETE_DELAY_MS } = process.env;
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const batches = LOCAL_QUEUE
  ? { localQueue: { size: Number(LOCAL_QUEUE) }, completeJobBatchDelay: Number(COMPLETE_DELAY_MS) }
  : {};
const preset = { worker: { connectionString: DATABASE_URL, concurrentJobs: concurrency, logger, ...batches } };

async function prepare() {
  await runMigrations({ connectionString: DATABASE_URL, logger });
}

async function enqueue(ids) {
  const utils = await makeWorkerUtils({ connectionString: DATABASE_URL, logger });
  for (let first = 0; first < ids.length; first += 1000) {
    await utils.addJobs(ids.slice(first, first + 1000).map((id) => ({ identifier: "convert", payload: { id } })));
  }
  await utils.release();
}

async function submitting() {
  const utils = await makeWorkerUtils({ connectionString: DATABASE_URL, logger });
  return (id) => utils.addJob("convert", { id });
}

async function work() {
  await run({ preset, taskList: { convert: ({ id }) => convert(id) } });
}

module.exports = { prepare, enqueue, submitting, work };
