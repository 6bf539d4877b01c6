/* One session: its heading, the conversation or the three views, and its news. */

import { session as getSession, views } from "./api.js";
import { Columns, noted } from "./columns.js";
import { Conversation } from "./conversation.js";
import { fill, h } from "./dom.js";
import { follow } from "./live.js";
import { count, many, moment, short, tokens } from "./words.js";

const FORMATS = ["openai.chat", "openai.responses", "anthropic", "holdfast"];
const LIMIT = 100;
const LIMIT_MAX = 1000;
/* So many messages are kept of a session that is followed at its end: earlier ones are asked for again. */
const KEPT_MAX = 400;

export class SessionView {
  constructor(id, { at, mode, trouble, changed }) {
    this.id = id;
    this.at = at;
    this.mode = mode;
    this.trouble = trouble;
    this.changed = changed;
    this.format = "";
    this.page = null;
    this.stopping = new AbortController();
    this.conversation = new Conversation();
    this.columns = new Columns(id);
    this.head = h("header.session-head");
    this.tools = h("div.tools");
    this.body = h("div.session-body");
    this.earlier = h("button.more", { type: "button", hidden: true, onclick: () => this.once(this.earlier, () => this.loadEarlier()) }, "Earlier turns");
    this.later = h("button.more", { type: "button", hidden: true, onclick: () => this.once(this.later, () => this.loadLater()) }, "Later turns");
    this.element = h("div.session-view", this.head, this.tools, this.earlier, this.body, this.later);
  }

  async open() {
    const { signal } = this.stopping;
    const [info, first] = await Promise.all([getSession(this.id, signal), this.ask(this.at ? { before: this.at + 1 } : {})]);
    this.showInfo(info.body);
    this.page = first.body;
    this.showTools();
    this.show();
    if (this.page.later === null) this.watch(first.tag);
    else await this.loadLater();
    if (this.at) this.goTo(this.at);
    else this.toEnd();
  }

  close() {
    this.stopping.abort();
  }

  ask(query, more = {}) {
    const { signal } = this.stopping;
    return views(this.id, { format: this.format, limit: LIMIT, ...query }, { signal, ...more });
  }

  watch(tag) {
    const { signal } = this.stopping;
    follow(`v1/sessions/${encodeURIComponent(this.id)}`, {
      query: { format: this.format, limit: LIMIT },
      tag,
      signal,
      tell: (page) => this.news(page),
      trouble: this.trouble,
    });
  }

  /* The last sections are here; those before them may have changed too, if entries came. */
  async news(page) {
    const isAtEnd = this.isAtEnd();
    const first = page.sections[0]?.begins ?? 0;
    let older = this.page.sections.filter((each) => each.begins < first);
    let { lead, earlier } = older.length ? this.page : page;
    if (older.length && page.head !== this.page.head) {
      const again = await this.between(older[0].begins, first);
      ({ lead, earlier } = again);
      older = again.sections;
    }
    if (page.head !== this.page.head) getSession(this.id, this.stopping.signal).then(({ body }) => this.showInfo(body), () => {});
    let sections = [...older, ...page.sections];
    if (isAtEnd) sections = lastOf(sections, KEPT_MAX);
    if (sections.length < older.length + page.sections.length) earlier = sections[0].begins;
    this.page = { ...page, lead, earlier, sections };
    this.show();
    if (isAtEnd) this.toEnd();
  }

  async between(first, last) {
    const sections = [];
    let after = first - 1;
    let answer;
    do {
      answer = (await this.ask({ after, limit: LIMIT_MAX })).body;
      sections.push(...answer.sections.filter((each) => each.begins < last));
      after = answer.later;
    } while (after !== null && after < last - 1 && sections.length);
    return { sections, lead: this.page.lead, earlier: this.page.earlier };
  }

