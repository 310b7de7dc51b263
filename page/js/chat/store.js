// Conversations, kept in the browser.
//
// A conversation is {id, title, changed, models, system, sampling, tools, turns}. A turn is
// {role: "user" | "tool", content, …} or {role: "assistant", answers: [answer, …]}, one answer for
// each model that is asked side by side (see answer.js).
import {memory} from "../dom.js";
import {isPicture} from "./pictures.js";

const MOST = 200;

export class ChatStore {
  conversations = [];
  isFull = false;

  constructor() {
    const ids = memory.get("chats", []);
    for (const id of Array.isArray(ids) ? ids : []) {
      const one = memory.get("chat." + id);
      if (isConversation(one)) this.conversations.push(one);
    }
    // What no list names is shown nowhere, and would take its place for ever.
    const known = new Set(this.conversations.map((one) => "chat." + one.id));
    for (const name of memory.names("chat.")) if (!known.has(name)) memory.remove(name);
  }

  /** A new one is like the one before, but for what was said. */
  begin(models) {
    const before = this.conversations[0];
    const one = {
      id: crypto.randomUUID?.() ?? String(Date.now()) + Math.random().toString(36).slice(2),
      title: "",
      changed: Date.now(),
      models: before?.models.slice(0, 1) ?? models.slice(0, 1),
      system: before?.system ?? "",
      sampling: {...(before?.sampling ?? {})},
      tools: before?.tools ?? "",
      turns: [],
    };
    this.conversations.unshift(one);
    return one;
  }

  save(one) {
    if (one.turns.length === 0) return; // an empty one is not worth keeping
    if (!this.conversations.includes(one)) return; // it was deleted while it was answered
    one.changed = Date.now();
    const first = one.turns.find((turn) => turn.role === "user");
    if (!one.title && first) one.title = first.content.trim().replace(/\s+/g, " ").slice(0, 60);
    const at = this.conversations.indexOf(one);
    if (at > 0) {
      this.conversations.splice(at, 1);
      this.conversations.unshift(one);
    }
    for (const old of this.conversations.splice(MOST)) memory.remove("chat." + old.id);
    this.isFull = !memory.set("chat." + one.id, one) || !this.#saveIds();
  }

  remove(one) {
    this.conversations = this.conversations.filter((other) => other !== one);
    memory.remove("chat." + one.id);
    this.#saveIds();
    this.isFull = false;
  }

  #saveIds() {
    return memory.set("chats", this.conversations.filter((one) => one.turns.length).map((one) => one.id));
  }
}

/** What another version, or somebody, has left there need not be one. */
function isConversation(one) {
  return one !== null && typeof one === "object" && typeof one.id === "string" && typeof one.title === "string" &&
    Array.isArray(one.models) && Array.isArray(one.turns) && typeof one.sampling === "object" && one.sampling !== null &&
    one.turns.every((turn) => turn.role === "assistant"
      ? Array.isArray(turn.answers) && turn.answers.every((answer) => typeof answer.content === "string" && Array.isArray(answer.toolCalls))
      : typeof turn.content === "string" && (turn.pictures === undefined || (Array.isArray(turn.pictures) && turn.pictures.every(isPicture))));
}
