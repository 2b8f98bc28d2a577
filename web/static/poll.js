// Polls the server: often while jobs change, rarely while they do not, and never in a hidden tab.

export class Poller {
  #poll;
  #fastestMs;
  #slowestMs;
  #delayMs;
  #timer = 0;
  #isPolling = false;
  #again = false;

  /** `poll()` returns {changed, pollAgain}: whether to poll soon, and whether to poll again at all. */
  constructor(poll, { fastestMs = 1000, slowestMs = 10000 } = {}) {
    this.#poll = poll;
    this.#fastestMs = fastestMs;
    this.#slowestMs = slowestMs;
    this.#delayMs = fastestMs;
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    addEventListener("online", () => this.soon());
  }

  /** Polls at once, and often for a while, because something has changed. */
  soon() {
    this.#delayMs = this.#fastestMs;
    this.#run();
  }

  async #run() {
    clearTimeout(this.#timer);
    if (this.#isPolling) {
      this.#again = true;
      return;
    }
    this.#isPolling = true;
    let changed = false;
    let pollAgain = true; // Also after an error: a page that stops polling would stay wrong.
    try {
      ({ changed, pollAgain } = await this.#poll());
    } finally {
      this.#isPolling = false;
      this.#after(changed, pollAgain);
    }
  }

  #after(changed, pollAgain) {
    this.#delayMs = changed ? this.#fastestMs : Math.min(this.#delayMs * 1.4, this.#slowestMs);
    if (this.#again) {
      this.#again = false;
      this.#run();
    } else if (pollAgain) {
      this.#schedule();
    }
  }

  #schedule() {
    if (document.hidden) return; // visibilitychange polls at once.
    // Random jitter keeps many pages from polling at the same time.
    this.#timer = setTimeout(() => document.hidden || this.#run(), this.#delayMs * (0.9 + Math.random() * 0.2));
  }
}
