// The operators' page: signs in, polls the server, and draws the answers.

import { listenToCancelling } from "./cancelling.js";
import { Chart } from "./charts.js";
import { confirm, showMessage } from "./dialogue.js";
import { put, set, show } from "./dom.js";
import { listenToFailures, requestFailures } from "./failures.js";
import { counted, span } from "./formatting.js";
import { NotAllowed, requestAsOperator, token } from "./operator.js";
import { drawPauses, listenToPauses } from "./pauses.js";
import { Poller } from "./poll.js";
import { drawQueueEvents } from "./queue_events.js";
import { Unreachable } from "./request.js";
import { drawServers } from "./servers.js";

const HISTORY_EVERY_MS = 15000;
const FAILURES_EVERY_MS = 5000;
const MINUTES = 60;
const CODE_STYLES = { GW_5XX: "s2", GW_TIMEOUT: "s4", GW_4XX: "s1", IO_ERROR: "s3" };

const element = (id) => document.getElementById(id);
const plain = (number) => number.toLocaleString("en", { maximumFractionDigits: 1 });
const time = (ms) =>
  ms >= 9950 ? `${Math.round(ms / 1000)} s` : ms >= 1000 ? `${plain(ms / 1000)} s` : `${Math.round(ms)} ms`;

const charts = {
  depth: new Chart(element("chart-depth"), "area", plain),
  pace: new Chart(element("chart-pace"), "bars", plain),
  times: new Chart(element("chart-times"), "lines", time),
  errors: new Chart(element("chart-errors"), "bars", plain),
};

// -- drawing --

function drawTile(id, figure, aside, worry = false) {
  const part = element(`tile-${id}`);
  put(part.querySelector(".figure"), figure);
  put(part.querySelector(".aside"), aside);
  part.classList.toggle("worry", worry);
}

function drawStats(stats, workers) {
  const { jobs, completed_per_minute: pace, gateway_seconds: gateway } = stats;
  const ended = stats.completed_60m + stats.failed_60m;
  drawTile(
    "queued",
    plain(jobs.queued + jobs.uploaded),
    stats.oldest_queued_seconds === null ? "nothing waits" : `oldest: ${span(stats.oldest_queued_seconds)}`,
  );
  drawTile("running", plain(jobs.processing), workers ? `of ${counted(workers, "worker")}` : "no worker", workers === 0);
  drawTile("pace", plain(pace["1m"]), `${plain(pace["60m"])} over 60 min`);
  drawTile(
    "success",
    stats.success_rate === null ? "–" : `${plain(100 * stats.success_rate)} %`,
    ended ? `of ${plain(ended)} in 60 min` : "none in 60 min",
  );
  drawTile(
    "times",
    gateway.calls ? time(gateway.p95 * 1000) : "–",
    gateway.calls ? `p50: ${time(gateway.p50 * 1000)}` : "no call yet",
  );
  drawTile("failed", plain(jobs.failed), `${plain(stats.failed_60m)} in 60 min`, stats.failed_60m > 0);
}

function drawBreaker(breaker) {
  set(element("breaker"), "data-state", breaker.state);
  set(element("breaker-state"), "class", `pill ${breaker.tone}`);
  put(element("breaker-state"), breaker.word);
  put(element("breaker-words"), breaker.detail);
  if (breaker.open_label) put(element("open-breaker"), breaker.open_label);
  show(element("open-breaker"), breaker.open_label !== null);
  show(element("close-breaker"), breaker.can_close);
}

function drawGateways(gateways) {
  show(element("gateways"), gateways.length > 0);
  element("gateways").replaceChildren(
    ...gateways.map(({ name, tone, word, detail }) => {
      const line = document.createElement("li");
      const pill = document.createElement("span");
      pill.className = `pill ${tone}`;
      pill.textContent = word;
      line.append(`${name} `, pill, ` ${detail}`);
      return line;
    }),
  );
}

function drawHistory({ minutes }) {
  const at = minutes.map((minute) => minute.at);
  const of = (name) => minutes.map((minute) => minute[name]);
  charts.depth.show(at, [{ name: "unfinished", style: "s1", values: of("depth") }]);
  charts.pace.show(at, [
    { name: "completed", style: "s3", values: of("completed") },
    { name: "failed", style: "s2", values: of("failed") },
    { name: "cancelled", style: "s4", values: of("cancelled") },
    { name: "tried again", style: "s5", values: of("retries") },
  ]);
  charts.times.show(at, [
    { name: "p50", style: "s1", values: of("gateway_p50_ms") },
    { name: "p95", style: "s2 dashed", values: of("gateway_p95_ms") },
  ]);
  charts.errors.show(at, errorSeries(minutes));
}

