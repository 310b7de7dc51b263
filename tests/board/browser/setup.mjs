// What the flows share: a browser, a board with runs, a model that is played. With DANLU_PAGE=page
// the page's files are those of the tree, not those that were built into the program.
import {spawn} from "node:child_process";
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";
import {startMock} from "./mock_server.mjs";

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export function put(file, text) {
  fs.mkdirSync(path.dirname(file), {recursive: true});
  fs.writeFileSync(file, text);
}

/** A line of logging.jsonl. */
export function step(number, loss, more = {}) {
  return JSON.stringify({loss, learning_rate: 1e-3 * (1 - number / 100), grad_norm: 1, tokens_per_second: 900, epoch: number / 50, global_step: number, "global_step/max_steps": `${number}/100`, remaining_time: "1m 2s", ...more}) + "\n";
}

/** A run with `count` logged steps. */
export function putRun(directory, count, {settings = {}, done = false, log = "", name = (n) => step(n, 5 - n / 40)} = {}) {
  const args = JSON.stringify({lr: 0.001, seed: 42, model: "m", ...settings});
  put(path.join(directory, "args.json"), args);
  put(path.join(directory, "sft_args.json"), args);
  put(path.join(directory, "config.yaml"), "# danlu sft config.yaml repeats this run\n" + Object.keys({lr: 0, ...settings}).map((key) => `${key}: 0\n`).join(""));
  put(path.join(directory, "logging.jsonl"), Array.from({length: count}, (_, i) => name(i + 1)).join(""));
  put(path.join(directory, "train.log"), log || "step 1/100  loss 5\n");
  if (done) put(path.join(directory, "DONE"), "{}");
}

export async function startBoard(build, directory) {
  const board = spawn(path.join(build, "danlu"), ["board", directory, "--port", "0"], {stdio: ["ignore", "pipe", "pipe"], env: {...process.env, DANLU_LANG: "en"}});
  let said = "";
  const url = await new Promise((done, fail) => {
    const hear = (data) => {
      said += data;
      const found = said.match(/^http:\/\/\S+(?=\/\n)/m);
      if (found) done(found[0]);
    };
    board.stdout.on("data", hear);
    board.stderr.on("data", hear);
    board.on("exit", (code) => fail(new Error(`danlu board ended with ${code}: ${said}`)));
  });
  return {url, stop: () => new Promise((done) => {
    board.removeAllListeners("exit");
    board.on("exit", done);
    board.kill("SIGTERM");
  })};
}

export class Bench {
  problems = [];
  foreign = [];
  contexts = new Map(); // a new one for each page would load all modules anew

  static async start(build, playwright, folder) {
    const bench = new Bench();
    bench.folder = folder;
    bench.runs = path.join(folder, "runs");
    fs.mkdirSync(bench.runs, {recursive: true});
    const {chromium} = createRequire(import.meta.url)(playwright);
    bench.browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"]});
    bench.board = await startBoard(build, bench.runs);
    bench.mock = await startMock({board: bench.board.url});
    return bench;
  }

  /** A page of a user of its own. What it complains about, and requests to other hosts, are noted. */
  async page({width = 1280, height = 800, colorScheme = "light", locale = "en-US", ...more} = {}) {
    const options = {viewport: {width, height}, colorScheme, locale, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"], ...more};
    const kind = JSON.stringify(options);
    if (!this.contexts.has(kind)) this.contexts.set(kind, await this.browser.newContext(options));
    const page = await this.contexts.get(kind).newPage();
    await page.goto(this.mock.url + "/icon.svg");
    await page.evaluate(() => localStorage.clear());
    page.setDefaultTimeout(60000);
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && this.problems.push(`${message.text()} (at ${new URL(message.location().url || "about:blank").pathname})`));
    page.on("pageerror", (error) => this.problems.push(String(error.stack)));
    page.on("dialog", (dialog) => {
      this.problems.push("a dialog: " + dialog.message());
      dialog.dismiss();
    });
    page.on("request", (request) => {
      const {hostname, protocol} = new URL(request.url());
      if (protocol !== "data:" && hostname !== "127.0.0.1") this.foreign.push(request.url());
    });
    return page;
  }

  async stop() {
    await this.browser.close();
    await this.mock.close();
    await this.board.stop();
  }
}

export function check(is, what) {
  if (!is) throw new Error(what);
}

export function same(a, b, what = "") {
  const [left, right] = [JSON.stringify(a), JSON.stringify(b)];
  if (left !== right) throw new Error(`${what}: ${left} instead of ${right}`);
}

/** Waits until look() is true. */
export async function until(look, what, ms = 20000) {
  for (const end = Date.now() + ms; Date.now() < end;) {
    if (await look()) return;
    await sleep(50);
  }
  throw new Error("never: " + what);
}
