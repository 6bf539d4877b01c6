/* Times, counts and other small things, in words. */

const COUNT = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (number) => COUNT.format(number);

export function many(number, one, several = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : several}`;
}

const is = (at) => Math.abs(at) < 8.64e15;

export const clock = (at) => (is(at) ? CLOCK.format(at) : `${at} ms`);

export function day(at) {
  if (!is(at)) return "";
  const then = new Date(at);
  const now = new Date();
  if (then.toDateString() === now.toDateString()) return "today";
  return (then.getFullYear() === now.getFullYear() ? DAY : YEAR).format(then);
}

export const moment = (at) => (is(at) ? `${YEAR.format(at)}, ${CLOCK.format(at)}` : `${at} ms`);

export function ago(at) {
  const seconds = Math.round((Date.now() - at) / 1000);
  if (!is(at)) return "";
  if (seconds < 45) return "now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  if (seconds < 7 * 86400) return `${Math.round(seconds / 86400)} d`;
  return day(at);
}

export function lasted(start, end) {
  const seconds = (end - start) / 1000;
  if (seconds < 0) return "the clock went back";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function tokens(usage) {
  if (!usage || !(usage.input || usage.output)) return "";
  const cached = usage.cached ? ` (${count(usage.cached)} cached)` : "";
  return `${count(usage.input ?? 0)} in${cached}, ${count(usage.output ?? 0)} out`;
}

/* A call as a person would write it; what is no JSON, or was cut, as it was said. */
export function written(name, said) {
  let values;
  try {
    values = JSON.parse(said);
  } catch {
    return `${name}(${said})`;
  }
  if (values === null || typeof values !== "object" || Array.isArray(values)) return `${name}(${said})`;
  const pairs = Object.entries(values).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  return `${name}(${pairs.join(", ")})`;
}

export const short = (id) => id.slice(0, 8);
