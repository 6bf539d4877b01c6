/* Server-sent events, from text that comes in pieces of any size. An event counts when its empty line has come, and
   `lastId` is that of the last one that has: the place to come back to. */

export class EventLines {
  constructor(lastId = "") {
    this.lastId = lastId;
    this.rest = "";
    this.clear();
  }

  clear() {
    this.name = "";
    this.data = [];
    this.id = this.lastId;
  }

  /* The events that this text has made whole. */
  feed(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    return lines.map((line) => this.line(line)).filter(Boolean);
  }

  line(line) {
    if (line === "") return this.whole();
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "event") this.name = value;
    else if (field === "id") this.id = value;
    else if (field === "data") this.data.push(value);
    return null;
  }

  whole() {
    this.lastId = this.id;
    const { name, id } = this;
    const lines = this.data;
    this.clear();
    if (!lines.length) return null;
    const data = JSON.parse(lines.join("\n"));
    return { event: name || "message", id, data };
  }
}
