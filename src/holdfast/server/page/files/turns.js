/* The heading of a turn: how it went, when, and what it took. */

import { h } from "./dom.js";
import { clock, day, lasted, moment, tokens } from "./words.js";

export function turnHead(section) {
  if (section.kind === "inbox") {
    return h("header.turn", h("h2", "Inbox"), h("span.quiet", "waiting for a turn"));
  }
  if (section.kind !== "turn") return null;
  const end = section.end ?? "running";
  const why = section.error ?? section.reason;
  const facts = [];
  if (section.started_at) facts.push(`${day(section.started_at)} ${clock(section.started_at)}`);
  if (section.started_at && section.ended_at) facts.push(lasted(section.started_at, section.ended_at));
  facts.push(tokens(section.usage));
  return h(
    "header.turn",
    h("h2", `Turn ${section.number}`),
    h(`span.end.${end}`, end),
    why ? h("span.why", { title: why, tabindex: "0" }, why) : null,
    h("span.quiet", { title: section.started_at ? moment(section.started_at) : null }, facts.filter(Boolean).join(" · ")),
  );
}
