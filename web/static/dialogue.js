// A confirmation before actions that affect others, and a message with their result.

import { put } from "./dom.js";

const SHOW_MESSAGE_MS = 6000;
let timer = 0;

/** Whether the operator confirms. */
export function confirm(title, text, verb) {
  const dialog = document.getElementById("confirm");
  put(document.getElementById("confirm-title"), title);
  put(document.getElementById("confirm-text"), text);
  put(document.getElementById("confirm-yes"), verb);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Shows a message for a few seconds. */
export function showMessage(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    toast.textContent = "";
  }, SHOW_MESSAGE_MS);
}
