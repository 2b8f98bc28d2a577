// Small charts, drawn as SVG in the size that they have on the screen, so that their text is not scaled.

import { announce, put } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const HEIGHT_PX = 150;
const MARGIN_PX = { left: 46, right: 8, top: 10, bottom: 22 };
const STEPS = [1, 2, 4, 6, 8, 10];

function node(parent, name, attributes, text) {
  const made = parent.appendChild(document.createElementNS(NS, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The next round number whose half is round too. */
function roundUp(value) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return ten * STEPS.find((step) => step * ten >= value);
}

const hour = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export class Chart {
  #figure;
  #svg;
  #kind;
  #format;
  #minutes = [];
  #series = [];
  #at = null;

  /** `kind`: bars (stacked), lines or area; `format(value)`: formats a value with its unit. */
  constructor(figure, kind, format) {
    this.#figure = figure;
    this.#svg = figure.querySelector("svg");
    this.#kind = kind;
    this.#format = format;
    new ResizeObserver(() => this.#draw()).observe(this.#svg);
    this.#svg.addEventListener("pointermove", (event) => this.#point(this.#indexAt(event)));
    this.#svg.addEventListener("pointerleave", () => this.#point(null));
    this.#svg.addEventListener("blur", () => this.#point(null));
    this.#svg.addEventListener("keydown", (event) => this.#key(event));
  }

  /** `series`: name, style (s1 … s5, with `dashed`), values (one per minute; null means unknown). */
  show(minutes, series) {
    this.#minutes = minutes;
    this.#series = series;
    put(this.#figure.querySelector("desc"), this.#inWords());
    const legend = this.#figure.querySelector(".legend");
    legend.hidden = this.#isQuiet();
    legend.replaceChildren(
      ...series.map(({ name, style }) => {
        const item = document.createElement("li");
        item.className = `${style} ${this.#kind === "bars" ? "" : "thin"}`;
        item.textContent = name;
        return item;
      }),
    );
    this.#draw();
  }

  #inWords() {
    return this.#series
      .map(({ name, values }) => {
        const known = values.filter((value) => value !== null);
        if (!known.length) return `${name}: none.`;
        return `${name}: ${this.#format(known.at(-1))} last, ${this.#format(Math.max(...known))} at most.`;
      })
      .join(" ");
  }

  get #width() {
    return Math.max(this.#svg.clientWidth, 160);
  }

  #x(index) {
    const room = this.#width - MARGIN_PX.left - MARGIN_PX.right;
    return MARGIN_PX.left + (room * (index + 0.5)) / Math.max(this.#minutes.length, 1);
  }

  #y(value, top) {
    return HEIGHT_PX - MARGIN_PX.bottom - ((HEIGHT_PX - MARGIN_PX.bottom - MARGIN_PX.top) * value) / top;
  }

  #top() {
    const totals = this.#minutes.map((_, index) => {
      const values = this.#series.map(({ values }) => values[index] ?? 0);
      return this.#kind === "bars" ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
    });
    return roundUp(Math.max(1, ...totals));
  }

  #draw() {
    if (!this.#minutes.length || !this.#svg.clientWidth) return;
    this.#svg.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT_PX}`);
    const group = document.createElementNS(NS, "g");
    const quiet = this.#isQuiet();
    const top = this.#top();
    this.#drawAxes(group, top, quiet ? [0] : top === 1 ? [0, 1] : [0, top / 2, top]);
    if (quiet)
      node(group, "text", { x: this.#width / 2, y: HEIGHT_PX / 2, class: "quiet-words" }, "nothing in this hour");
    else if (this.#kind === "bars") this.#drawBars(group, top);
    else for (const series of this.#series) this.#drawLine(group, top, series);
    this.#svg.querySelector("g").replaceWith(group);
    this.#drawCursor();
    this.#read();
  }

  #isQuiet() {
    return this.#series.every(({ values }) => values.every((value) => !value));
  }

  #drawAxes(group, top, values) {
    for (const value of values) {
      const y = Math.round(this.#y(value, top)) + 0.5;
      node(group, "line", {
        x1: MARGIN_PX.left,
        x2: this.#width - MARGIN_PX.right,
        y1: y,
        y2: y,
        class: value ? "grid" : "baseline",
      });
      node(group, "text", { x: MARGIN_PX.left - 6, y: y + 4, "text-anchor": "end" }, this.#format(value));
    }
    this.#minutes.forEach((at, index) => {
      if (new Date(at).getMinutes() % 15 || this.#x(index) > this.#width - 24) return;
      node(group, "text", { x: this.#x(index), y: HEIGHT_PX - 6, "text-anchor": "middle" }, hour(at));
    });
  }

  #drawBars(group, top) {
    const width = Math.max(1, (this.#x(1) - this.#x(0)) * 0.72);
    this.#minutes.forEach((_, index) => {
      let below = 0;
      for (const { style, values } of this.#series) {
        if (!values[index]) continue;
        const y = this.#y(below + values[index], top);
        node(group, "rect", {
          x: this.#x(index) - width / 2,
          y,
          width,
          height: this.#y(below, top) - y,
          class: `bar ${style}`,
        });
        below += values[index];
      }
    });
  }

  #drawLine(group, top, { style, values }) {
    for (const run of runs(values)) {
      const points = run.map((index) => `${this.#x(index).toFixed(1)} ${this.#y(values[index], top).toFixed(1)}`);
      if (run.length === 1) {
        const [x, y] = points[0].split(" ");
        node(group, "circle", { cx: x, cy: y, r: 2.5, class: `dot ${style}` });
        continue;
      }
      const base = this.#y(0, top);
      if (this.#kind === "area") {
        node(group, "path", {
          d: `M${this.#x(run[0])} ${base}L${points.join("L")}L${this.#x(run.at(-1))} ${base}Z`,
          class: `area ${style}`,
        });
      }
      node(group, "path", { d: `M${points.join("L")}`, class: `line ${style}` });
    }
  }

  // -- the minute that is selected with the pointer or the arrow keys --

  #indexAt(event) {
    const box = this.#svg.getBoundingClientRect();
    const part = (event.clientX - box.left - MARGIN_PX.left) / (box.width - MARGIN_PX.left - MARGIN_PX.right);
    return Math.min(Math.max(Math.floor(part * this.#minutes.length), 0), this.#minutes.length - 1);
  }

  #key(event) {
    const last = this.#minutes.length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last };
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    const from = this.#at ?? (moves[event.key] < 0 ? last + 1 : last - 1);
    this.#point(Math.min(Math.max(from + moves[event.key], 0), last));
    announce(this.#figure.querySelector(".readout").textContent);
  }

  #point(index) {
    if (index === this.#at) return;
    this.#at = index;
    this.#drawCursor();
    this.#read();
  }

  #drawCursor() {
    this.#svg.querySelector(".cursor")?.remove();
    if (this.#at === null || this.#at >= this.#minutes.length) return;
    const x = Math.round(this.#x(this.#at)) + 0.5;
    node(this.#svg.querySelector("g"), "line", {
      x1: x,
      x2: x,
      y1: MARGIN_PX.top,
      y2: HEIGHT_PX - MARGIN_PX.bottom,
      class: "cursor",
    });
  }

  #read() {
    const readout = this.#figure.querySelector(".readout");
    if (this.#at === null || this.#at >= this.#minutes.length) {
      put(readout, "");
      return;
    }
    const values = this.#series.filter(({ values }) => values[this.#at] !== null && values[this.#at] !== undefined);
    const readings = values.map(({ name, values }) => `${name} ${this.#format(values[this.#at])}`);
    put(readout, [hour(this.#minutes[this.#at]), ...(readings.length ? readings : ["nothing"])].join(" · "));
  }
}

/** The indexes of values that are not null, in groups without a gap. */
function runs(values) {
  const found = [];
  values.forEach((value, index) => {
    if (value === null) return;
    if (index > 0 && values[index - 1] !== null && found.length) found.at(-1).push(index);
    else found.push([index]);
  });
  return found;
}
