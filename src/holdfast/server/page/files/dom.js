/* Elements, made without markup: whatever anybody has said becomes a text node, and nothing else. */

// What would steer the order of letters or hide something is shown as a sign, as the command line does.
const STEERING = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e" +
    "\\u2066-\\u2069\\u2028\\u2029\\ufff9-\\ufffb\\ud800-\\udfff]",
  "gu",
);

export function harmless(text) {
  return String(text).replaceAll("\r\n", "\n").replace(STEERING, sign);
}

function sign(found) {
  const number = found.codePointAt(0);
  if (number < 0x20) return String.fromCodePoint(0x2400 + number);
  if (number === 0x7f) return "\u2421";
  const hex = number.toString(16);
  return number < 0x100 ? `\\x${hex}` : `\\u${hex.padStart(4, "0")}`;
}

/* h("p.quiet", {title: "…"}, "text", child): an element. `on…` are listeners, null children are left out. */
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const each of rest) add(element, each);
  return element;
}

function add(element, child) {
  if (child === null || child === undefined || child === false) return;
  if (child instanceof Node) element.append(child);
  else if (Array.isArray(child)) child.forEach((each) => add(element, each));
  else if (typeof child === "object") set(element, child);
  else element.append(document.createTextNode(harmless(child)));
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, harmless(value));
    }
  }
}

/* Puts these children in the place of all that the element has. */
export function fill(element, ...children) {
  element.replaceChildren();
  for (const child of children) add(element, child);
  return element;
}

/* Keeps the elements of a list that are still right: by key, and made anew only where the value is another. */
export function keyed(parent, items, { key, make }) {
  const known = new Map([...parent.children].map((each) => [each.dataset.key, each]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    const value = JSON.stringify(item);
    let element = known.get(name);
    if (!element || element.keyedValue !== value) {
      const fresh = make(item);
      fresh.dataset.key = name;
      fresh.keyedValue = value;
      if (element) {
        const focused = element.contains(document.activeElement) ? document.activeElement : null;
        if (place === element) place = fresh;
        element.replaceWith(fresh);
        if (focused) refocus(focused, fresh);
      }
      element = fresh;
    }
    known.delete(name);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const [name, element] of known) if (name !== undefined) element.remove();
}

/* Who was at an element that was made anew stays there. */
function refocus(focused, fresh) {
  const { row } = focused.dataset;
  const same = row && [...fresh.querySelectorAll("[data-row]")].find((each) => each.dataset.row === row);
  (same || fresh.querySelector("a, summary, button"))?.focus({ preventScroll: true });
}
