// What a run tells beside its curves: settings, log, checkpoints, answers.
import {getJson} from "../api.js";
import {copyButton, el} from "../dom.js";
import {bytes, moment, number} from "../format.js";
import {t} from "../i18n.js";

/** Title with the run's colour. */
function titleOf(run, colour) {
  const title = el("h2", {class: "of-run-title", text: run.name});
  title.style.setProperty("--of-run", colour);
  return title;
}

const problem = (error) => el("p", {class: "problem", text: t("problem", error.message)});

/** A list of the chosen runs, where one of them is looked at. */
function runChoice(runs, current, onChange) {
  if (runs.length < 2) return "";
  return el("select", {"aria-label": t("run"), value: current, onchange: (event) => onChange(event.target.value)},
    runs.map((run) => el("option", {value: run.id, text: run.name})));
}

const shown = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));

/** Settings of the chosen runs side by side. */
export class SettingsPanel {
  element = el("div");
  #filter = "";
  #onlyDifferences = null;
  #onlyGiven = null;

  async show(runs, colours, isCurrent) {
    let all;
    try {
      all = await Promise.all(runs.map((run) => getJson(`api/runs/${run.id}/settings`)));
    } catch (error) {
      if (isCurrent()) this.element.replaceChildren(problem(error));
      return;
    }
    if (isCurrent()) this.#draw(runs, colours, all);
  }

