/* Three views side by side: what the user saw, what the model will be sent, what is stored. */

import { context, entry } from "./api.js";
import { fill, h, keyed } from "./dom.js";
import { aside, cutParts, jsonView, partsView, sentence } from "./parts.js";
import { turnHead } from "./turns.js";
import { clock, many, moment, written } from "./words.js";

export const VIEWS = [
  ["saw", "The user saw", "as far as it was shown", "User saw"],
  ["sent", "The model will be sent", "the next context", "Model is sent"],
  ["stored", "Stored", "the log, which only grows", "Stored"],
];
const LONG = 1400;

export class Columns {
  constructor(session) {
    this.session = session;
    this.expanded = new Set();
    this.raw = new Set();
    this.onlyNoted = false;
    this.shown = "saw";
    this.page = null;
    this.list = h("div.rows", { role: "rowgroup" });
    this.element = h(
      "div.columns",
      { role: "table", "aria-label": "Three views" },
      this.chooser(),
      h(
        "div.heads",
        { role: "row" },
        VIEWS.map(([view, title, about]) =>
          h(`div.head.${view}`, { role: "columnheader" }, h("b", title), h("span.quiet", about)),
        ),
      ),
      this.list,
    );
    this.element.dataset.show = this.shown;
  }

  /* On a narrow screen one column is shown at a time. */
  chooser() {
    return h(
      "div.chooser",
      { role: "group", "aria-label": "Which view" },
      VIEWS.map(([view, title, , brief]) =>
        h(
          "button",
          {
            type: "button",
            "aria-label": title,
            "aria-pressed": String(view === this.shown),
            "data-view": view,
            onclick: () => this.choose(view),
          },
          brief,
        ),
      ),
    );
  }

  choose(view) {
    this.shown = view;
    this.element.dataset.show = view;
    for (const each of this.element.querySelectorAll(".chooser button")) {
      each.setAttribute("aria-pressed", String(each.dataset.view === view));
    }
  }

  only(noted) {
    this.onlyNoted = noted;
    this.element.classList.toggle("noted", noted);
    if (this.page) this.show(this.page);
  }

  show(page) {
    this.page = page;
    const lead = page.lead.length ? [{ begins: 0, kind: "lead", rows: page.lead }] : [];
    const tail = page.tail.length ? [{ begins: "tail", kind: "tail", rows: page.tail }] : [];
    let sections = [...lead, ...page.sections, ...tail];
    if (this.onlyNoted) {
      sections = sections
        .map((section) => ({ ...section, rows: section.rows.filter(isNoted) }))
        .filter((section) => section.rows.length);
    }
    keyed(this.list, sections, {
      key: (section) => section.begins,
      make: (section) => h("section", turnHead(section), section.rows.map((row) => this.row(row))),
    });
    const empty = this.onlyNoted && !sections.length;
    this.element.querySelector(".none")?.remove();
    if (empty) this.element.append(h("p.none", "Nothing of note: the three views differ only where they always do."));
  }

  row(row) {
    const isLong = VIEWS.some(([view]) => lengthOf(row[view]) > LONG);
    const element = h(
      "div.row",
      { role: "row", tabindex: "-1", "data-row": row.id, "data-seq": row.stored?.seq, "data-kind": row.kind },
      VIEWS.map(([view]) => this.cell(row, view)),
    );
    if (isNoted(row)) element.classList.add("noted");
    if (isLong) {
      element.classList.toggle("long", !this.expanded.has(row.id));
      element.append(this.more(row, element));
    }
    if (this.raw.has(row.id)) this.showRaw(row, element);
    return element;
  }

  more(row, element) {
    const words = () => (this.expanded.has(row.id) ? "Show less" : "Show all");
    const button = h("button.more", { type: "button" }, words());
    button.addEventListener("click", () => {
      if (!this.expanded.delete(row.id)) this.expanded.add(row.id);
      element.classList.toggle("long", !this.expanded.has(row.id));
      fill(button, words());
    });
    return button;
  }

