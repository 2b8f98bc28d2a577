// Looking at the server again and again: quickly while things move, slowly while they do not, not at all in a hidden tab.

export class Poller {
  #look;
  #fastest;
  #slowest;
  #delay;
  #timer = 0;
  #looking = false;
  #again = false;

  /** `look()` returns {changed, goOn}. */
  constructor(look, { fastest = 1000, slowest = 10000 } = {}) {
    this.#look = look;
    this.#fastest = fastest;
    this.#slowest = slowest;
    this.#delay = fastest;
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    addEventListener("online", () => this.soon());
  }

  /** Something has happened: look at once, and quickly for a while. */
  soon() {
    this.#delay = this.#fastest;
    this.#run();
  }

  async #run() {
    clearTimeout(this.#timer);
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    let changed = false;
    let goOn = true; // whatever happens: a page that has stopped looking would never be right again
    try {
      ({ changed, goOn } = await this.#look());
    } finally {
      this.#looking = false;
      this.#after(changed, goOn);
    }
  }

  #after(changed, goOn) {
    this.#delay = changed ? this.#fastest : Math.min(this.#delay * 1.4, this.#slowest);
    if (this.#again) {
      this.#again = false;
      this.#run();
    } else if (goOn) {
      this.#plan();
    }
  }

  #plan() {
    if (document.hidden) return; // visibilitychange looks at once
    // a little earlier or later, so that many pages do not ask in step
    this.#timer = setTimeout(() => document.hidden || this.#run(), this.#delay * (0.9 + Math.random() * 0.2));
  }
}
