/* News of a session. Its stream tells that there is some; what is shown is asked for then, and is always the whole of what
   is stored, so nothing is missed or shown twice, however often the stream is cut off. It goes on from its cursor.

   A browser has six connections to one server, for all its tabs: a few tabs have a stream, those that are in sight, and
   the others look every now and then. */

import { ask, Problem, stream } from "./api.js";
import { EventLines } from "./event_lines.js";

const REST_MS = 250;
const AGAIN_MS = [500, 1000, 2000, 5000];
const STREAMS_MAX = 3;
/* So long a stream may be silent: the server says something every 15 seconds. */
const SILENT_MS = 45_000;
/* How often it is looked without being told: while a message is spoken, which thinks and calls, too, and only its words
   are told; without a stream; and with one. */
const SPEAKING_MS = 1000;
const ALONE_MS = 2000;
const TOLD_MS = 60_000;

/* Calls `tell(body)` with each new answer, `trouble(error)` when there is none, until it is aborted. */
export async function follow(session, { query, tag, signal, tell, trouble }) {
  const over = new AbortController();
  signal.addEventListener("abort", () => over.abort(), { once: true });
  const told = new StreamedNews(`${session}/stream`, over.signal);
  told.run();
  let failed = 0;
  while (!over.signal.aborted) {
    await seen(over.signal);
    const begun = performance.now();
    try {
      const answer = await ask(`${session}/views`, { query, tag, signal: over.signal });
      if (failed) trouble(null);
      failed = 0;
      tag = answer.tag;
      if (answer.status !== 304) await tell(answer.body);
      // While a message is spoken there is news all the time.
      await rest(Math.max(REST_MS, performance.now() - begun), over.signal);
      await told.next();
    } catch (error) {
      if (over.signal.aborted) return;
      trouble(error);
      if (error instanceof Problem && error.status < 500 && error.status !== 429) return over.abort();
      await rest(AGAIN_MS[Math.min(failed, AGAIN_MS.length - 1)], over.signal);
      failed += 1;
    }
  }
}

/* The stream of a session, read for as long as there is one. */
class StreamedNews {
  constructor(path, signal) {
    this.path = path;
    this.signal = signal;
    this.lines = new EventLines();
    this.spoken = new Set();
    this.isOpen = false;
    this.isNew = false;
    this.wake = () => {};
  }

  /* Returns when there is news, or it is time to look. */
  async next() {
    const every = this.isOpen ? (this.spoken.size ? SPEAKING_MS : TOLD_MS) : ALONE_MS;
    if (!this.isNew) {
      const woken = new AbortController();
      this.wake = () => woken.abort();
      await rest(every, AbortSignal.any([woken.signal, this.signal]));
    }
    this.isNew = false;
  }

  tell() {
    this.isNew = true;
    this.wake();
  }

  async run() {
    let failed = 0;
    while (!this.signal.aborted) {
      await seen(this.signal);
      const unseen = whenHidden(this.signal);
      let isOver = false;
      await oneOfFew(unseen.signal, async () => {
        try {
          isOver = await this.read(unseen.signal);
          failed = 0;
        } catch {
          // Whoever asks for what is shown is told the same, and tells it.
          failed += 1;
        }
      });
      unseen.stop();
      this.isOpen = false;
      if (isOver) return;
      this.tell();
      if (!unseen.signal.aborted) await rest(AGAIN_MS[Math.min(failed, AGAIN_MS.length - 1)], this.signal);
    }
  }

  /* Reads one connection to its end; whether the session is over, and there will be no other. */
  async read(signal) {
    const silence = new AbortController();
    let timer;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENT_MS);
    };
    heard();
    try {
      const cursor = this.lines.lastId;
      const answer = await stream(this.path, { cursor, signal: AbortSignal.any([signal, silence.signal]) });
      if (answer.status === 204) return true;
      this.lines = new EventLines(cursor);
      this.isOpen = true;
      // What happened between what is shown and the beginning of the stream.
      this.tell();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        heard();
        for (const event of this.lines.feed(value)) {
          if (event.event === "end") return true;
          this.take(event);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  take({ event, data }) {
    if (event === "open" || event === "chunk") this.spoken.add(data.message_id);
    else if (event === "entry") this.spoken.delete(data.message_id ?? data.id);
    if (event === "reset" || (event === "entry" && data.kind === "end")) this.spoken.clear();
    this.tell();
  }
}

/* Does this work if few enough do it in all tabs of this browser. Where tabs can't agree on that, nobody does it. */
async function oneOfFew(signal, work) {
  for (let number = 0; navigator.locks && number < STREAMS_MAX; number += 1) {
    const isDone = await navigator.locks.request(`holdfast.stream.${number}`, { ifAvailable: true }, async (lock) => {
      if (!lock || signal.aborted) return false;
      await work();
      return true;
    });
    if (isDone || signal.aborted) return;
  }
}

export function rest(ms, signal) {
  return new Promise((done) => {
    if (signal?.aborted) return done();
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}

/* Aborted when nobody looks at the page any more. */
function whenHidden(signal) {
  const both = new AbortController();
  const hide = () => (document.hidden || signal.aborted) && both.abort();
  document.addEventListener("visibilitychange", hide);
  signal.addEventListener("abort", hide, { once: true });
  const stop = () => document.removeEventListener("visibilitychange", hide);
  return { signal: both.signal, stop };
}

/* Returns when somebody looks at the page. */
function seen(signal) {
  if (!document.hidden) return null;
  return new Promise((done) => {
    document.addEventListener("visibilitychange", done, { once: true, signal });
    signal.addEventListener("abort", done, { once: true });
  });
}
