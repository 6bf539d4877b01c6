/* A part of a message: words, a call, what a tool answered, reasoning. */

import { h } from "./dom.js";
import { count, many, written } from "./words.js";

export function partView(part) {
  const shown = KINDS[part.kind]?.(part) ?? aside(`[${part.text}]`);
  if (!part.left_out) return shown;
  return [shown, aside(`… ${many(part.left_out, "character")} more; the entry has them.`)];
}

const KINDS = {
  text: (part) => h("div.said", { dir: "auto" }, part.text),
  refusal: (part) => h("div.said", { dir: "auto" }, h("span.tag", "refused"), " ", part.text),
  call: (part) => h("div.call", { title: part.call_id }, written(part.name, part.text)),
  result: (part) =>
    h(part.error ? "div.result.error" : "div.result", { title: part.call_id, dir: "auto" }, part.text || "(empty)"),
  thinking: (part) =>
    h(
      "details.thinking",
      h("summary", `reasoning, ${count(part.text.length + (part.left_out ?? 0))} characters`),
      h("div.said", { dir: "auto" }, part.text),
    ),
  image: (part) => aside(`[image: ${part.text}]`),
};

export const aside = (...words) => h("div.aside", ...words);

export const partsView = (cell) => cell.parts.map(partView);

/* Where a stream was cut: the user saw nothing after it. */
export const cutMark = () =>
  h("div.cut", h("span.caret", { "aria-hidden": "true" }, "▌"), "cut off here; the user saw no more");

/* The parts of a cell, the last words marked where they were cut. */
export function cutParts(cell) {
  return cell.cut ? [partsView(cell), cutMark()] : partsView(cell);
}

/* A sentence of the server's; what stands in backticks is a name. */
export function sentence(text) {
  return text.split("`").map((piece, index) => (index % 2 ? h("code", piece) : piece));
}

export function jsonView(value) {
  return h("pre.json", { tabindex: "0" }, JSON.stringify(value, null, 2));
}
