// Uploads files: a few at a time, with progress, and again after a network error.

const MAX_PARALLEL = 3;
const MARK_BYTES = 1024; // The mark %PDF- is within the first bytes of a file.
const FIRST_PAUSE_MS = 2000;
const MAX_PAUSE_MS = 30000;
const FULL_PAUSE_MS = 5000;

export class Uploads {
  #waiting = [];
  #sending = 0;
  #maxBytes;
  #on;

  /** `on`: changed(upload), arrived(upload, job, isNew), refused(upload, code). */
  constructor(maxBytes, on) {
    this.#maxBytes = maxBytes;
    this.#on = on;
  }

  get count() {
    return this.#waiting.length + this.#sending;
  }

  async add(file, mapping) {
    const upload = { file, mapping, state: "unsent", percent: null, pause: FIRST_PAUSE_MS };
    this.#on.changed(upload);
    const code = await this.#findProblem(file);
    if (upload.state !== "unsent") return; // The visitor has cancelled it.
    if (code) {
      upload.state = "refused";
      this.#on.refused(upload, code, "");
    } else {
      this.#waiting.push(upload);
      this.#next();
    }
  }

  cancel(upload) {
    upload.state = "cancelled";
    clearTimeout(upload.timer);
    this.#waiting = this.#waiting.filter((other) => other !== upload);
    upload.request?.abort();
  }

  /** The code with which the server would refuse the file, which is then not sent; or null. */
  async #findProblem(file) {
    if (file.size > this.#maxBytes) return "TOO_LARGE";
    try {
      const beginning = new Uint8Array(await file.slice(0, MARK_BYTES).arrayBuffer());
      return String.fromCharCode(...beginning).includes("%PDF-") ? null : "NOT_PDF";
    } catch {
      return "NOT_PDF"; // A folder, or a file that has been removed.
    }
  }

  #next() {
    while (this.#sending < MAX_PARALLEL && this.#waiting.length) this.#send(this.#waiting.shift());
  }

  #send(upload) {
    const form = new FormData();
    if (upload.mapping) form.append("mapping", upload.mapping);
    form.append("file", upload.file);
    const request = new XMLHttpRequest();
    Object.assign(upload, { request, state: "sending", percent: 0 });
    this.#sending += 1;
    request.upload.onprogress = (event) => {
      upload.percent = Math.floor((100 * event.loaded) / event.total);
      this.#on.changed(upload);
    };
    request.onloadend = () => {
      this.#sending -= 1;
      if (upload.state === "sending") this.#ended(upload, request);
      this.#next();
    };
    request.open("POST", "/api/jobs");
    request.responseType = "json";
    request.send(form);
    this.#on.changed(upload);
  }

  #ended(upload, request) {
    const { status, response } = request;
    if (status === 200 || status === 201) {
      this.#on.arrived(upload, response, status === 201);
    } else if (status === 429) {
      this.#stall(upload, FULL_PAUSE_MS, "many of yours are under way");
    } else if (status === 0 || status >= 500) {
      this.#stall(upload, upload.pause);
      upload.pause = Math.min(upload.pause * 2, MAX_PAUSE_MS);
    } else {
      upload.state = "refused";
      this.#on.refused(upload, response?.error?.code ?? "UNKNOWN", response?.error?.message ?? `HTTP ${status}`);
    }
  }

  #stall(upload, pause, detail) {
    Object.assign(upload, { state: "stalled", percent: null, detail });
    this.#on.changed(upload);
    upload.timer = setTimeout(() => {
      upload.detail = undefined;
      upload.state = "unsent";
      this.#waiting.push(upload);
      this.#next();
    }, pause);
  }
}
