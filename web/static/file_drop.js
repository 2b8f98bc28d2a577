// The whole page accepts dropped files: a browser would open a PDF that is dropped beside the form.

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

/** `send(files)` is called with the files that were dropped. */
export function acceptDroppedFiles(send) {
  let entered = 0; // elements of the page that the pointer has entered and not left

  addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    entered += 1;
    document.body.classList.add("dragging");
  });
  addEventListener("dragleave", (event) => {
    if (!hasFiles(event)) return;
    entered -= 1;
    if (entered <= 0) document.body.classList.remove("dragging");
  });
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    entered = 0;
    document.body.classList.remove("dragging");
    send(event.dataTransfer.files);
  });
}
