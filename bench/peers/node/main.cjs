// What the benchmark needs of a queue on Node: node main.cjs graphile|pgboss prepare|enqueue|submit|work
// Ids come on stdin, one on each line; `submit` prints the monotonic time just before each submission.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");

async function run(peer, verb) {
  const app = require(`./${peer}.cjs`);
  if (verb === "enqueue") {
    await app.enqueue(fs.readFileSync(0, "utf8").split("\n").filter(Boolean));
  } else if (verb === "submit") {
    const submit = await app.submitting();
    for await (const id of readline.createInterface({ input: process.stdin })) {
      const before = Number(process.hrtime.bigint()) / 1e9;
      await submit(id);
      process.stdout.write(`${before.toFixed(6)}\n`);
    }
  } else {
    await app[verb]();
  }
  if (verb !== "work") process.exit(0);
}

run(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
