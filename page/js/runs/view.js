// The runs: a list, and what is known of those that were chosen in it.
import {el, iconButton, memory} from "../dom.js";
import {t} from "../i18n.js";
import {Charts} from "./charts.js";
import {RunList} from "./list.js";
import {AnswersPanel, CheckpointsPanel, LogPanel, SettingsPanel} from "./panels.js";
import {RunsStore} from "./store.js";

const COLOURS = ["#1f77d0", "#d9480f", "#2b9a55", "#9c4dcc", "#c2255c", "#0c9aa6", "#a17a00", "#76797f"];
const TABS = ["curves", "settings", "log", "checkpoints", "answers"];
const isNarrow = () => matchMedia("(max-width: 900px)").matches;

export class RunsView {
  element = el("div", {class: "runs"});
  #store = new RunsStore();
  #chosen = new Map(); // id -> colour
  #tab = TABS.includes(memory.get("tab")) ? memory.get("tab") : "curves";
  #list = new RunList(this.#store, this.#chosen, (id, isOnly) => this.#choose(id, isOnly), () => this.#remember(true));
  #charts = new Charts(this.#store, this.#chosen);
  #panels = {settings: new SettingsPanel(), log: new LogPanel(), checkpoints: new CheckpointsPanel(), answers: new AnswersPanel()};
  #wanted = null; // ids of the address that are not there yet
  #legend;
  #tabRow;
  #panel;
  #shown = 0;

