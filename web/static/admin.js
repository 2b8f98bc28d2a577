// The operator's page: signs in, looks again and again, and puts what it hears in its place.

import { Chart } from "./charts.js";
import { confirm, say } from "./dialogue.js";
import { put, set, show } from "./dom.js";
import { lookForFailures, watchFailures } from "./failures.js";
import { Away, NotAllowed, ask, token } from "./operator.js";
import { Poller } from "./poll.js";
import { drawServers } from "./servers.js";
import { counted, span } from "./words.js";

const HISTORY_EVERY = 15000;
const FAILURES_EVERY = 5000;
const MINUTES = 60;
const CODE_LOOKS = { GW_5XX: "s2", GW_TIMEOUT: "s4", GW_4XX: "s1", IO_ERROR: "s3" };

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

// -- what is heard --

function tile(id, figure, aside, worry = false) {
  const part = element(`tile-${id}`);
  put(part.querySelector(".figure"), figure);
  put(part.querySelector(".aside"), aside);
  part.classList.toggle("worry", worry);
}

function drawStats(stats, { busy, room }) {
  const { jobs, completed_per_minute: pace, gateway_seconds: gateway } = stats;
  const ended = stats.completed_60m + stats.failed_60m;
  tile(
    "queued",
    plain(jobs.queued + jobs.uploaded),
    stats.oldest_queued_seconds === null ? "nothing waits" : `oldest: ${span(stats.oldest_queued_seconds)}`,
  );
  tile("running", plain(jobs.processing), room ? `of ${counted(room, "worker")}` : "no worker", room === 0);
  tile("pace", plain(pace["1m"]), `${plain(pace["60m"])} over 60 min`);
  tile(
    "success",
    stats.success_rate === null ? "–" : `${plain(100 * stats.success_rate)} %`,
    ended ? `of ${plain(ended)} in 60 min` : "none in 60 min",
  );
  tile(
    "times",
    gateway.calls ? time(gateway.p95 * 1000) : "–",
    gateway.calls ? `p50: ${time(gateway.p50 * 1000)}` : "no call yet",
  );
  tile("failed", plain(jobs.failed), `${plain(stats.failed_60m)} in 60 min`, stats.failed_60m > 0);
  drawBreaker(stats.breaker);
}

const BREAKER = {
  closed: ["good", "closed: jobs go through"],
  open: ["warn", "open: the queue is held"],
  half_open: ["warn", "half open: one job is being tried"],
};

function drawBreaker(breaker) {
  const [tone, word] = BREAKER[breaker.state];
  set(element("breaker"), "data-state", breaker.state);
  set(element("breaker-state"), "class", `pill ${tone}`);
  put(element("breaker-state"), word);
  put(element("breaker-words"), breakerInWords(breaker));
  put(element("open-breaker"), breaker.state === "closed" ? "Hold the queue" : "Keep holding it");
  show(element("open-breaker"), !breaker.by_hand);
  show(element("close-breaker"), breaker.state !== "closed");
}

function breakerInWords(breaker) {
  const calls = `${breaker.failures} of the last ${counted(breaker.calls, "gateway call")} failed`;
  if (breaker.state === "closed") {
    return breaker.calls
      ? `${calls}; it opens at ${plain(100 * breaker.threshold)} %.`
      : "No gateway call is recorded yet.";
  }
  const since = `Open for ${span(breaker.open_seconds)}`;
  if (breaker.by_hand) return `${since}, by hand: jobs wait and use up no attempt until it is closed by hand.`;
  const probe = breaker.next_probe_seconds > 0 ? `in ${span(breaker.next_probe_seconds)}` : "now";
  return `${since}: ${calls}. Jobs wait and use up no attempt; the gateway is tried again ${probe}.`;
}

function drawHistory({ minutes }) {
  const at = minutes.map((minute) => minute.at);
  const of = (name) => minutes.map((minute) => minute[name]);
  charts.depth.show(at, [{ name: "unfinished", look: "s1", values: of("depth") }]);
  charts.pace.show(at, [
    { name: "completed", look: "s3", values: of("completed") },
    { name: "failed", look: "s2", values: of("failed") },
    { name: "tried again", look: "s5", values: of("retries") },
  ]);
  charts.times.show(at, [
    { name: "p50", look: "s1", values: of("gateway_p50_ms") },
    { name: "p95", look: "s2 dashed", values: of("gateway_p95_ms") },
  ]);
  charts.errors.show(at, errorSeries(minutes));
}

/** A code keeps its colour, however frequent it is; those without one share the last. */
function errorSeries(minutes) {
  const codes = new Set(minutes.flatMap(({ errors }) => Object.keys(errors)));
  const known = Object.keys(CODE_LOOKS).filter((code) => codes.has(code));
  const rest = [...codes].filter((code) => !(code in CODE_LOOKS));
  const series = known.map((code) => ({ name: code, look: CODE_LOOKS[code], values: sums(minutes, [code]) }));
  if (rest.length) series.push({ name: rest.sort().join(", "), look: "s5", values: sums(minutes, rest) });
  return series;
}

const sums = (minutes, codes) =>
  minutes.map(({ errors }) => codes.reduce((sum, code) => sum + (errors[code] ?? 0), 0));

// -- looking --

let history = 0;
let failures = 0;

async function look() {
  if (!token.get()) return { changed: false, goOn: false };
  const went = await handle(async () => {
    const [stats, { servers }] = await Promise.all([ask("stats"), ask("servers")]);
    if (Date.now() - history > HISTORY_EVERY) {
      drawHistory(await ask(`history?minutes=${MINUTES}`));
      history = Date.now();
    }
    if (Date.now() - failures > FAILURES_EVERY) {
      await lookForFailures();
      failures = Date.now();
    }
    drawStats(stats, drawServers(servers));
    show(element("away"), false);
    put(element("updated"), `as of ${new Date().toLocaleTimeString([], { hourCycle: "h23" })}`);
  });
  return { changed: went, goOn: Boolean(token.get()) };
}

/** Whether `step` went well; what can go wrong with any of them is told here. */
async function handle(step) {
  try {
    await step();
    return true;
  } catch (error) {
    if (error instanceof NotAllowed) signOut("This token is not the right one.");
    else if (error instanceof Away) show(element("away"), true);
    else say(error.message);
    return false;
  }
}

const poller = new Poller(look, { fastest: 2000, slowest: 10000 });

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
    await ask("stats");
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
  history = 0;
  failures = 0;
  poller.soon();
}

// -- the buttons --

function actOnBreaker(button, action, title, text, verb, done) {
  element(button).addEventListener("click", async () => {
    if (!(await confirm(title, text, verb))) return;
    await handle(async () => {
      await ask(`breaker/${action}`, { method: "POST" });
      say(done);
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
    const { reclaimed, given_up: givenUp } = await ask("reclaim", { method: "POST" });
    say(reclaimed || givenUp ? `${counted(reclaimed, "job")} queued again, ${givenUp} given up` : "No job was lost");
  });
  poller.soon();
});

watchFailures(handle);
if (token.get()) start();
else showSignedIn(false);
