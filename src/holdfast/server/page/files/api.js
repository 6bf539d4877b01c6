/* What the page asks the server for. The token comes in the part of an address that no browser sends
   anywhere, is kept for this tab alone, and goes out in a header. */

const KEPT = "holdfast.token";

export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || "The server did not say what is wrong.");
    this.status = status;
    this.code = told.code || "unknown";
  }
}

/* Takes a token out of the address, so that it is not seen there, and in no history; whether there was one. */
export function takeToken() {
  const given = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (!given) return false;
  keepToken(decodeURIComponent(given[1]));
  history.replaceState(null, "", location.pathname + (given[2] ? `#${given[2]}` : ""));
  return true;
}

export function keepToken(token) {
  sessionStorage.setItem(KEPT, token.trim());
}

export function forgetToken() {
  sessionStorage.removeItem(KEPT);
}

export const hasToken = () => Boolean(sessionStorage.getItem(KEPT));

async function send(path, { query = {}, headers = {}, signal }) {
  const address = new URL(path, document.baseURI);
  address.hash = "";
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") address.searchParams.set(name, value);
  }
  const all = { ...headers, Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` };
  const answer = await fetch(address, { headers: all, signal, credentials: "omit", redirect: "error" });
  if (answer.ok || answer.status === 304) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/* An answer: {status, tag, body}. With `tag`, 304 if there is nothing new. */
export async function ask(path, { query, tag, signal } = {}) {
  const answer = await send(path, { query, headers: tag ? { "If-None-Match": tag } : {}, signal });
  if (answer.status === 304) return { status: 304, tag };
  const body = await answer.json();
  return { status: answer.status, tag: answer.headers.get("ETag"), body };
}

/* An answer that goes on: events, from after the one with this id, or from now on. 204 if there will be none. */
export function stream(path, { cursor, signal }) {
  const from = cursor ? { headers: { "Last-Event-ID": cursor } } : { query: { after: "now" } };
  return send(path, { ...from, signal });
}

const of = (session) => `v1/sessions/${encodeURIComponent(session)}`;

export const sessions = (query, signal) => ask("v1/sessions", { query, signal });
export const session = (id, signal) => ask(of(id), { signal });
export const views = (id, query, more) => ask(`${of(id)}/views`, { query, ...more });
export const entry = (id, seq) => ask(`${of(id)}/entries`, { query: { after: seq - 1, limit: 1 } });
export const context = (id, format) => ask(`${of(id)}/context`, { query: { format } });
export const HITS_MAX = 50;
export const search = (text, signal) => ask("v1/search", { query: { text, limit: HITS_MAX }, signal });
