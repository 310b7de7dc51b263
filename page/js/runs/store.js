// The runs as the server tells them, live; and curves of those that are looked at.
import {followEvents, getJson} from "../api.js";

/** A run may call a curve anything, "constructor" too: nothing else is found under a name. */
const byName = (curves) => Object.assign(Object.create(null), curves);

export class RunsStore extends EventTarget {
  runs = new Map(); // id -> summary
  roots = [];
  cut = false;
  isLive = false;
  isLoaded = false;
  #curves = new Map(); // id -> {generation, last_step, curves: {name: {x, y, thinned}}}
  #loading = new Map(); // id -> promise
  #controller = null;

  start() {
    this.#controller?.abort();
    this.#controller = new AbortController();
    followEvents("api/runs/events", this.#controller.signal, (event) => this.#take(event), (live) => {
      this.isLive = live;
      this.dispatchEvent(new Event("connection"));
    });
  }

  #take({event, data}) {
    const message = JSON.parse(data);
    if (event === "runs") {
      this.runs = new Map(message.runs.map((run) => [run.id, run]));
      this.roots = message.roots;
      this.cut = message.cut;
      this.isLoaded = true;
    } else if (event === "changes") {
      for (const run of message.runs) this.runs.set(run.id, run);
      for (const id of message.gone) {
        this.runs.delete(id);
        this.#curves.delete(id);
      }
    } else {
      return;
    }
    this.dispatchEvent(new CustomEvent("change", {detail: new Set(message.runs.map((run) => run.id))}));
  }

  known(id) {
    return this.#curves.get(id);
  }

  /** All curves of a run; what is known already is not sent again. */
  async curves(id) {
    if (!this.#loading.has(id))
      this.#loading.set(id, this.#load(id).finally(() => this.#loading.delete(id)));
    return this.#loading.get(id);
  }

  async #load(id) {
    const known = this.#curves.get(id);
    const query = known ? `?generation=${known.generation}&after=${known.last_step}` : "";
    const news = await getJson(`api/runs/${id}/curves${query}`);
    news.curves = byName(news.curves);
    const merged = news.continues && known ? this.#merge(known, news) : news;
    this.#curves.set(id, merged);
    return merged;
  }

  /** Points at and behind known.last_step are those that were sent. */
  #merge(known, news) {
    const curves = byName(known.curves);
    for (const [name, curve] of Object.entries(news.curves)) {
      const before = curves[name];
      if (!before) {
        curves[name] = curve;
        continue;
      }
      let keep = before.x.length;
      while (keep > 0 && before.x[keep - 1] >= known.last_step) --keep;
      curves[name] = {
        x: before.x.slice(0, keep).concat(curve.x),
        y: before.y.slice(0, keep).concat(curve.y),
        thinned: before.thinned || curve.thinned,
      };
    }
    return {...news, curves};
  }

  /** The part between two steps with all its points, of curves that were thinned. */
  async part(id, names, from, to) {
    const query = new URLSearchParams([["from", Math.floor(from)], ["to", Math.ceil(to)], ...names.map((name) => ["name", name])]);
    const part = await getJson(`api/runs/${id}/curves?${query}`);
    return {...part, curves: byName(part.curves)};
  }
}
