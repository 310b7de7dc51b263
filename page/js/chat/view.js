// The chat: conversations, the one that is open, and what is being answered.
import {getJson} from "../api.js";
import {el, icon, iconButton, memory} from "../dom.js";
import {t} from "../i18n.js";
import {emptyAnswer, messagesFor, requestFor, streamAnswer} from "./answer.js";
import {AnswerView, resultsForm, toolTurn, userTurn} from "./message.js";
import {PictureTray} from "./pictures.js";
import {settingsPanel} from "./settings.js";
import {ChatStore} from "./store.js";

const isNarrow = () => matchMedia("(max-width: 820px)").matches;
const isMiddling = () => matchMedia("(max-width: 1100px)").matches;

export class ChatView {
  element = el("div", {class: "chat"});
  #store = new ChatStore();
  #open;
  #models = [];
  #problem = "";
  #streams = new Map(); // conversation -> {controller, ended: a promise}
  #seeing = new Set(); // models that take pictures
  #tray = new PictureTray();
  #views = new Map(); // answer -> AnswerView, of the open conversation
  #showsList = !isNarrow() && memory.get("chat-list", true);
  #showsSettings = !isMiddling() && memory.get("chat-settings", false);
  #parts = {};

  constructor() {
    this.#open = this.#store.conversations[0] ?? this.#store.begin([]);
    this.#loadModels();
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.element.isConnected) this.#stop();
    });
  }

  go() {
    if (!isNarrow()) this.#parts.input?.focus({preventScroll: true});
  }

  reconnect() {
    this.#loadModels();
  }

  async #loadModels() {
    try {
      const list = await getJson("v1/models");
      this.#models = list.data.map((model) => String(model.id));
      this.#seeing = new Set(list.data.filter((model) => model.capabilities?.includes("multimodal")).map((model) => String(model.id)));
      this.#problem = "";
    } catch (error) {
      this.#problem = error.message;
    }
    const known = this.#open.models.filter((model) => this.#models.includes(model));
    if (this.#models.length && known.length < this.#open.models.length)
      this.#open.models = known.length ? known : [this.#models[0]];
    if (!this.#open.models.length) this.#open.models = this.#models.slice(0, 1);
    this.#drawHead();
    this.#showTray();
    if (!this.#open.turns.length) this.#drawTurns();
  }

  /** Pictures can be added where all models that are asked see. */
  #showTray() {
    const {models} = this.#open;
    this.#tray.button.hidden = !models.length || !models.every((model) => this.#seeing.has(model));
    if (this.#tray.button.hidden) this.#tray.clear();
  }

  draw() {
    this.#parts = {
      list: el("aside", {class: "chat-list", "aria-label": t("conversations")}),
      head: el("div", {class: "talk-head"}),
      column: el("div", {class: "column"}),
      composer: el("div", {class: "composer"}),
      talk: el("section", {class: "talk", "aria-label": t("chat")}),
      jump: el("button", {type: "button", class: "plain jump", hidden: true, text: t("jumpDown"), onclick: () => this.#toEnd()}),
    };
    this.#parts.body = el("div", {class: "talk-body", onscroll: () => this.#onScroll()}, this.#parts.column);
    this.#parts.talk.append(this.#parts.head, this.#parts.body, this.#parts.jump, this.#parts.composer);
    this.#drawList();
    this.#drawHead();
    this.#drawTurns();
    this.#drawComposer();
    this.#drawSettings();
  }

  #layout() {
    const parts = [];
    if (this.#showsList) parts.push(this.#parts.list);
    parts.push(this.#parts.talk);
    if (this.#showsSettings) parts.push(this.#parts.settings);
    this.element.replaceChildren(...parts);
    this.element.classList.toggle("comparing", this.#open.models.length > 1);
  }

  // --- the list of conversations ---

  #drawList() {
    this.#parts.list.replaceChildren(
      el("div", {class: "head"},
        el("button", {type: "button", class: "plain", onclick: () => this.#begin()}, icon("plus"), t("newChat")),
        iconButton("close", t("close"), () => this.#toggleList())),
      el("ul", {}, this.#store.conversations.filter((one) => one.turns.length || one === this.#open).map((one) =>
        el("li", {"aria-current": one === this.#open},
          el("button", {type: "button", class: "title", title: one.title, text: one.title || t("untitled"), onclick: () => this.#choose(one)}),
          one.turns.length > 0 && iconButton("trash", t("deleteChat"), () => this.#askToDelete(one))))));
  }

  #toggleList() {
    this.#showsList = !this.#showsList;
    if (!isNarrow()) memory.set("chat-list", this.#showsList);
    this.#layout();
    this.#drawHead();
  }

  #begin() {
    const empty = this.#store.conversations.find((one) => !one.turns.length);
    this.#choose(empty ?? this.#store.begin(this.#models));
    this.#parts.input.focus();
  }

  #choose(one) {
    this.#open = one;
    if (isNarrow()) this.#showsList = false;
    this.draw();
    this.#loadModels();
  }

  #askToDelete(one) {
    const dialog = el("dialog", {"aria-label": t("deleteChat"), onclose: () => dialog.remove()},
      el("form", {method: "dialog", onsubmit: () => this.#delete(one)},
        el("p", {text: t("deleteSure", one.title)}),
        el("div", {class: "buttons"},
          el("button", {type: "button", class: "quiet", text: t("cancel"), onclick: () => dialog.close()}),
          el("button", {type: "submit", class: "primary", text: t("delete")}))));
    document.body.append(dialog);
    dialog.showModal();
  }

  #delete(one) {
    this.#streams.get(one)?.controller.abort();
    this.#store.remove(one);
    if (one === this.#open) this.#open = this.#store.conversations[0] ?? this.#store.begin(this.#models);
    this.draw();
  }

  // --- which models answer ---

  #drawHead() {
    if (!this.#parts.head) return;
    const isComparing = this.#open.models.length > 1;
    const choice = (lane) => el("select", {
      "aria-label": lane === 0 ? t("model") : t("secondModel"), value: this.#open.models[lane] ?? "",
      onchange: (event) => {
        this.#open.models[lane] = event.target.value;
        this.#store.save(this.#open);
        this.#showTray();
        if (!this.#open.turns.length) this.#drawTurns();
      },
    }, this.#models.length ? this.#models.map((model) => el("option", {value: model, text: model})) : el("option", {value: "", text: t("noModels")}));
    this.#parts.head.replaceChildren(
      !this.#showsList ? iconButton("menu", t("conversations"), () => this.#toggleList()) : "",
      el("div", {class: "models"}, this.#open.models.length ? this.#open.models.map((_, lane) => choice(lane)) : choice(0)),
      this.#models.length > 1 || isComparing ? iconButton("columns", isComparing ? t("compareOff") : t("compare"), () => this.#toggleCompare(), {"aria-pressed": String(isComparing)}) : "",
      iconButton("sliders", t("settings"), () => this.#toggleSettings(), {"aria-pressed": String(this.#showsSettings)}));
  }

  #toggleCompare() {
    const {models} = this.#open;
    if (models.length > 1) models.splice(1);
    else models.push(this.#models.find((model) => model !== models[0]) ?? models[0]);
    this.#store.save(this.#open);
    this.#layout();
    this.#drawHead();
    this.#showTray();
    this.#drawTurns();
  }

  #toggleSettings() {
    this.#showsSettings = !this.#showsSettings;
    if (!isMiddling()) memory.set("chat-settings", this.#showsSettings);
    this.#drawSettings();
    this.#drawHead();
  }

  #drawSettings() {
    this.#parts.settings = settingsPanel(this.#open, () => this.#store.save(this.#open), () => this.#toggleSettings());
    this.#layout();
  }

  // --- what was said ---

  #drawTurns() {
    const {turns, models} = this.#open;
    this.#views.clear();
    if (!turns.length) {
      this.#parts.column.replaceChildren(el("div", {class: "welcome"},
        el("h2", {text: t("welcome", models.join(" · ") || t("noModels"))}),
        el("p", {class: "hint", text: t("welcomeHint")}),
        this.#problem && el("p", {class: "problem", text: t("noServer", this.#problem)})));
      return;
    }
    this.#parts.column.replaceChildren(...turns.map((turn, index) => this.#turn(turn, index)));
    if (this.#store.isFull) this.#parts.column.append(el("p", {class: "notice problem", text: t("storageFull")}));
    this.#toEnd();
  }

  #turn(turn, index) {
    if (turn.role === "user") return userTurn(turn, (text) => this.#editAt(index, text));
    if (turn.role === "tool") return toolTurn(turn);
    const isLast = index === this.#open.turns.length - 1;
    const isRunning = isLast && this.#streams.has(this.#open);
    const lanes = turn.answers.map((answer, lane) => {
      const view = new AnswerView(answer, {
        names: turn.answers.length > 1 || this.#open.models.length > 1,
        actions: () => (this.#isLastTurn(turn) && !this.#streams.has(this.#open) ? iconButton("again", t("again"), () => this.#again(lane)) : ""),
      });
      if (isRunning && answer.seconds === null) view.running = true;
      this.#views.set(answer, view);
      const box = el("div", {}, view.element);
      if (isLast && !isRunning && answer.toolCalls.length && turn.answers.length === 1)
        box.append(resultsForm(answer.toolCalls, (results) => this.#sendResults(results, lane)));
      return box;
    });
    return el("div", {class: "turn of-assistant"}, el("div", {class: "answers"}, lanes));
  }

  #isLastTurn(turn) {
    return this.#open.turns.at(-1) === turn;
  }

  #onScroll() {
    const {body, jump} = this.#parts;
    jump.hidden = body.scrollHeight - body.scrollTop - body.clientHeight < 160;
  }

  #isAtEnd() {
    const {body} = this.#parts;
    return body.scrollHeight - body.scrollTop - body.clientHeight < 80;
  }

  #toEnd() {
    const {body} = this.#parts;
    requestAnimationFrame(() => { body.scrollTop = body.scrollHeight; });
  }

  // --- asking ---

  #drawComposer() {
    const before = this.#parts.input?.value ?? "";
    const input = el("textarea", {rows: 1, placeholder: t("messageHint"), "aria-label": t("message"), value: before, oninput: () => grow(), onkeydown: (event) => {
      // An input method's Enter chooses a word and sends nothing.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      send();
    }});
    const grow = () => {
      input.style.height = "auto";
      input.style.height = `${input.scrollHeight}px`;
    };
    const send = () => {
      const text = input.value;
      if (!text.trim() || this.#streams.has(this.#open) || !this.#open.models.length) return;
      input.value = "";
      grow();
      const {pictures} = this.#tray;
      this.#tray.clear();
      this.#say(text, pictures);
    };
    this.#parts.input = input;
    this.#parts.button = el("button", {class: "primary"});
    this.#parts.button.addEventListener("click", (event) => {
      event.preventDefault();
      this.#streams.has(this.#open) ? this.#stop() : send();
    });
    const takePictures = (event, transfer) => {
      if (!this.#tray.button.hidden && this.#tray.takeFrom(transfer)) event.preventDefault();
    };
    this.#parts.composer.replaceChildren(this.#tray.element, el("form", {class: "column", onpaste: (event) => takePictures(event, event.clipboardData), ondragover: (event) => event.preventDefault(), ondrop: (event) => takePictures(event, event.dataTransfer), onsubmit: (event) => {
      event.preventDefault();
      send();
    }}, this.#tray.button, input, this.#parts.button));
    requestAnimationFrame(grow); // the hint may take two lines
    this.#drawButton();
  }

  #drawButton() {
    const isRunning = this.#streams.has(this.#open);
    const label = isRunning ? t("stop") : t("send");
    const {button} = this.#parts;
    button.title = label;
    button.setAttribute("aria-label", label);
    button.replaceChildren(icon(isRunning ? "stop" : "send"));
  }

  #stop() {
    this.#streams.get(this.#open)?.controller.abort();
  }

  #say(text, pictures = []) {
    this.#open.turns.push({role: "user", content: text, ...(pictures.length && {pictures})});
    this.#ask();
  }

  async #editAt(index, text) {
    const conversation = this.#open;
    this.#stop();
    await this.#streams.get(conversation)?.ended; // an answer under way still writes into its turn
    if (conversation !== this.#open) return;
    const [{pictures}] = conversation.turns.splice(index);
    this.#say(text, pictures);
  }

  #sendResults(results, lane) {
    for (const result of results) this.#open.turns.push({role: "tool", lane, ...result});
    this.#ask();
  }

  /** The last answer anew: of one model, or of both. */
  #again(lane) {
    const turn = this.#open.turns.pop();
    this.#ask(turn.answers.length > 1 ? {turn, lane} : null);
  }

  async #ask(instead = null) {
    const conversation = this.#open;
    if (this.#streams.has(conversation)) return;
    const models = instead ? instead.turn.answers.map((answer) => answer.model) : [...conversation.models];
    const messages = models.map((_, lane) => messagesFor(conversation, lane));
    const answers = models.map((model, lane) => (instead && lane !== instead.lane ? instead.turn.answers[lane] : emptyAnswer(model)));
    const asked = answers.map((_, lane) => lane).filter((lane) => !instead || lane === instead.lane);
    conversation.turns.push({role: "assistant", answers});
    const controller = new AbortController();
    let end;
    const ended = new Promise((resolve) => { end = resolve; });
    this.#streams.set(conversation, {controller, ended});
    this.#store.save(conversation);
    // What has come is kept where the page goes before the end.
    const keep = () => {
      controller.abort();
      for (const lane of asked) answers[lane].stopped ||= !answers[lane].finish && !answers[lane].error;
      this.#store.save(conversation);
    };
    addEventListener("pagehide", keep);
    if (conversation === this.#open) this.#drawAll();
    await Promise.all(asked.map((lane) => this.#fill(conversation, answers[lane], messages[lane], controller.signal)));
    removeEventListener("pagehide", keep);
    this.#streams.delete(conversation);
    end();
    this.#store.save(conversation);
    if (conversation !== this.#open) return;
    // What somebody is reading, or has unfolded, stays as it is.
    for (const answer of answers) {
      const view = this.#views.get(answer);
      if (view) view.running = false;
    }
    this.#drawList();
    this.#drawButton();
    if (this.#store.isFull || answers.some((answer) => answer.toolCalls.length)) this.#drawTurns();
  }

  async #fill(conversation, answer, messages, signal) {
    const change = () => {
      const view = conversation === this.#open ? this.#views.get(answer) : null;
      if (!view) return;
      const follows = this.#isAtEnd();
      view.change();
      if (follows) setTimeout(() => this.#toEnd(), 50);
    };
    let body;
    try {
      body = requestFor(conversation, answer.model, messages);
    } catch (error) {
      answer.error = t("badTools", error.message);
      answer.seconds = 0;
      return;
    }
    await streamAnswer(answer, body, signal, change);
  }

  #drawAll() {
    this.#drawList();
    this.#drawTurns();
    this.#drawButton();
  }
}
