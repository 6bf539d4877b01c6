/* The page put together: who may look, where they are, and what keys do. */

import { forgetToken, hasToken, keepToken, Problem, sessions, takeToken } from "./api.js";
import { fill, h } from "./dom.js";
import { SessionList } from "./list.js";
import { SessionView } from "./session.js";

const THEMES = ["", "light", "dark"];
const KEYS = [
  ["/", "search"],
  ["l", "the list of sessions; ↑ ↓ to move through it"],
  ["c", "the conversation"],
  ["v", "the three views"],
  ["n p", "next and previous notable difference"],
  ["t", "light, dark, or the system's theme"],
  ["?", "these keys"],
];

class Page {
  constructor() {
    this.mode = localStorage.getItem("holdfast.mode") ?? "talk";
    this.view = null;
    this.searching = null;
    this.theme(localStorage.getItem("holdfast.theme") ?? "");
    this.main = h("main.main", { id: "main", tabindex: "-1" });
    this.banner = h("p.banner", { role: "status", hidden: true });
    this.list = new SessionList({ trouble: (error) => this.trouble(error) });
    this.field = h("input", {
      type: "search",
      placeholder: "Search what was said",
      "aria-label": "Search",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.search(),
    });
    this.help = h(
      "dialog.help",
      { "aria-label": "Keys" },
      h("h2", "Keys"),
      h("dl", KEYS.map(([key, what]) => [h("dt", key.split(" ").map((each) => h("kbd", each))), h("dd", what)])),
      h("form", { method: "dialog" }, h("button", "Close")),
    );
  }

  start() {
    takeToken();
    document.addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("hashchange", () => this.moved());
    if (hasToken()) this.enter();
    else this.askToken("");
  }

  /* To another place; or another token was put into the address. */
  moved() {
    if (takeToken()) {
      this.leave();
      this.enter();
    } else if (hasToken()) this.goes();
  }

  askToken(words) {
    this.leave();
    const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, placeholder: "hf_…" });
    const form = h(
      "form.token",
      h("h1", "Holdfast"),
      h("label", { for: "token" }, "Token"),
      field,
      h("button", "Open"),
      h("p.quiet", { role: "status" }, words || "Paste a token, or open the address that the server printed when it started. The token is kept in this tab only."),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      keepToken(field.value);
      try {
        await sessions({ limit: 1 });
        this.enter();
      } catch (error) {
        this.trouble(error);
      }
    });
    fill(document.body, form);
    field.focus();
  }

  enter() {
    const search = h("form.search", { role: "search" }, this.field);
    search.addEventListener("submit", (event) => (event.preventDefault(), this.list.focus()));
    fill(
      document.body,
      h(
        "header.bar",
        h("a.brand", { href: "#/" }, h("img", { src: "page/icon.svg", alt: "", width: "22", height: "22" }), h("span", "Holdfast")),
        search,
        h("button.plain", { type: "button", title: "Light or dark (t)", "aria-label": "Light or dark", onclick: () => this.nextTheme() }, "◐"),
        h("button.plain.keys", { type: "button", title: "Keys (?)", "aria-label": "Keys", onclick: () => this.help.showModal() }, "?"),
      ),
      this.banner,
      h("div.panes", this.list.element, this.main),
      this.help,
    );
    this.running = new AbortController();
    this.list.run(this.running.signal);
    this.goes();
  }

  leave() {
    this.running?.abort();
    this.view?.close();
    this.view = null;
  }

  /* To where the address says. */
  async goes() {
    const [, coded, seq] = /^#\/s\/([^/]+)(?:\/(\d+))?$/.exec(location.hash) ?? [];
    const id = coded ? decoded(coded) : null;
    this.view?.close();
    this.view = null;
    document.body.classList.toggle("at-session", Boolean(id));
    this.list.mark(id);
    if (!id) {
      document.title = "Holdfast";
      fill(this.main, h("p.hint", "Choose a session, or search what was said."));
      return;
    }
    const view = new SessionView(id, {
      at: seq ? Number(seq) : null,
      mode: this.mode,
      trouble: (error) => this.trouble(error),
      changed: (mode) => this.remember(mode),
    });
    this.view = view;
    fill(this.main, view.element);
    try {
      await view.open();
      this.trouble(null);
    } catch (error) {
      if (this.view !== view || error.name === "AbortError") return;
      fill(this.main, h("p.hint", { role: "alert" }, error.message));
      this.trouble(error);
    }
  }

  remember(mode) {
    this.mode = mode;
    localStorage.setItem("holdfast.mode", mode);
  }

  trouble(error) {
    if (error instanceof Problem && error.status === 401) {
      forgetToken();
      this.askToken("The server does not know this token, or no longer does.");
      return;
    }
    const isGone = error && !(error instanceof Problem && error.status < 500);
    this.banner.hidden = !isGone;
    if (isGone) fill(this.banner, "The server does not answer. Trying again …");
  }

  search() {
    this.searching?.abort();
    const asked = (this.searching = new AbortController());
    setTimeout(() => {
      if (!asked.signal.aborted) this.list.find(this.field.value, asked.signal);
    }, 200);
  }

  theme(name) {
    this.themeName = name;
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  }

  nextTheme() {
    this.theme(THEMES[(THEMES.indexOf(this.themeName) + 1) % THEMES.length]);
    localStorage.setItem("holdfast.theme", this.themeName);
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.running || this.help.open) return;
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && event.target === this.field) {
      this.field.value = "";
      this.search();
      this.field.blur();
      return;
    }
    if (event.key === "ArrowDown" && event.target === this.field) {
      this.list.focus();
      event.preventDefault();
    }
    if (isTyping) return;
    const does = {
      "/": () => this.field.focus(),
      l: () => this.list.focus(),
      c: () => this.view?.choose("talk"),
      v: () => this.view?.choose("views"),
      n: () => this.view?.step(1),
      p: () => this.view?.step(-1),
      t: () => this.nextTheme(),
      "?": () => this.help.showModal(),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }
}

/* What was typed by hand may be no code of anything. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

new Page().start();