/** Each code has a fixed colour, whatever its rank; codes without one share the last colour. */
function errorSeries(minutes) {
  const codes = new Set(minutes.flatMap(({ errors }) => Object.keys(errors)));
  const known = Object.keys(CODE_STYLES).filter((code) => codes.has(code));
  const rest = [...codes].filter((code) => !(code in CODE_STYLES));
  const series = known.map((code) => ({ name: code, style: CODE_STYLES[code], values: sums(minutes, [code]) }));
  if (rest.length) series.push({ name: rest.sort().join(", "), style: "s5", values: sums(minutes, rest) });
  return series;
}

const sums = (minutes, codes) =>
  minutes.map(({ errors }) => codes.reduce((sum, code) => sum + (errors[code] ?? 0), 0));

// -- polling --

let historyDrawnAt = 0;
let failuresDrawnAt = 0;

async function poll() {
  if (!token.get()) return { changed: false, pollAgain: false };
  const succeeded = await handle(async () => {
    const { stats, breaker, gateways, servers, pauses, events } = await requestAsOperator("dashboard");
    if (Date.now() - historyDrawnAt > HISTORY_EVERY_MS) {
      drawHistory(await requestAsOperator(`history?minutes=${MINUTES}`));
      historyDrawnAt = Date.now();
    }
    if (Date.now() - failuresDrawnAt > FAILURES_EVERY_MS) {
      await requestFailures();
      failuresDrawnAt = Date.now();
    }
    drawStats(stats, servers.workers);
    drawBreaker(breaker);
    drawGateways(gateways);
    drawServers(servers);
    drawPauses(pauses);
    drawQueueEvents(events);
    show(element("away"), false);
    put(element("updated"), `as of ${new Date().toLocaleTimeString([], { hourCycle: "h23" })}`);
  });
  return { changed: succeeded, pollAgain: Boolean(token.get()) };
}

/** Whether `step` succeeded. Errors of all steps are shown here. */
async function handle(step) {
  try {
    await step();
    return true;
  } catch (error) {
    if (error instanceof NotAllowed) signOut("This token is not the right one.");
    else if (error instanceof Unreachable) show(element("away"), true);
    else showMessage(error.message);
    return false;
  }
}

const poller = new Poller(poll, { fastestMs: 2000, slowestMs: 10000 });

// -- the token --

function showSignedIn(signedIn) {
  for (const part of document.querySelectorAll(".signed-in")) show(part, signedIn);
  show(element("sign-in"), !signedIn);
}

function signOut(why = "") {
  token.forget();
  showSignedIn(false);
  put(element("token-error"), why);
  element("token").focus();
}

element("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  token.set(element("token").value.trim());
  put(element("token-error"), "");
  try {
    await requestAsOperator("stats");
  } catch (error) {
    token.forget();
    const why =
      error instanceof NotAllowed
        ? "This token is not the right one."
        : "The server or its database cannot be reached at the moment. Try again.";
    put(element("token-error"), why);
    element("token").focus();
    return;
  }
  element("token").value = "";
  start();
  element("content").focus();
});

element("sign-out").addEventListener("click", () => signOut());

function start() {
  showSignedIn(true);
  historyDrawnAt = 0;
  failuresDrawnAt = 0;
  poller.soon();
}

// -- the buttons --

function actOnBreaker(button, action, title, text, verb, done) {
  element(button).addEventListener("click", async () => {
    if (!(await confirm(title, text, verb))) return;
    await handle(async () => {
      await requestAsOperator(`breaker/${action}`, { method: "POST" });
      showMessage(done);
    });
    poller.soon();
  });
}

actOnBreaker(
  "open-breaker",
  "open",
  "Hold the queue?",
  "No worker takes another job until you let jobs through again. What is being converted now is finished. Visitors see that the converter is busy.",
  "Hold the queue",
  "The queue is held",
);
actOnBreaker(
  "close-breaker",
  "close",
  "Let jobs through?",
  "Workers take jobs again at once, and what is known of past gateway calls is forgotten.",
  "Let jobs through",
  "Jobs go through again",
);

element("reclaim").addEventListener("click", async () => {
  await handle(async () => {
    const { message } = await requestAsOperator("reclaim", { method: "POST" });
    showMessage(message);
  });
  poller.soon();
});

listenToFailures(handle);
listenToCancelling(handle, () => poller.soon());
listenToPauses(handle, () => poller.soon());
if (token.get()) start();
else showSignedIn(false);