  cell(row, view) {
    const cell = row[view];
    // That it was cut is marked where it was.
    const reasons = row.differences.filter((each) => each.view === view && each.code !== "cut_off");
    const title = VIEWS.find(([name]) => name === view)[1];
    return h(
      `div.cell.${view}${cell ? "" : ".absent"}`,
      { role: "cell", "aria-label": title },
      cell ? this.facts(row, view, cell) : null,
      cell ? h("div.parts", view === "saw" ? cutParts(cell) : partsView(cell)) : null,
      cell ? null : stub(row),
      !cell && !reasons.length ? aside(view === "stored" ? "not stored" : "nothing") : null,
      reasons.length ? reasonsView(reasons) : null,
    );
  }

  facts(row, view, cell) {
    if (view === "saw") return h("div.facts", h(`span.who.${row.role}`, row.kind === "spoken" ? "being spoken" : row.role));
    if (view === "sent") return h("div.facts", h(`span.who.${row.role}`, row.role), h("span", placesOf(cell)));
    const facts = [cell.format];
    if (cell.at) facts.push(clock(cell.at));
    if (cell.state !== "complete") facts.push(cell.state === "spoken" ? "in the journal" : cell.state);
    if (cell.late) facts.push("late");
    if (cell.model) facts.push(cell.model);
    const labels = Object.entries(cell.labels).map(([name, value]) => h("span.tag", `${name}: ${JSON.stringify(value)}`));
    return h(
      "div.facts",
      { title: cell.at ? moment(cell.at) : null },
      cell.seq ? h("span.seq", `entry ${cell.seq}`) : null,
      h("span", facts.join(" · ")),
      labels,
      cell.seq ? this.rawButton(row) : null,
    );
  }

  rawButton(row) {
    const button = h(
      "button.raw",
      {
        type: "button",
        title: "The entry and the payload, as JSON",
        "aria-label": `JSON of entry ${row.stored.seq}`,
        "aria-expanded": String(this.raw.has(row.id)),
      },
      "{ }",
    );
    button.addEventListener("click", () => {
      const element = button.closest(".row");
      if (this.raw.delete(row.id)) element.querySelector(".both")?.remove();
      else {
        this.raw.add(row.id);
        this.showRaw(row, element);
      }
      button.setAttribute("aria-expanded", String(this.raw.has(row.id)));
    });
    return button;
  }

  async showRaw(row, element) {
    const sent = h("div", h("h3", "Sent"), aside("…"));
    const stored = h("div", h("h3", `Entry ${row.stored.seq}`), aside("…"));
    element.append(h("div.both", sent, stored));
    const { format } = this.page;
    const [made, kept] = await Promise.allSettled([
      row.sent ? context(this.session, format) : null,
      entry(this.session, row.stored.seq),
    ]);
    fill(sent, h("h3", `Sent, as ${format}`), this.payloads(row, made));
    fill(stored, h("h3", `Entry ${row.stored.seq}`), kept.value ? jsonView(kept.value.body.items[0]) : aside("It can't be read now."));
  }

  payloads(row, made) {
    if (!row.sent) return aside("It is not sent.");
    if (!made.value) return aside("It can't be read now.");
    const { messages, instructions } = made.value.body;
    if (!row.sent.places.length) return jsonView(instructions);
    return row.sent.places.map((place) => jsonView(messages[place] ?? null));
  }
}

export const isNoted = (row) => row.differences.some((each) => !each.routine);

export function noted(page) {
  const rows = [...page.lead, ...page.sections.flatMap((section) => section.rows), ...page.tail];
  return rows.filter(isNoted).length;
}

/* On a narrow screen nothing beside it tells what is missing. */
function stub(row) {
  const [part] = (row.stored ?? row.sent).parts;
  const words = part ? (part.kind === "call" ? written(part.name, part.text) : part.text) : "";
  return h("div.stub", { "aria-hidden": "true" }, h(`span.who.${row.role}`, row.role), " ", words.slice(0, 200));
}

function reasonsView(reasons) {
  return h(
    "ul.reasons",
    reasons.map((each) => h(each.routine ? "li.routine" : "li", { "data-code": each.code }, sentence(each.reason))),
  );
}

function placesOf(cell) {
  if (!cell.places.length) return "beside the list";
  const [first] = cell.places;
  const last = cell.places.at(-1);
  return first === last ? `#${first}` : `${many(cell.places.length, "message")}, #${first}–${last}`;
}

const lengthOf = (cell) => cell?.parts.reduce((sum, part) => sum + part.text.length + 40 * part.text.split("\n").length, 0) ?? 0;
