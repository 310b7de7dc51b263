// The list of runs: state, progress, the loss as a small picture; which of them are shown.
import {el, svg} from "../dom.js";
import {ago, number} from "../format.js";
import {t} from "../i18n.js";
import {drawable} from "./series.js";

const STATES = ["running", "finished", "stopped", "diverged", "failed"];

export function stateLabel(run) {
  const hint = run.state === "running" && run.holder ? t("stateHint_running", run.holder)
    : run.exit_code !== null ? t("stateHint_exit", run.exit_code) : "";
  return el("span", {class: `state ${STATES.includes(run.state) ? run.state : "stopped"}`, title: hint, text: t("state_" + run.state)});
}

/** The loss so far, without axes. */
function spark(points) {
  points = points.map(drawable);
  const values = points.filter((value) => value !== null);
  if (values.length < 2) return svg("svg", {class: "spark"});
  const low = Math.min(...values), high = Math.max(...values);
  let path = "", pen = "M";
  points.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const y = high === low ? 15 : 2 + 26 * (1 - (value - low) / (high - low));
    path += `${pen}${(72 * index / (points.length - 1)).toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return svg("svg", {class: "spark", viewBox: "0 0 72 30", preserveAspectRatio: "none", "aria-hidden": "true"}, svg("path", {d: path}));
}

export class RunList {
  element = el("aside", {class: "run-list"});
  #store;
  #chosen; // Map id -> colour
  #onChoose;
  #filter = "";
  #state = "";
  #cards = new Map(); // id -> element
  #list;
  #states;
  #connection;
  #open; // for screens that have no room for a run beside the list
  #onOpen;

  /** onChoose(id, isOnly): a run is to be shown or no longer; isOnly: and no other; onOpen(): the chosen ones. */
  constructor(store, chosen, onChoose, onOpen) {
    this.#onOpen = onOpen;
    this.#store = store;
    this.#chosen = chosen;
    this.#onChoose = onChoose;
  }

  draw() {
    this.#cards.clear();
    this.#list = el("ul", {"aria-label": t("runs")});
    this.#states = el("div", {class: "states"});
    this.#connection = el("div", {class: "connection", role: "status"});
    this.#open = el("button", {type: "button", class: "primary open", onclick: () => this.#onOpen()});
    this.element.setAttribute("aria-label", t("runs"));
    this.element.replaceChildren(
      el("div", {class: "head"},
        el("input", {type: "search", placeholder: t("find"), "aria-label": t("find"), value: this.#filter, oninput: (event) => {
          this.#filter = event.target.value;
          this.update();
        }}), this.#states),
      this.#list, this.#open, this.#connection);
    this.update();
    this.updateConnection();
  }

  updateConnection() {
    if (!this.#connection) return;
    this.#connection.classList.toggle("live", this.#store.isLive);
    this.#connection.textContent = this.#store.isLive ? t("live") : t("notLive");
  }

  /** Newest first, running ones before all. */
  visible() {
    const words = this.#filter.toLowerCase().split(/\s+/).filter(Boolean);
    return [...this.#store.runs.values()]
      .filter((run) => !this.#state || run.state === this.#state)
      .filter((run) => words.every((word) => `${run.name} ${run.about.verb ?? ""} ${run.about.model ?? ""} ${run.about.dataset ?? ""}`.toLowerCase().includes(word)))
      .sort((a, b) => (b.state === "running") - (a.state === "running") || b.changed - a.changed || a.name.localeCompare(b.name));
  }

  update() {
    if (!this.#list) return;
    this.#drawStates();
    this.#open.hidden = this.#chosen.size === 0;
    this.#open.textContent = t("showChosen", this.#chosen.size);
    const runs = this.visible();
    const cards = runs.map((run) => this.#card(run));
    if (!cards.length && this.#store.isLoaded) cards.push(this.#nothing());
    if (this.#store.cut) cards.push(el("li", {class: "hint", text: t("tooManyRuns", this.#store.runs.size)}));
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    // Elements that are there already are moved only where their place is another.
    cards.forEach((card, index) => {
      if (this.#list.children[index] !== card) this.#list.insertBefore(card, this.#list.children[index] ?? null);
    });
    while (this.#list.children.length > cards.length) this.#list.lastChild.remove();
    if (focused && document.activeElement !== focused) focused.focus({preventScroll: true});
  }

  #nothing() {
    if (this.#store.runs.size) return el("li", {class: "empty", text: "—"});
    return el("li", {class: "empty"}, el("p", {text: t("noRuns", this.#store.roots.join(", "))}), el("p", {class: "hint", text: t("noRunsHint")}));
  }

  #drawStates() {
    const count = (state) => [...this.#store.runs.values()].filter((run) => !state || run.state === state).length;
    const shown = ["", ...STATES.filter((state) => count(state) || state === this.#state)];
    const buttons = shown.map((state) => el("button", {
      type: "button", "aria-pressed": String(state === this.#state), "data-state": state,
      text: `${state ? t("state_" + state) : t("allStates")} ${count(state)}`,
      onclick: () => {
        this.#state = state;
        this.update();
        this.#states.querySelector(`[data-state="${state}"]`)?.focus();
      },
    }));
    const same = buttons.length === this.#states.children.length && buttons.every((button, index) => button.isEqualNode(this.#states.children[index]));
    if (!same) this.#states.replaceChildren(...buttons);
  }

  #card(run) {
    let card = this.#cards.get(run.id);
    if (!card) {
      const box = el("input", {type: "checkbox", onchange: () => this.#onChoose(run.id, false)});
      const name = el("button", {type: "button", class: "name", onclick: () => this.#onChoose(run.id, true)});
      card = el("li", {class: "run-card"}, box, name, el("div", {class: "facts number"}), svg("svg", {class: "spark"}), el("div", {class: "bar"}, el("i")));
      this.#cards.set(run.id, card);
    }
    const colour = this.#chosen.get(run.id);
    card.classList.toggle("chosen", colour !== undefined);
    colour === undefined ? card.style.removeProperty("--of-run") : card.style.setProperty("--of-run", colour);
    const [box, name, facts, , bar] = card.children;
    box.checked = colour !== undefined;
    const state = `${run.state} ${run.changed} ${run.step} ${run.max_steps} ${run.name} ${run.last.loss} ${run.holder} ${ago(run.changed)}`;
    if (card.dataset.drawn === state) return card;
    card.dataset.drawn = state;
    box.setAttribute("aria-label", t("show", run.name));
    // What tells versions of a run apart stands at the end of the name.
    const cut = run.name.lastIndexOf("/") + 1;
    name.replaceChildren(...(cut ? [el("span", {class: "folder", text: run.name.slice(0, cut)})] : []), el("span", {class: "base", text: run.name.slice(cut)}));
    name.title = run.path;
    const loss = run.last.loss ?? run.last.reward;
    facts.replaceChildren(stateLabel(run),
      el("span", {text: run.max_steps ? `${run.step}/${run.max_steps}` : run.step ? String(run.step) : "–"}),
      el("span", {text: loss === undefined ? "" : number(loss)}),
      el("span", {title: run.remaining, text: run.state === "running" && run.remaining ? t("left", run.remaining) : ago(run.changed)}));
    card.children[3].replaceWith(spark(run.spark));
    bar.hidden = !(run.state === "running" && run.max_steps);
    bar.firstChild.style.width = `${run.max_steps ? Math.min(100, 100 * run.step / run.max_steps) : 0}%`;
    return card;
  }
}