  constructor() {
    this.#store.addEventListener("change", (event) => this.#onChange(event.detail));
    this.#store.addEventListener("connection", () => this.#list.updateConnection());
    this.#store.start();
    setInterval(() => this.#list.update(), 20000); // "3 min ago"
  }

  reconnect() {
    this.#store.start();
  }

  /** #runs/ID,ID/tab */
  go([ids, tab]) {
    if (TABS.includes(tab)) this.#tab = tab;
    if (ids) {
      const wanted = ids.split(",").slice(0, COLOURS.length);
      if (wanted.join() !== [...this.#chosen.keys()].join()) {
        this.#wanted = wanted;
        this.#takeWanted();
      } else {
        this.#drawDetail();
      }
      this.element.classList.add("in-detail");
    } else {
      this.element.classList.remove("in-detail");
      this.#chooseFirst();
    }
  }

  draw() {
    this.#legend = el("div", {class: "legend"});
    this.#tabRow = el("div", {class: "tabs", role: "tablist"});
    this.#panel = el("div", {class: "panel", role: "tabpanel", tabindex: -1});
    this.#list.draw();
    this.element.replaceChildren(this.#list.element,
      el("section", {class: "run-detail"}, el("div", {class: "run-head"}, this.#legend, this.#tabRow), this.#panel));
    this.#charts.draw();
    this.#drawDetail();
  }

  // --- which runs ---

  #choose(id, isOnly) {
    if (isOnly) {
      this.#chosen.clear();
      this.#add(id);
    } else if (this.#chosen.has(id)) {
      this.#chosen.delete(id);
    } else {
      this.#add(id);
    }
    this.#wanted = null;
    if (isOnly || !isNarrow()) this.#remember(isOnly && isNarrow());
    this.#onChosen();
  }

  #add(id) {
    if (this.#chosen.size >= COLOURS.length) this.#chosen.delete(this.#chosen.keys().next().value);
    const used = new Set(this.#chosen.values());
    this.#chosen.set(id, COLOURS.find((colour) => !used.has(colour)));
  }

  /** The address names what is shown, so that it can be kept or sent. */
  #remember(isStep) {
    const hash = this.#chosen.size ? `#runs/${[...this.#chosen.keys()].join(",")}/${this.#tab}` : "#runs";
    isStep ? history.pushState(null, "", hash) : history.replaceState(null, "", hash);
    if (isStep) this.element.classList.add("in-detail");
  }

  #takeWanted() {
    if (!this.#wanted || !this.#store.isLoaded) return;
    const there = this.#wanted.filter((id) => this.#store.runs.has(id));
    this.#wanted = null;
    if (!there.length) return this.#chooseFirst();
    this.#chosen.clear();
    there.forEach((id) => this.#add(id));
    this.#onChosen();
  }

  #chooseFirst() {
    if (this.#chosen.size || !this.#store.isLoaded || this.#wanted) return;
    const [first] = this.#list.visible();
    if (!first) return;
    this.#add(first.id);
    this.#onChosen();
  }

  // --- what the server tells ---

  #onChange(ids) {
    this.#takeWanted();
    for (const id of [...this.#chosen.keys()]) if (!this.#store.runs.has(id)) this.#chosen.delete(id);
    if (this.element.isConnected) this.#chooseFirst();
    this.#list.update();
    const changed = [...this.#chosen.keys()].filter((id) => ids.has(id));
    if (changed.length) this.#loadCurves(changed).then(() => this.#charts.update());
    if (!changed.length && this.#chosen.size) return;
    if (this.#tabRow && this.#tabs().length !== this.#tabRow.children.length) return this.#drawDetail();
    this.#drawLegend();
    if (this.#tab !== "curves" && this.#tab !== "settings" && this.#tab !== "answers") this.#drawPanel();
  }

  async #loadCurves(ids) {
    await Promise.allSettled(ids.map((id) => this.#store.curves(id)));
  }

  #onChosen() {
    this.#list.update();
    this.#drawDetail();
    this.#charts.rebuild();
    this.#loadCurves([...this.#chosen.keys()]).then(() => this.#charts.rebuild());
  }

  // --- the chosen ones ---

  #drawDetail() {
    if (!this.#legend) return;
    this.#drawLegend();
    const tabs = this.#tabs();
    if (!tabs.includes(this.#tab)) this.#tab = "curves";
    this.#tabRow.replaceChildren(...tabs.map((name) => el("button", {
      type: "button", role: "tab", "aria-selected": String(name === this.#tab), tabindex: name === this.#tab ? 0 : -1, "data-tab": name, text: t(name),
      onclick: () => this.#openTab(name),
      onkeydown: (event) => {
        const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
        if (!by) return;
        this.#openTab(tabs[(tabs.indexOf(name) + by + tabs.length) % tabs.length]);
        this.#tabRow.querySelector('[aria-selected="true"]').focus();
      },
    })));
    this.#drawPanel();
  }

  /** Few runs keep answers. */
  #tabs() {
    const hasAnswers = [...this.#chosen.keys()].some((id) => this.#store.runs.get(id)?.has_samples);
    return TABS.filter((name) => name !== "answers" || hasAnswers || !this.#store.isLoaded);
  }

  #openTab(name) {
    this.#tab = name;
    memory.set("tab", name);
    if (this.#chosen.size) this.#remember(false);
    this.#drawDetail();
  }

  #drawLegend() {
    if (!this.#legend) return;
    const chips = [...this.#chosen].map(([id, colour]) => {
      const name = this.#store.runs.get(id)?.name ?? id;
      const chip = el("span", {class: "chip"}, el("span", {class: "text", title: name, text: name}), iconButton("close", `${t("close")}: ${name}`, () => this.#choose(id, false)));
      chip.style.setProperty("--of-run", colour);
      return chip;
    });
    this.#legend.replaceChildren(el("span", {class: "back"}, iconButton("back", t("back"), () => { location.hash = "#runs"; })), ...chips);
  }

  #drawPanel() {
    if (!this.#panel) return;
    const runs = [...this.#chosen.keys()].map((id) => this.#store.runs.get(id)).filter(Boolean);
    const number = ++this.#shown;
    this.#panel.setAttribute("aria-label", t(this.#tab));
    if (!runs.length) {
      this.#panel.replaceChildren(this.#store.isLoaded ? el("p", {class: "empty", text: t("nothingChosen")}) : "");
      return;
    }
    const {element} = this.#tab === "curves" ? this.#charts : this.#panels[this.#tab];
    if (this.#panel.firstChild !== element) this.#panel.replaceChildren(element);
    if (this.#tab !== "curves") this.#panels[this.#tab].show(runs, this.#chosen, () => number === this.#shown);
  }
}