  /* Not twice at the same time. */
  async once(button, work) {
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") this.trouble(error);
    } finally {
      button.disabled = false;
    }
  }

  async loadEarlier() {
    const { body } = await this.ask({ before: this.page.earlier });
    const height = this.scroller.scrollHeight;
    this.page = { ...this.page, lead: body.lead, earlier: body.earlier, sections: [...body.sections, ...this.page.sections] };
    this.show();
    this.scroller.scrollTop += this.scroller.scrollHeight - height;
  }

  async loadLater() {
    const { body, tag } = await this.ask({ after: this.page.later });
    this.page = { ...this.page, head: body.head, sent: body.sent, tail: body.tail, later: body.later, sections: [...this.page.sections, ...body.sections] };
    this.show();
    if (this.page.later === null) this.watch(tag);
  }

  show() {
    const view = this.mode === "views" ? this.columns : this.conversation;
    if (this.body.firstElementChild !== view.element) fill(this.body, view.element);
    view.show(this.page);
    this.earlier.hidden = this.page.earlier === null;
    this.later.hidden = this.page.later === null;
    if (this.noteCount) fill(this.noteCount, `Of note (${count(noted(this.page))})`);
    this.element.classList.toggle("empty", !this.page.sections.length && !this.page.lead.length);
  }

  showInfo(info) {
    this.info = info;
    const facts = [
      info.key ? h("span.key", { title: "key" }, info.key) : null,
      info.epoch > 1 ? `epoch ${info.epoch}` : null,
      many(info.turns, "turn"),
      many(info.messages, "message"),
      tokens(info.usage),
      h("span", { title: moment(info.opened_at) }, `opened ${moment(info.opened_at)}`),
    ];
    fill(
      this.head,
      h("a.back", { href: "#/", "aria-label": "All sessions" }, "‹ Sessions"),
      h("h1", { tabindex: "-1", dir: "auto" }, info.title || info.key || `Session ${short(info.id)}`),
      h(
        "p.meta",
        h(`span.badge.${info.state}`, info.state),
        facts.filter(Boolean).map((each) => h("span", each)),
        this.idButton(info.id),
      ),
    );
    document.title = `${info.title || info.key || short(info.id)} · Holdfast`;
  }

  idButton(id) {
    const button = h("button.id", { type: "button", title: `Copy ${id}` }, short(id));
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(id);
        fill(button, "copied");
      } catch {
        fill(button, id);
      }
      setTimeout(() => fill(button, short(id)), 1500);
    });
    return button;
  }

  showTools() {
    const tab = (mode, title) =>
      h(
        "button",
        { type: "button", role: "tab", id: `tab-${mode}`, "aria-selected": String(mode === this.mode), tabindex: mode === this.mode ? "0" : "-1", onclick: () => this.choose(mode) },
        title,
      );
    const tabs = h("div.tabs", { role: "tablist", "aria-label": "How to show it" }, tab("talk", "Conversation"), tab("views", "Three views"));
    tabs.addEventListener("keydown", (event) => {
      if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
        this.choose(this.mode === "talk" ? "views" : "talk");
        this.tools.querySelector("[aria-selected=true]").focus();
        event.preventDefault();
      }
    });
    fill(this.tools, tabs, this.mode === "views" ? this.viewTools() : null);
  }

  viewTools() {
    const names = [...new Set([this.page.format, ...FORMATS])];
    const select = h(
      "select",
      { "aria-label": "Format of the context", onchange: (event) => this.chooseFormat(event.target.value) },
      names.map((name) => h("option", { value: name, selected: name === this.page.format }, name)),
    );
    const box = h("input", { type: "checkbox", id: "noted", onchange: (event) => this.columns.only(event.target.checked) });
    box.checked = this.columns.onlyNoted;
    this.noteCount = h("label", { for: "noted" }, `Of note (${count(noted(this.page))})`);
    return [h("label.format", "sent as ", select), h("span.only", box, this.noteCount)];
  }

  choose(mode) {
    if (mode === this.mode) return;
    const place = this.topRow();
    this.mode = mode;
    this.changed(mode);
    this.showTools();
    this.show();
    place?.();
  }

  async chooseFormat(format) {
    this.format = format;
    this.stopping.abort();
    this.stopping = new AbortController();
    const { body, tag } = await this.ask({});
    this.page = body;
    this.show();
    this.watch(tag);
  }

  /* On a wide screen this pane scrolls by itself, on a narrow one all of them together. */
  get scroller() {
    const main = this.element.closest(".main");
    if (!main) return document.documentElement;
    return getComputedStyle(main).overflowY === "visible" ? main.parentElement : main;
  }

  isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /* What stands at the top now, and how to get back to it when it is shown in another way. */
  topRow() {
    if (this.isAtEnd()) return () => this.toEnd();
    const edge = this.scroller.getBoundingClientRect().top + 90;
    for (const row of this.body.querySelectorAll("[data-row]")) {
      if (row.getBoundingClientRect().bottom > edge) {
        const { row: id } = row.dataset;
        return () => this.find(id)?.scrollIntoView({ block: "start" });
      }
    }
    return null;
  }

  find(id) {
    return [...this.body.querySelectorAll("[data-row]")].find((each) => each.dataset.row === id);
  }

  goTo(seq) {
    // What answered a call stands with the call.
    const row =
      this.body.querySelector(`[data-seq="${Number(seq)}"]`) ?? this.body.querySelector(`[data-outcome="${Number(seq)}"]`);
    if (!row) return;
    row.classList.add("found");
    if (row.matches("details")) row.open = true;
    row.scrollIntoView({ block: "center" });
    (row.querySelector(":scope > summary") ?? row).focus({ preventScroll: true });
  }

  /* To the next row of note, or the one before. */
  step(direction) {
    if (this.mode !== "views") this.choose("views");
    const rows = [...this.body.querySelectorAll(".row.noted")];
    if (!rows.length) return;
    const place = rows.indexOf(document.activeElement?.closest(".row.noted"));
    const next = place < 0 ? (direction > 0 ? 0 : rows.length - 1) : place + direction;
    const row = rows[Math.max(0, Math.min(next, rows.length - 1))];
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }
}

/* The last sections, as many as hold so many messages, and one at least. */
function lastOf(sections, most) {
  let place = sections.length;
  let total = 0;
  while (place > 0 && (total < most || place === sections.length)) {
    place -= 1;
    total += sections[place].rows.length;
  }
  return sections.slice(place);
}
