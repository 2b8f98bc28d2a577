// pg-boss: batches of BATCH_SIZE; the next batch is fetched at once while batches come full.
"use strict";

const { PgBoss } = require("pg-boss");
const { convertAll } = require("./work.cjs");

const { DATABASE_URL, BATCH_SIZE } = process.env;
const QUEUE = "convert";

async function open() {
  const boss = new PgBoss({ connectionString: DATABASE_URL, schedule: false });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function prepare() {
  await (await open()).createQueue(QUEUE);
}

async function enqueue(ids) {
  const boss = await open();
  for (let first = 0; first < ids.length; first += 1000) {
    await boss.insert(QUEUE, ids.slice(first, first + 1000).map((id) => ({ data: { id } })));
  }
}

async function submitting() {
  const boss = await open();
  return (id) => boss.send(QUEUE, { id });
}

async function work() {
  const options = { batchSize: Number(BATCH_SIZE), burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  await (await open()).work(QUEUE, options, (jobs) => convertAll(jobs.map((job) => job.data.id)));
}

module.exports = { prepare, enqueue, submitting, work };
