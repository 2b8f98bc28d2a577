// Asking before something that others will notice, and saying what came of it.

import { put } from "./dom.js";

const SHOWN_FOR = 6000;
let timer = 0;

/** Whether the reader agrees. */
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

export function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    toast.textContent = "";
  }, SHOWN_FOR);
}
