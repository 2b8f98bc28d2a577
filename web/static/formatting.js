// Formats sizes, times and counts for people, as wording.py does on the server.

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

/** `under 1 s`, `12 s`, `3 min`, `2 h`, `4 days`: one unit, as people write it. */
export function span(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? "1 day" : `${days} days`;
}

/** A number of seconds that `span` shows without rounding it down. */
export function roundedUp(seconds) {
  const unit = seconds > 3600 ? 3600 : seconds > 60 ? 60 : 1;
  return Math.ceil(seconds / unit) * unit;
}

export function age(at, now) {
  const seconds = (now - Date.parse(at)) / 1000;
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

export function counted(number, noun) {
  return number === 1 ? `1 ${noun}` : `${number.toLocaleString("en")} ${noun}s`;
}

/** The server's clock in milliseconds: ages must not depend on the clock of the visitor's computer. */
export const clock = {
  aheadMs: 0,
  synchronise(response) {
    const serverTime = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(serverTime)) this.aheadMs = serverTime - Date.now();
  },
  now() {
    return Date.now() + this.aheadMs;
  },
};