  #draw(runs, colours, all) {
    const differences = this.#onlyDifferences ?? runs.length > 1;
    // Of other programs' runs nothing says what was given.
    const knowsGiven = all.some((one) => one.given.length);
    const given = knowsGiven && (this.#onlyGiven ?? runs.length === 1);
    const names = [...new Set(all.flatMap((one) => [...one.given, ...Object.keys(one.args)]))];
    const body = el("tbody");
    const fill = () => {
      const rows = names.map((name) => {
        const texts = all.map((one) => shown(Object.hasOwn(one.args, name) ? one.args[name] : undefined));
        return {name, texts, differs: new Set(texts).size > 1, isGiven: all.some((one) => one.given.includes(name))};
      }).filter((row) => (!differences || row.differs || runs.length < 2) && (!given || row.isGiven) && row.name.includes(this.#filter));
      body.replaceChildren(...rows.map((row) => el("tr", {class: row.differs ? "differs" : null},
        el("th", {scope: "row", text: row.name}),
        row.texts.map((text, index) => el("td", {class: all[index].given.includes(row.name) ? "given" : null, title: all[index].given.includes(row.name) ? t("wasGiven") : null, text})))));
      if (!rows.length) body.append(el("tr", {}, el("td", {colspan: runs.length + 1, text: names.length ? (differences && runs.length > 1 ? t("sameSettings") : t("noSettings")) : t("noSettings")})));
    };
    const toggle = (label, value, set) => el("label", {}, el("input", {type: "checkbox", checked: value, onchange: (event) => {
      set(event.target.checked);
      this.#draw(runs, colours, all);
    }}), label);
    const head = el("tr", {}, el("th", {text: t("setting")}), runs.map((run) => {
      const swatch = el("span", {class: "swatch"});
      swatch.style.setProperty("--of-run", colours.get(run.id));
      return el("th", {scope: "col"}, swatch, run.name);
    }));
    this.element.replaceChildren(
      el("div", {class: "tools"},
        el("input", {type: "search", placeholder: t("findSetting"), "aria-label": t("findSetting"), value: this.#filter, oninput: (event) => {
          this.#filter = event.target.value.replace(/-/g, "_");
          fill();
        }}),
        runs.length > 1 && toggle(t("onlyDifferences"), differences, (value) => { this.#onlyDifferences = value; }),
        knowsGiven && toggle(t("onlyGiven"), given, (value) => { this.#onlyGiven = value; })),
      el("div", {class: "table-box"}, el("table", {class: "settings-table"}, el("thead", {}, head), body)));
    fill();
  }
}

/** The end of a log, which follows. */
export class LogPanel {
  element = el("div");
  #run = "";
  #name = "";
  #follows = true;
  #text = el("pre", {class: "log-text", tabindex: 0});

  constructor() {
    this.element.style.height = "100%";
  }

  async show(runs, _colours, isCurrent) {
    const run = runs.find((one) => one.id === this.#run) ?? runs[0];
    try {
      const about = await getJson(`api/runs/${run.id}`);
      const name = about.logs.includes(this.#name) ? this.#name : about.logs[0];
      const log = name ? await getJson(`api/runs/${run.id}/log?bytes=262144&name=${encodeURIComponent(name)}`) : null;
      if (isCurrent()) this.#draw(runs, run, about.logs, log, isCurrent);
    } catch (error) {
      if (isCurrent()) this.element.replaceChildren(problem(error));
    }
  }

  #draw(runs, run, logs, log, isCurrent) {
    const again = () => this.show(runs, null, isCurrent);
    if (!log) {
      this.element.replaceChildren(runChoice(runs, run.id, (id) => { this.#run = id; again(); }), el("p", {class: "empty", text: t("noLog")}));
      return;
    }
    if (this.#text.textContent !== log.text || !this.#text.isConnected) {
      const stays = this.#text.scrollTop;
      this.#text.textContent = log.text;
      this.#text.setAttribute("aria-label", log.name);
      this.element.replaceChildren(
        el("div", {class: "tools"},
          runChoice(runs, run.id, (id) => { this.#run = id; again(); }),
          logs.length > 1 && el("select", {"aria-label": t("log"), value: log.name, onchange: (event) => {
            this.#name = event.target.value;
            again();
          }}, logs.map((name) => el("option", {value: name, text: name}))),
          el("label", {}, el("input", {type: "checkbox", checked: this.#follows, onchange: (event) => {
            this.#follows = event.target.checked;
            if (this.#follows) this.#text.scrollTop = this.#text.scrollHeight;
          }}), t("follow")),
          log.cut && el("span", {class: "hint", text: t("logCut")})),
        this.#text);
      this.#text.scrollTop = this.#follows ? this.#text.scrollHeight : stays;
    }
  }
}

export class CheckpointsPanel {
  element = el("div");

  async show(runs, colours, isCurrent) {
    let all;
    try {
      all = await Promise.all(runs.map((run) => getJson(`api/runs/${run.id}`)));
    } catch (error) {
      if (isCurrent()) this.element.replaceChildren(problem(error));
      return;
    }
    if (!isCurrent()) return;
    this.element.replaceChildren(...all.flatMap((run) => [
      runs.length > 1 ? titleOf(run, colours.get(run.id)) : "",
      run.checkpoints.length ? el("div", {class: "table-box"}, el("table", {},
        el("thead", {}, el("tr", {}, [t("checkpoint"), t("state"), t("size"), t("written"), ""].map((text) => el("th", {text})))),
        el("tbody", {}, run.checkpoints.map((one) => this.#row(run, one))))) : el("p", {class: "hint", text: t("noCheckpoints")}),
    ]));
  }

  #row(run, one) {
    const tag = (name, text) => el("span", {class: `tag ${name}`, text});
    return el("tr", {},
      el("td", {text: one.name}),
      el("td", {}, one.best && tag("best", t("best")), one.last && tag("", t("last")),
        !one.complete ? tag("", t("incomplete")) : one.resumable ? tag("", t("resumable")) : tag("", t("modelOnly"))),
      el("td", {class: "number", text: one.complete ? bytes(one.bytes) : "–"}),
      el("td", {class: "number", text: moment(one.changed)}),
      el("td", {}, copyButton(t("copyPath"), t("copied"), () => `${run.path}/${one.name}`)));
  }
}

/** Answers that a run has drawn, with their rewards. */
export class AnswersPanel {
  element = el("div");
  #run = "";

  async show(runs, _colours, isCurrent) {
    const run = runs.find((one) => one.id === this.#run) ?? runs[0];
    const list = el("div");
    let before = 0;
    const older = el("button", {type: "button", class: "plain", text: t("older"), onclick: () => load()});
    const load = async () => {
      const page = await getJson(`api/runs/${run.id}/samples?count=20&before=${before}`);
      before = page.before;
      older.hidden = before === 0;
      list.append(...page.samples.map((sample) => this.#sample(sample)));
      return page.samples.length;
    };
    try {
      const count = await load();
      if (!isCurrent()) return;
      this.element.replaceChildren(runChoice(runs, run.id, (id) => {
        this.#run = id;
        this.show(runs, null, isCurrent);
      }), count ? list : el("p", {class: "empty", text: t("noAnswers")}), older);
    } catch (error) {
      if (isCurrent()) this.element.replaceChildren(problem(error));
    }
  }

  #sample(sample) {
    const facts = [[t("step"), sample.step], [t("reward"), sample.reward], ...Object.entries(sample.rewards ?? {}), [t("advantage"), sample.advantage]];
    const text = (value) => (typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value));
    return el("article", {class: "sample"},
      el("div", {class: "facts number"}, facts.filter(([, value]) => value !== undefined).map(([name, value]) =>
        el("span", {text: `${name} ${typeof value === "number" ? number(value) : value === null ? "–" : String(value)}`}))),
      el("h3", {text: t("prompt")}), el("p", {text: text(sample.prompt)}),
      el("h3", {text: t("answer")}), el("p", {text: text(sample.completion)}));
  }
}
