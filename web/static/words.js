// How things are written for people. wording.py does the same where the server draws the page.

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** `512 B`, `1.2 MB`; decimal, as disks and uploads are measured. */
export function size(count) {
  let number = count;
  let unit = 0;
  while (number >= 999.5 && unit < UNITS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${number.toFixed(unit === 0 || number >= 99.5 ? 0 : 1)} ${UNITS[unit]}`;
}

/** `under 1 s`, `12 s`, `3 min`, `2 h`, `4 days`: one unit, as people say it. */
export function span(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? "1 day" : `${days} days`;
}

export function age(at, now) {
  const seconds = (now - Date.parse(at)) / 1000;
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

export function counted(number, noun) {
  return number === 1 ? `1 ${noun}` : `${number.toLocaleString("en")} ${noun}s`;
}

/** Milliseconds of the server's clock: ages must not depend on a laptop's. */
export const clock = {
  ahead: 0,
  heard(response) {
    const told = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(told)) this.ahead = told - Date.now();
  },
  now() {
    return Date.now() + this.ahead;
  },
};
