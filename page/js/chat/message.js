// How turns of a conversation look.
import {copyButton, el, icon, iconButton} from "../dom.js";
import {number} from "../format.js";
import {t} from "../i18n.js";
import {MarkdownView} from "../markdown.js";
import {tokensPerSecond} from "./answer.js";
import {pictureRow} from "./pictures.js";

function fold(iconName, title, ...inside) {
  const heading = el("span", {text: title});
  const element = el("details", {class: "fold"}, el("summary", {}, icon(iconName), heading), el("div", {class: "inside"}, ...inside));
  return {element, heading};
}

/** Arguments are JSON made by a model: shown in order if they are any, else as they are. */
function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function errorText(answer) {
  return t("answerFailed", answer.error === "lost" ? t("connectionLost") : answer.error);
}

function figures(answer) {
  const parts = [];
  const usage = answer.usage;
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    const hint = t("tokensUsedHint") + (cached ? "; " + t("cachedTokens", cached) : "");
    parts.push(el("span", {class: "number", title: hint, text: t("tokensUsed", usage.prompt_tokens, usage.completion_tokens)}));
  }
  const speed = tokensPerSecond(answer);
  if (speed !== null) parts.push(el("span", {class: "number", text: t("tokensPerSecond", number(speed, 3))}));
  if (answer.firstAfter !== null && answer.seconds !== null)
    parts.push(el("span", {class: "number", text: t("firstToken", answer.firstAfter.toFixed(answer.firstAfter < 10 ? 2 : 1))}));
  if (answer.finish === "length") parts.push(el("span", {text: t("cutOff")}));
  if (answer.stopped) parts.push(el("span", {text: t("wasStopped")}));
  return parts;
}

/** One model's answer, drawn again as it grows; what has not changed is left alone. */
export class AnswerView {
  #answer;
  #names;
  #actions;
  #thought = null;
  #thoughtText = el("span");
  #calls = [];
  #markdown = new MarkdownView();
  #problem = el("p", {class: "problem", hidden: true});
  #folds = el("div");
  #foot = el("div", {class: "foot"});
  #queued = false;
  #running = false;
  element;

  /** names: whether the model's name stands above; actions(answer): buttons for a finished one. */
  constructor(answer, {names, actions}) {
    this.#answer = answer;
    this.#names = names;
    this.#actions = actions;
    this.element = el("div", {class: "answer"}, this.#names && el("div", {class: "by", text: answer.model}),
      this.#folds, this.#markdown.element, this.#problem, this.#foot);
    this.draw();
  }

  set running(running) {
    this.#running = running;
    this.draw();
  }

  /** Draws soon: a stream is faster than eyes. */
  change() {
    if (this.#queued) return;
    this.#queued = true;
    setTimeout(() => {
      this.#queued = false;
      this.draw();
    }, 40);
  }

  draw() {
    const answer = this.#answer;
    this.#drawThought();
    this.#drawCalls();
    const isEmpty = !answer.content && !answer.reasoning && !answer.toolCalls.length && !answer.error && !this.#running;
    this.#markdown.update(isEmpty ? t("emptyAnswer") : answer.content);
    this.#markdown.element.classList.toggle("cursor", this.#running && !answer.toolCalls.length);
    this.#problem.hidden = !answer.error;
    this.#problem.textContent = answer.error ? errorText(answer) : "";
    if (this.#running) this.#foot.replaceChildren();
    else this.#foot.replaceChildren(el("span", {class: "actions"},
      copyButton(t("copy"), t("copied"), () => answer.content), this.#actions(answer)), ...figures(answer));
  }

  #drawThought() {
    const {reasoning, content} = this.#answer;
    if (!reasoning) return;
    if (!this.#thought) {
      this.#thought = fold("thought", "", this.#thoughtText);
      this.#folds.prepend(this.#thought.element);
    }
    this.#thought.heading.textContent = this.#running && !content ? t("reasoningNow") : t("reasoning");
    if (this.#thoughtText.textContent !== reasoning) this.#thoughtText.textContent = reasoning;
  }

  #drawCalls() {
    this.#answer.toolCalls.forEach((call, index) => {
      if (!call) return;
      let shown = this.#calls[index];
      if (!shown) {
        shown = fold("tool", "", el("pre"));
        this.#calls[index] = shown;
        this.#folds.append(shown.element);
      }
      shown.heading.textContent = t("toolCall", call.name);
      shown.element.querySelector("pre").textContent = this.#running ? call.arguments : prettyJson(call.arguments);
    });
  }
}

/** What the user said; onEdit(text) sends it anew. */
export function userTurn(turn, onEdit) {
  const element = el("div", {class: "turn of-user"});
  const show = () => element.replaceChildren(
    turn.pictures?.length ? pictureRow(turn.pictures) : "",
    el("div", {class: "said", text: turn.content}),
    el("div", {class: "foot"}, el("span", {class: "actions"},
      copyButton(t("copy"), t("copied"), () => turn.content), iconButton("edit", t("edit"), edit))));
  const edit = () => {
    const area = el("textarea", {value: turn.content, "aria-label": t("edit"), rows: Math.min(12, turn.content.split("\n").length + 1)});
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      show();
    });
    element.replaceChildren(el("form", {class: "editor", onsubmit: (event) => {
      event.preventDefault();
      if (area.value.trim()) onEdit(area.value);
    }}, area, el("div", {class: "buttons"},
      el("button", {type: "button", class: "quiet", text: t("cancel"), onclick: show}),
      el("button", {type: "submit", class: "primary", text: t("saveAndSend")}))));
    area.focus();
  };
  show();
  return element;
}

export function toolTurn(turn) {
  const {element} = fold("tool", t("toolResult", turn.name), el("pre", {text: turn.content}));
  return el("div", {class: "turn of-tool"}, element);
}

/** Fields for what the tools that an answer calls have given; onSend([{callId, name, content}]). */
export function resultsForm(calls, onSend) {
  const areas = calls.map((call) => el("textarea", {rows: 2, "aria-label": t("toolResult", call.name), placeholder: t("toolResult", call.name)}));
  return el("form", {class: "results", onsubmit: (event) => {
    event.preventDefault();
    onSend(calls.map((call, index) => ({callId: call.id, name: call.name, content: areas[index].value})));
  }}, areas, el("div", {class: "buttons"}, el("button", {type: "submit", class: "plain", text: t("sendResults")})));
}
