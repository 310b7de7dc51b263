// Server-sent events from any response, by fetch: EventSource can neither POST nor send a key.

/** Takes text in pieces, calls onEvent({event, data}) for each whole event. */
export class EventReader {
  #onEvent;
  #rest = "";
  #event = "";
  #data = [];

  constructor(onEvent) {
    this.#onEvent = onEvent;
  }

  push(text) {
    this.#rest += text;
    for (;;) {
      const end = this.#rest.search(/[\r\n]/);
      if (end < 0) return;
      // A CR at the end may be the first half of CRLF.
      if (this.#rest[end] === "\r" && end + 1 === this.#rest.length) return;
      const width = this.#rest[end] === "\r" && this.#rest[end + 1] === "\n" ? 2 : 1;
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + width);
      this.#take(line);
    }
  }

  #take(line) {
    if (line === "") {
      if (this.#data.length) this.#onEvent({event: this.#event || "message", data: this.#data.join("\n")});
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
  }
}

/** Reads a response to its end. */
export async function readEvents(response, onEvent) {
  const reader = new EventReader(onEvent);
  const decoder = new TextDecoder();
  const body = response.body.getReader();
  for (;;) {
    const {done, value} = await body.read();
    if (done) return;
    reader.push(decoder.decode(value, {stream: true}));
  }
}
