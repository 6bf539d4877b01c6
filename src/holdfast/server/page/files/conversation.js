/* A session as it went: its turns, what was said, calls with what answered them. */

import { h, keyed } from "./dom.js";
import { aside, cutParts, partView, sentence } from "./parts.js";
import { turnHead } from "./turns.js";
import { moment, written } from "./words.js";

export class Conversation {
  constructor() {
    this.element = h("div.conversation");
    this.opened = new Set();
  }

  show(page) {
    const answers = new Set();
    for (const section of page.sections) {
      for (const row of section.rows) {
        for (const call of row.calls) if (call.outcome) answers.add(call.outcome.message);
      }
    }
    const lead = page.lead.filter((row) => row.kind === "instructions");
    const sections = lead.length ? [{ begins: 0, kind: "lead", rows: lead }, ...page.sections] : page.sections;
    keyed(this.element, sections, {
      key: (section) => section.begins,
      make: (section) => this.section(section, answers),
    });
  }

  section(section, answers) {
    const shown = section.rows.filter((row) => row.kind !== "made" && !(answers.has(row.id) && onlyResults(row)));
    const common = inCommon(shown);
    return h(
      "section",
      { "aria-label": section.number ? `Turn ${section.number}` : null },
      turnHead(section),
      common ? h("ul.marks.common", markView(common)) : null,
      shown.map((row) => this.row(row, common)),
    );
  }

  row(row, common) {
    if (row.kind === "instructions") return this.folded("Instructions", row, row.stored.parts, "instructions");
    if (row.kind === "summary") return this.folded("Summary, for the model", row, row.stored.parts, row.id);
    return h(
      `article.message.${row.role}`,
      { "data-row": row.id, "data-seq": row.stored?.seq, tabindex: "-1" },
      this.gutter(row, row.role),
      h("div.body", this.body(row), this.calls(row), marks(row, common)),
    );
  }

  gutter(row, who) {
    const at = row.stored?.at;
    return h(
      "div.gutter",
      { title: at ? moment(at) : null },
      h("span.who", who),
      row.stored?.seq ? h("span.seq", `${row.stored.seq}`) : null,
    );
  }

  body(row) {
    if (row.stored?.state === "erased") return aside("erased");
    const thinking = row.stored.parts.filter((part) => part.kind === "thinking").map(partView);
    if (row.saw) return [thinking, cutParts(row.saw), row.kind === "spoken" ? h("div.speaking", "speaking …") : null];
    const shown = row.stored.parts.filter((part) => part.kind !== "call");
    return shown.map((part) => partView(part));
  }

  calls(row) {
    const said = row.stored?.parts.filter((part) => part.kind === "call") ?? [];
    return said.map((part, index) => this.call(row, part, row.calls[index], index));
  }

  call(row, part, call, index) {
    const key = `${row.id}:${index}`;
    const outcome = call?.outcome;
    const says = outcome?.parts.map((each) => each.text).join("\n") ?? "";
    const late = outcome?.late ? h("span.tag", "late") : null;
    return h(
      "details.pair",
      {
        open: this.opened.has(key),
        "data-outcome": outcome?.seq,
        ontoggle: (event) => this.toggled(key, event.target.open),
      },
      h(
        "summary",
        h("span.name", written(part.name, part.text)),
        h(`span.state.${call?.state ?? "cut"}`, brief(call)),
        late,
        says ? h("span.first", { dir: "auto" }, says.split("\n", 1)[0]) : null,
      ),
      h("div.inside", { title: call?.says }, call && call.says !== brief(call) ? aside(call.says) : null,
        outcome ? outcome.parts.map(partView) : null),
    );
  }

  folded(title, row, parts, key) {
    return h(
      "article.message.system",
      { "data-row": row.id, "data-seq": row.stored?.seq, tabindex: "-1" },
      this.gutter(row, row.kind === "summary" ? "summary" : "system"),
      h(
        "div.body",
        h(
          "details.folded",
          { open: this.opened.has(key), ontoggle: (event) => this.toggled(key, event.target.open) },
          h("summary", title, h("span.first", (parts[0]?.text ?? "").replace(/\s+/g, " ").slice(0, 300))),
          parts.map(partView),
        ),
        marks(row),
      ),
    );
  }

  toggled(key, open) {
    if (open) this.opened.add(key);
    else this.opened.delete(key);
  }
}

const BRIEF = { open: "running", unknown: "outcome unknown", waiting: "waits for approval" };

function brief(call) {
  if (!call || !call.state) return "never whole";
  return BRIEF[call.state] ?? call.state;
}

const onlyResults = (row) => row.stored?.parts.every((part) => part.kind === "result");

/* What is remarkable about a message: why the model is not sent it, or something else. */
const remarkable = (row) => row.differences.filter((each) => !each.routine && !SHOWN.has(each.code));
// These are seen where they are.
const SHOWN = new Set(["erased", "cut_off"]);

/* What holds for all messages of a turn is said once. */
function inCommon(rows) {
  if (rows.length < 2) return null;
  const told = rows.map((row) => remarkable(row).find((each) => each.view === "sent"));
  return told.every((each) => each && each.reason === told[0].reason) ? told[0] : null;
}

function marks(row, common) {
  const found = remarkable(row).filter((each) => each.reason !== common?.reason);
  return found.length ? h("ul.marks", found.map(markView)) : null;
}

const markView = (each) =>
  h("li", { "data-code": each.code }, h("span.tag", WHOSE[each.view]), " ", sentence(each.reason));

const WHOSE = { saw: "user", sent: "model" };
