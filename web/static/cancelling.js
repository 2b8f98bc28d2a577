// The form that cancels unfinished jobs in bulk.

import { changeMatching } from "./bulk.js";

const form = document.getElementById("cancel");

/** `handle(step)` runs a step that uses the server, and shows its errors. */
export function listenToCancelling(handle, changed) {
  const button = form.querySelector("button");
  const { owner, mapping, status, cascade } = form.elements;
  const filterValues = () => ({
    ...(owner.value.trim() && { owner: owner.value.trim() }),
    ...(mapping.value.trim() && { mapping: mapping.value.trim() }),
    ...(status.value && { status: status.value }),
  });
  const draw = () => {
    button.disabled = Object.keys(filterValues()).length === 0;
  };
  form.addEventListener("input", draw);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const filter = { ...filterValues(), ...(cascade.checked && { cascade: true }) };
    await handle(() =>
      changeMatching("cancel", filter, {
        title: "Cancel these jobs?",
        text: "Those that are being converted are ended at once. They can be queued again by “convertq retry --cancelled”.",
        verb: "Cancel jobs",
        done: "cancelled",
        word: "cancelled",
      }),
    );
    changed();
  });
  draw();
}
