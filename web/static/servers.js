// The list of servers, with the job of each worker.

import { arrange, put, set, show } from "./dom.js";

const rowOf = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);
const list = document.getElementById("servers");

export function drawServers({ rows, summary }) {
  arrange(list, rows, { key: (server) => server.id, make: () => rowOf("server-row"), fill: fillServer });
  show(document.getElementById("no-servers"), rows.length === 0);
  put(document.getElementById("servers-sum"), summary);
}

function fillServer(row, server) {
  put(row.querySelector(".host"), server.name);
  const pill = row.querySelector(".pill");
  put(pill, server.status);
  set(pill, "class", `pill ${server.tone}`);
  const facts = server.facts.map((fact) => fact.replaceAll(" ", "\u00a0")); // Lines break between facts, not within one.
  put(row.querySelector(".facts"), facts.join("\u00a0· "));
  arrange(row.querySelector(".slots"), server.workers, {
    key: (worker) => worker.slot,
    make: () => rowOf("slot-row"),
    fill: fillWorker,
  });
}

function fillWorker(row, worker) {
  const busy = worker.job_id !== null;
  put(row.querySelector(".slot-name"), `worker ${worker.slot}`);
  put(row.querySelector(".slot-job"), busy ? worker.job_id.slice(0, 8) : "idle");
  set(row.querySelector(".slot-job"), "title", worker.job_id);
  set(row, "class", busy ? "slot" : "slot muted");
  const bar = row.querySelector("progress");
  set(bar, "aria-label", `Progress of ${worker.job_id}`);
  set(bar, "value", worker.percent);
  show(bar, busy);
  put(row.querySelector(".slot-time"), worker.detail);
}
