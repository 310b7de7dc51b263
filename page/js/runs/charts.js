// Curves of several runs over one another, by uPlot.
import uPlot from "../../lib/uplot.js";
import {el, memory} from "../dom.js";
import {mark, number} from "../format.js";
import {t} from "../i18n.js";
import {drawable, epochsOf, smoothed, valueAt} from "./series.js";

/** What is shown without being asked for, in this order; an evaluation stands with its loss. */
const USUAL = [["loss", "eval_loss"], ["reward"], ["token_acc", "eval_token_acc"], ["kl"], ["learning_rate"], ["grad_norm"], ["tokens_per_second"], ["memory(GiB)"]];
const NAMES = new Map(Object.entries({learning_rate: "learning rate", grad_norm: "gradient norm", token_acc: "token accuracy", tokens_per_second: "tokens/s", "memory(GiB)": "memory (GiB)"}));
const WHOLE = Array.from({length: 12}, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const UNSMOOTHED = new Set(["learning_rate", "memory(GiB)", "loss_scale", "skipped_steps"]);
const HIDDEN = new Set(["epoch", "acc", "eval_acc"]); // the axis, and second names

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const withAlpha = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

export class Charts {
  element = el("div");
  #store;
  #chosen; // Map id -> colour
  #charts = new Map(); // first name -> {names, box, plot, values, view}
  #more = new Set(memory.get("curves", []));
  #options = {smoothing: 0.6, log: false, axis: "step", ...memory.get("charts", {})};
  #zoom = null;
  #parts = new Map(); // id -> curves between the ends of the zoom
  #grid;
  #moreRow;
  #reset;
  #observer = new ResizeObserver((entries) => {
    for (const {target, contentRect} of entries)
      if (contentRect.width > 0) target.plot?.setSize({width: contentRect.width, height: target.clientHeight});
  });

  constructor(store, chosen) {
    this.#store = store;
    this.#chosen = chosen;
    document.addEventListener("danlu-theme", () => this.rebuild());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  draw() {
    this.#grid = el("div", {class: "charts"});
    this.#moreRow = el("div", {class: "more"});
    this.#reset = el("button", {type: "button", class: "plain", hidden: !this.#zoom, text: t("resetZoom"), onclick: () => this.#zoomTo(null)});
    const output = el("output", {class: "number", text: this.#options.smoothing.toFixed(2)});
    const set = (name, value) => {
      this.#options[name] = value;
      memory.set("charts", this.#options);
    };
    const axis = el("select", {value: this.#options.axis, onchange: (event) => {
      set("axis", event.target.value);
      this.#zoomTo(null);
      this.rebuild();
    }}, ["step", "epoch"].map((name) => el("option", {value: name, text: t("axis_" + name)})));
    this.element.replaceChildren(
      el("div", {class: "tools"},
        el("label", {}, t("smoothing"), el("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: this.#options.smoothing, oninput: (event) => {
          set("smoothing", Number(event.target.value));
          output.textContent = this.#options.smoothing.toFixed(2);
          this.rebuild();
        }}), output),
        el("label", {}, t("axis"), axis),
        el("label", {}, el("input", {type: "checkbox", checked: this.#options.log, onchange: (event) => {
          set("log", event.target.checked);
          this.rebuild();
        }}), t("logScale")),
        this.#reset, el("span", {class: "hint", text: t("zoomHint")})),
      this.#grid, this.#moreRow);
    this.rebuild();
  }

  #names() {
    const names = new Set();
    for (const id of this.#chosen.keys())
      for (const name of Object.keys(this.#store.known(id)?.curves ?? {})) if (!HIDDEN.has(name)) names.add(name);
    return names;
  }

  /** [[name, …], …]: one element a chart. */
  #groups() {
    const names = this.#names();
    const groups = USUAL.map((group) => group.filter((name) => names.has(name))).filter((group) => group.length);
    const usual = new Set(USUAL.flat());
    const others = [...names].filter((name) => !usual.has(name)).sort();
    return {groups: [...groups, ...others.filter((name) => this.#more.has(name)).map((name) => [name])], others};
  }

  /** All charts anew: other runs, other options, other colours. */
  rebuild() {
    if (!this.#grid) return;
    for (const {plot} of this.#charts.values()) plot.destroy();
    this.#observer.disconnect();
    this.#charts.clear();
    const {groups, others} = this.#groups();
    this.#grid.replaceChildren();
    for (const names of groups) this.#add(names);
    const isLoading = [...this.#chosen.keys()].some((id) => !this.#store.known(id));
    if (!groups.length && this.#chosen.size && !isLoading) this.#grid.append(el("p", {class: "empty", text: t("noCurves")}));
    this.#moreRow.replaceChildren(...(others.length ? [el("span", {class: "hint", text: t("moreCurves")})] : []), ...others.map((name) => el("button", {
      type: "button", text: name, "aria-pressed": String(this.#more.has(name)), onclick: () => {
        this.#more.has(name) ? this.#more.delete(name) : this.#more.add(name);
        memory.set("curves", [...this.#more]);
        this.rebuild();
      },
    })));
  }

  /** New points of the same runs. */
  update() {
    if (!this.#grid) return;
    const {groups, others} = this.#groups();
    const isSame = groups.length === this.#charts.size && groups.every((names) => this.#charts.get(names[0])?.names.join() === names.join()) &&
      others.length === this.#moreRow.querySelectorAll("button").length;
    if (!isSame) return this.rebuild();
    for (const chart of this.#charts.values()) {
      chart.plot.setData(this.#data(chart.names).table);
      if (this.#zoom) chart.plot.setScale("x", {min: this.#zoom[0], max: this.#zoom[1]});
      this.#showValues(chart);
    }
  }

  #points(id, name) {
    const known = this.#store.known(id);
    const curve = this.#parts.get(id)?.[name] ?? known?.curves[name];
    if (!curve) return null;
    const x = this.#options.axis === "epoch" ? epochsOf(known.curves.epoch, curve.x) : curve.x;
    // On a logarithmic axis what is not above 0 has no place.
    const y = curve.y.map((value) => (this.#options.log && !(value > 0) ? null : drawable(value)));
    return {x, y};
  }

  /** The table that uPlot draws, and what each of its series is. */
  #data(names) {
    const tables = [], series = [];
    names.forEach((name, place) => {
      for (const [id, colour] of this.#chosen) {
        const points = this.#points(id, name);
        if (!points || !points.x.length) continue;
        const isEvaluation = place > 0;
        const smooth = !isEvaluation && this.#options.smoothing > 0 && !UNSMOOTHED.has(name) && points.x.length > 2;
        if (smooth) {
          tables.push([points.x, points.y]);
          series.push({id, name, colour: withAlpha(colour, 0.25), isFaint: true});
        }
        tables.push([points.x, smooth ? smoothed(points.y, this.#options.smoothing) : points.y]);
        series.push({id, name, colour, isEvaluation});
      }
    });
    return {table: tables.length ? uPlot.join(tables) : [[]], series};
  }

  #add(names) {
    const {table, series} = this.#data(names);
    const values = el("div", {class: "values number"});
    const place = el("div", {class: "plot"});
    const title = NAMES.get(names[0]) ?? names[0];
    const box = el("figure", {class: "chart", "aria-label": title}, el("div", {class: "chart-head"}, el("h3", {title: names.join(", "), text: title}), values), place);
    box.style.margin = "0";
    this.#grid.append(box);
    const chart = {names, box, values, series, plot: null};
    chart.plot = new uPlot(this.#settings(chart, place.clientWidth || 400), table, place);
    chart.plot.over.addEventListener("dblclick", () => this.#zoomTo(null));
    place.plot = chart.plot;
    this.#observer.observe(place);
    this.#charts.set(names[0], chart);
    if (this.#zoom) chart.plot.setScale("x", {min: this.#zoom[0], max: this.#zoom[1]});
    this.#showValues(chart);
  }

  #settings(chart, width) {
    const axis = {stroke: color("--dim"), grid: {stroke: color("--line"), width: 1}, ticks: {show: false}, font: "11px system-ui, sans-serif"};
    const line = ({colour, isEvaluation, isFaint}) => ({
      stroke: colour, width: isFaint ? 1 : 1.700, spanGaps: false,
      dash: isEvaluation ? [5, 4] : undefined,
      points: isEvaluation ? {show: true, size: 6, fill: colour} : undefined,
    });
    return {
      width, height: 200,
      legend: {show: false},
      scales: {x: {time: false}, y: {distr: this.#options.log ? 3 : 1}},
      axes: [
        {...axis, size: 26, incrs: this.#options.axis === "step" ? WHOLE : undefined, values: (_, marks, axisIndex, space, step) => marks.map((value) => mark(value, step))},
        {...axis, size: (_, marks) => 12 + 6.4 * Math.max(3, ...(marks ?? []).map((text) => text.length)),
          values: (_, marks, axisIndex, space, step) => marks.map((value) => (this.#options.log && value !== null ? number(value, 2) : mark(value, step)))},
      ],
      cursor: {sync: {key: "danlu", setSeries: false}, drag: {x: true, y: false, setScale: false}, points: {size: 6}, bind: {dblclick: () => null}},
      series: [{}, ...chart.series.map(line)],
      hooks: {
        setCursor: [() => this.#showValues(chart)],
        setSelect: [(plot) => {
          if (plot.select.width < 4) return;
          const range = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
          plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
          this.#zoomTo(range);
        }],
      },
    };
  }

  /** Under the pointer, else the last ones. */
  #showValues(chart) {
    const {plot, values, series} = chart;
    if (!plot) return;
    const at = plot.cursor.idx ?? plot.data[0].length - 1;
    const shown = series.map((one, index) => ({...one, value: valueAt(plot.data[index + 1], at)})).filter((one) => !one.isFaint && one.value !== null);
    const step = plot.cursor.idx === null || plot.cursor.idx === undefined ? "" : `${t(this.#options.axis)} ${number(plot.data[0][at])}`;
    values.replaceChildren(step && el("b", {text: step}), ...shown.slice(0, 8).map((one) => {
      const item = el("span", {title: this.#store.runs.get(one.id)?.name ?? "", text: (one.isEvaluation ? t("evaluation") + " " : "") + number(one.value)});
      item.style.setProperty("--of-run", one.colour);
      return item;
    }));
  }

  async #zoomTo(range) {
    this.#zoom = range;
    this.#parts.clear();
    if (this.#reset) this.#reset.hidden = !range;
    this.update();
    if (!range || this.#options.axis !== "step") return;
    // Of long runs not every point is here: fetch those of this part.
    for (const id of this.#chosen.keys()) {
      const curves = this.#store.known(id)?.curves ?? {};
      const names = [...this.#charts.values()].flatMap((chart) => chart.names).filter((name) => curves[name]?.thinned);
      if (!names.length) continue;
      const part = await this.#store.part(id, names, range[0], range[1]).catch(() => null);
      if (this.#zoom !== range) return;
      if (part) this.#parts.set(id, part.curves);
    }
    if (this.#parts.size) this.update();
  }
}
