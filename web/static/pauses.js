// What is paused by hand, and the buttons that pause and resume.

import { confirm, showMessage } from "./dialogue.js";
import { arrange, put, set, show } from "./dom.js";
import { age, clock } from "./formatting.js";
import { requestAsOperator } from "./operator.js";

const list = document.getElementById("pauses");
const makeRow = () => document.getElementById("pause-row").content.firstElementChild.cloneNode(true);

export function drawPauses(pauses) {
  arrange(list, pauses, { key: (pause) => JSON.stringify(pause.scope), make: makeRow, fill: fillPause });
  show(document.getElementById("paused"), pauses.length > 0);
  show(document.getElementById("pause-all"), !pauses.some(({ scope }) => Object.keys(scope).length === 0));
}

function fillPause(row, { what, by, at }) {
  const when = row.querySelector(".when");
  set(when, "datetime", at);
  put(when, age(at, clock.now()));
  put(row.querySelector(".event-detail"), `${what}, by ${by}`);
  put(row.querySelector(".resume .unseen"), `: ${what}`);
}

/** `handle(step)` runs a step that uses the server and shows its errors; `poll()` draws its effect. */
export function listenToPauses(handle, poll) {
  const send = async (action, body, done) => {
    await handle(async () => {
      await requestAsOperator(action, { method: "POST", body });
      showMessage(done);
    });
    poll();
  };
  list.addEventListener("click", (event) => {
    if (!event.target.closest(".resume")) return;
    send("resume", JSON.parse(event.target.closest(".event").dataset.key), "Jobs are claimed again");
  });
  document.getElementById("pause-all").addEventListener("click", async () => {
    const text =
      "No worker takes another job until you resume. What is being converted now is finished. Jobs wait and use up no attempt.";
    if (await confirm("Pause everything?", text, "Pause everything")) send("pause", {}, "Everything is paused");
  });
}
