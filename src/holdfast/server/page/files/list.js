/* The sessions, newest first, and what a search has found. */

import { HITS_MAX, search, session as getSession, sessions } from "./api.js";
import { fill, h, keyed } from "./dom.js";
import { rest } from "./live.js";
import { ago, many, moment, short } from "./words.js";

const EVERY_MS = 3000;
const STATES = [
  ["", "All", "No sessions yet."],
  ["running", "Running", "No session is running."],
  ["open", "Open", "No session is open."],
  ["ended", "Ended", "No session has ended."],
];

export class SessionList {
  constructor({ trouble }) {
    this.trouble = trouble;
    this.state = "";
    this.items = [];
    this.next = null;
    this.text = "";
    this.current = null;
    this.list = h("ul.sessions");
    this.hits = h("ul.hits", { hidden: true });
    this.status = h("p.count", { role: "status" });
    this.more = h("button.more", { type: "button", hidden: true, onclick: () => this.loadMore() }, "Earlier sessions");
    this.chips = h("div.chips", { role: "group", "aria-label": "State" }, STATES.map((each) => this.chip(...each)));
    this.element = h("nav.list", { "aria-label": "Sessions" }, this.chips, this.status, this.list, this.more, this.hits);
    this.element.addEventListener("keydown", (event) => this.moved(event));
  }

  chip(state, title) {
    return h(
      "button",
      { type: "button", "aria-pressed": String(state === this.state), "data-state": state, onclick: () => this.choose(state) },
      title,
    );
  }

  choose(state) {
    this.state = state;
    for (const each of this.chips.children) each.setAttribute("aria-pressed", String(each.dataset.state === state));
    this.items = [];
    return this.load();
  }

  /* Looks again every few seconds, for as long as somebody looks at the page. */
  async run(signal) {
    while (!signal.aborted) {
      if (!document.hidden) await this.load();
      await rest(EVERY_MS, signal);
    }
  }

  async load() {
    try {
      const { body } = await sessions({ state: this.state, limit: 50 });
      const known = new Set(body.items.map((each) => each.id));
      const older = this.items.slice(50).filter((each) => !known.has(each.id));
      this.items = [...body.items, ...older];
      if (!older.length) this.next = body.next;
      this.show();
      this.trouble(null);
    } catch (error) {
      this.trouble(error);
    }
  }

  async loadMore() {
    try {
      const { body } = await sessions({ state: this.state, limit: 50, after: this.next });
      this.items = [...this.items, ...body.items];
      this.next = body.next;
      this.show();
    } catch (error) {
      this.trouble(error);
    }
  }

  show() {
    keyed(this.list, this.items.map((each) => ({ ...each, since: ago(each.active_at) })), {
      key: (each) => each.id,
      make: (each) => h("li", this.link(each)),
    });
    this.more.hidden = !this.next || Boolean(this.text);
    const [, , none] = STATES.find(([state]) => state === this.state);
    if (!this.text) fill(this.status, this.items.length ? null : none);
    this.mark(this.current);
  }

  link(each) {
    return h(
      "a.session",
      { href: `#/s/${encodeURIComponent(each.id)}`, "data-id": each.id },
      h("span.top", h(`span.dot.${each.state}`, { role: "img", "aria-label": each.state, title: each.state }), h("span.title", { dir: "auto" }, each.title || untitled(each))),
      h(
        "span.bottom",
        h("span.key", each.key ?? short(each.id)),
        h("span.since", { title: moment(each.active_at) }, each.since),
      ),
    );
  }

  mark(id) {
    this.current = id;
    for (const link of this.element.querySelectorAll("a.session, a.hit")) {
      const isHere = link.matches(".hit") ? link.hash === location.hash : link.dataset.id === id;
      if (isHere) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  async find(text, signal) {
    this.text = text.trim();
    const searching = Boolean(this.text);
    this.list.hidden = this.chips.hidden = searching;
    this.hits.hidden = !searching;
    this.more.hidden = searching || !this.next;
    if (!searching) return this.show();
    try {
      const [found, named] = await Promise.all([search(this.text, signal), this.named(signal)]);
      if (signal.aborted) return;
      const hits = found.body.items;
      const all = many(hits.length + named.length, "match", "matches");
      fill(this.status, hits.length < HITS_MAX ? all : `The newest ${all}; there may be more`);
      fill(this.hits, named.map((each) => h("li", this.link(each))), hits.map((hit) => h("li", hitView(hit))));
      this.mark(this.current);
    } catch (error) {
      if (!signal.aborted) fill(this.status, error.message);
    }
  }

  /* Sessions that are called so: by key, or by the beginning of an id. */
  async named(signal) {
    const asked = [sessions({ key: this.text, limit: 5 }, signal).then(({ body }) => body.items)];
    if (/^[0-9a-f]{4,}[0-9a-f-]*$/.test(this.text)) {
      const known = this.items.filter((each) => each.id.startsWith(this.text));
      if (!known.length) asked.push(getSession(this.text, signal).then(({ body }) => [body]));
      asked.push(known);
    }
    const found = (await Promise.allSettled(asked)).flatMap((each) => each.value ?? []);
    return found.map((each) => ({ ...each, since: ago(each.active_at) }));
  }

  /* Up and down, from one to the next. */
  moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.closest(".chips")) return;
    const links = [...this.element.querySelectorAll("ul:not([hidden]) a")];
    const place = links.indexOf(document.activeElement) + step;
    links[Math.max(0, Math.min(place, links.length - 1))]?.focus();
    event.preventDefault();
  }

  focus() {
    const links = this.element.querySelectorAll("ul:not([hidden]) a");
    (this.element.querySelector("ul:not([hidden]) a[aria-current]") ?? links[0])?.focus();
  }
}

/* What was erased had been said; and once a session has ended, nothing will be. */
const untitled = (each) => (each.state === "ended" ? "(no words)" : "(nothing said yet)");

function hitView(hit) {
  return h(
    "a.hit",
    { href: `#/s/${encodeURIComponent(hit.session_id)}/${hit.seq}`, "data-id": hit.session_id },
    h("span.bottom", h(`span.who.${hit.role}`, hit.role), h("span.key", hit.key ?? short(hit.session_id)), h("span.since", { title: moment(hit.at) }, ago(hit.at))),
    h("span.snippet", { dir: "auto" }, marked(hit.snippet, hit.marks)),
  );
}

function marked(text, marks) {
  // Places count characters as Python does: one for each, however many units it has here.
  const letters = [...text];
  const pieces = [];
  let from = 0;
  for (const [start, end] of marks) {
    pieces.push(letters.slice(from, start).join(""), h("mark", letters.slice(start, end).join("")));
    from = end;
  }
  return [...pieces, letters.slice(from).join("")];
}
