// The log of the queue: what happened to it, and who changed it by hand.

import { arrange, put, set, show } from "./dom.js";
import { age, clock } from "./formatting.js";

const list = document.getElementById("events");
const makeRow = () => document.getElementById("event-row").content.firstElementChild.cloneNode(true);

export function drawQueueEvents(events) {
  arrange(list, events, { key: (event) => event.id, make: makeRow, fill: fillEvent });
  show(document.getElementById("no-events"), events.length === 0);
}

function fillEvent(row, event) {
  const when = row.querySelector(".when");
  set(when, "datetime", event.at);
  put(when, age(event.at, clock.now()));
  const pill = row.querySelector(".pill");
  put(pill, event.word);
  set(pill, "class", `pill ${event.tone}`);
  put(row.querySelector(".event-detail"), event.detail);
}
