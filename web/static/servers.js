// The servers, and what each of their workers does.

import { arrange, put, set, show } from "./dom.js";
import { counted, span } from "./words.js";

const TONES = { active: "good", draining: "warn", dead: "bad", unregistered: "bad", stopped: "" };
const AT_WORK = ["active", "draining"];
const REMEMBERED = 600; // s for which one that is gone is still shown

const rowOf = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);
const list = document.getElementById("servers");

export function drawServers(servers) {
  const shown = servers.filter(
    (server) => server.jobs.length || AT_WORK.includes(server.status) || server.heartbeat_seconds < REMEMBERED,
  );
  arrange(list, shown, { key: (server) => server.id, make: () => rowOf("server-row"), fill: fillServer });
  show(document.getElementById("no-servers"), shown.length === 0);
  const busy = servers.reduce((sum, server) => sum + server.jobs.length, 0);
  const room = servers
    .filter((server) => AT_WORK.includes(server.status))
    .reduce((sum, server) => sum + server.concurrency, 0);
  put(document.getElementById("servers-sum"), shown.length ? `${busy} of ${counted(room, "worker")} busy` : "");
  return { busy, room };
}

function fillServer(row, server) {
  put(row.querySelector(".host"), server.hostname ? `${server.hostname}:${server.pid}` : server.id);
  const pill = row.querySelector(".pill");
  put(pill, server.status);
  set(pill, "class", `pill ${TONES[server.status] ?? ""}`);
  put(row.querySelector(".facts"), facts(server));
  arrange(row.querySelector(".slots"), slots(server), {
    key: (slot) => slot.slot,
    make: () => rowOf("slot-row"),
    fill: fillSlot,
  });
}

function facts(server) {
  if (!server.hostname) return "holds a job, but is not registered";
  const beat = server.status === "stopped" ? "" : `heard ${span(server.heartbeat_seconds)} ago`;
  return [server.environment, `version ${server.version}`, `up ${span(server.up_seconds)}`, beat]
    .filter(Boolean)
    .map((fact) => fact.replaceAll(" ", "\u00a0")) // a line breaks between two, never within one
    .join("\u00a0· ");
}

/** Every worker of a server at work, busy or not; of any other, those that still hold a job. */
function slots(server) {
  const busy = new Map(server.jobs.map((job) => [String(job.slot), job]));
  const names = AT_WORK.includes(server.status)
    ? Array.from({ length: server.concurrency }, (_, index) => String(index + 1))
    : [];
  const all = new Set([...names, ...busy.keys()]);
  return [...all].map((slot) => ({ slot, ...busy.get(slot) }));
}

function fillSlot(row, slot) {
  const busy = Boolean(slot.job_id);
  put(row.querySelector(".slot-name"), `worker ${slot.slot}`);
  put(row.querySelector(".slot-job"), busy ? slot.job_id.slice(0, 8) : "idle");
  set(row.querySelector(".slot-job"), "title", busy ? slot.job_id : null);
  set(row, "class", busy ? "slot" : "slot muted");
  const bar = row.querySelector("progress");
  set(bar, "aria-label", `Progress of ${slot.job_id}`);
  set(bar, "value", busy && slot.step ? slot.percent : busy ? null : 0);
  show(bar, busy);
  const step = slot.step ? `${slot.step}, ` : "";
  put(row.querySelector(".slot-time"), busy ? `${step}${span(slot.seconds)}` : "");
}
