import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import {check, put, putRun, same, sleep, step, until} from "./setup.mjs";

const card = (page, name) => page.locator(".run-card", {has: page.locator(".name", {hasText: new RegExp(`^${name}$`)})});
const cardText = async (page, name) => (await card(page, name).innerText()).replace(/\s+/g, " ");
const open = async (bench, options) => {
  const page = await bench.page(options);
  await page.goto(bench.mock.url + "/#runs");
  await page.locator(".run-card").first().waitFor();
  return page;
};
const values = (page, title) => page.locator(".chart", {has: page.locator("h3", {hasText: new RegExp(`^${title}$`)})}).locator(".values span").allInnerTexts();
const choose = (page, name) => card(page, name).locator("input").click();

function fill({runs}) {
  putRun(path.join(runs, "finished"), 100, {done: true, settings: {lr: 0.01, dropout: 0.1}, log: "all is well\n"});
  putRun(path.join(runs, "diverged"), 40, {log: "error: away\nFAILED (exit 9)\n"});
  putRun(path.join(runs, "failed"), 3, {log: "FAILED (exit 6)\n"});
  putRun(path.join(runs, "stopped"), 50, {log: "STOPPED (exit 143)\n"});
  putRun(path.join(runs, "running"), 20);
  put(path.join(runs, "running/.danlu.lock"), `${process.pid} ${os.hostname()}\n`);
  put(path.join(runs, "finished/checkpoint-50/DONE"), '{"resumable":true,"files":{"model":1048576}}');
  put(path.join(runs, "finished/checkpoint-100/DONE"), '{"resumable":false,"files":{"model":2097152}}');
  if (!fs.existsSync(path.join(runs, "finished/best"))) fs.symlinkSync("checkpoint-50", path.join(runs, "finished/best"));
  put(path.join(runs, "finished/samples.jsonl"), Array.from({length: 45}, (_, i) => JSON.stringify({step: i, prompt: `question ${i}`, completion: `answer ${i}`, rewards: {accuracy: 1}, reward: 0.5, advantage: -1}) + "\n").join(""));
}

export const flows = {
  async theListSaysHowRunsStand(bench) {
    fill(bench);
    const page = await open(bench);
    for (const [name, state] of [["finished", "finished"], ["diverged", "diverged"], ["failed", "failed"], ["stopped", "stopped"], ["running", "running"]])
      await until(async () => (await cardText(page, name)).includes(state), `${name} is ${state}`);
    check((await cardText(page, "running")).includes("20/100"), "steps");
    check((await cardText(page, "running")).includes("1m 2s left"), "time");
    same((await page.locator(".run-card .name").first().innerText()), "running", "running ones come first");
    await page.getByRole("button", {name: /^failed 1/}).click();
    same(await page.locator(".run-card .name").allInnerTexts(), ["failed"], "by state");
    await page.getByRole("button", {name: /^All/}).click();
    await page.getByRole("searchbox").first().fill("fin");
    same(await page.locator(".run-card .name").allInnerTexts(), ["finished"], "by name");
  },

  async marksOfAnAxisAreToldApart(bench) {
    const page = await open(bench);
    const marks = (values, step) => page.evaluate(async ([list, apart]) => {
      const {mark} = await import("/js/format.js");
      return list.map((value) => mark(value, apart));
    }, [values, step]);
    same(await marks([0, 5e-5, 1e-4, 1.5e-4], 5e-5), ["0", "5e-5", "1e-4", "1.5e-4"], "a rate in its warmup");
    same(await marks([0, 2.5e-5, 5e-5, 7.5e-5, 1e-4], 2.5e-5), ["0", "2.5e-5", "5e-5", "7.5e-5", "1e-4"], "quarters");
    same(await marks([0, 2.5e-4, 5e-4], 2.5e-4), ["0.00000", "0.00025", "0.00050"], "with zeros");
    same(await marks([0, 5e6, 1e7, 1.5e7], 5e6), ["0", "5,000,000", "1e7", "1.5e7"], "large ones");
    same(await marks([1e-6, 1.00002e-6], 2e-11), ["1e-6", "1.00002e-6"], "a small part of a small axis");
  },

  async itIsLive(bench) {
    const page = await open(bench);
    await card(page, "running").locator(".name").click();
    await until(async () => (await values(page, "loss")).length === 1, "the loss");
    const log = path.join(bench.runs, "running/logging.jsonl");
    for (let n = 21; n <= 30; ++n) fs.appendFileSync(log, step(n, 1.25));
    fs.appendFileSync(log, '{"loss":99,"global_'); // half a line
    await until(async () => (await cardText(page, "running")).includes("30/100"), "new steps in the list");
    await until(async () => Number((await values(page, "loss"))[0]) < 2, "new steps in the chart");
    const place = await page.locator(".chart .u-over").first().boundingBox();
    await page.mouse.move(place.x + 1, place.y + 50);
    await until(async () => (await page.locator(".chart .values b").first().innerText()) === "Step 1", "the first step is still there");
    await page.mouse.move(2, 2);
    putRun(path.join(bench.runs, "newcomer"), 2);
    await until(() => card(page, "newcomer").isVisible(), "a new run");
    fs.rmSync(path.join(bench.runs, "newcomer"), {recursive: true});
    await until(async () => !(await card(page, "newcomer").isVisible()), "a removed run");
    // The run is resumed: the file is another, with fewer steps.
    fs.writeFileSync(log + ".new", Array.from({length: 10}, (_, i) => step(i + 1, 3)).join(""));
    fs.renameSync(log + ".new", log);
    await until(async () => (await cardText(page, "running")).includes("10/100"), "a resumed run");
    await until(async () => (await values(page, "loss"))[0] === "3", "its chart");
    put(path.join(bench.runs, "running/DONE"), "{}");
    await until(async () => (await cardText(page, "running")).includes("finished"), "its end");
    check((await page.locator(".connection").innerText()) === "live", "live");
  },

  async runsLieOverOneAnother(bench) {
    const page = await open(bench);
    await card(page, "finished").locator(".name").click();
    await choose(page, "stopped");
    await until(async () => (await values(page, "loss")).length === 2, "two values");
    same(await page.locator(".legend .chip").allInnerTexts(), ["finished", "stopped"], "legend");
    const place = await page.locator(".chart .u-over").first().boundingBox();
    await page.mouse.move(place.x + place.width / 2, place.y + 50);
    await until(async () => (await page.locator(".chart .values b").first().innerText()).startsWith("Step 5"), "the step under the pointer");
    await page.mouse.down();
    await page.mouse.move(place.x + place.width * 0.8, place.y + 60, {steps: 5});
    await page.mouse.up();
    await page.getByRole("button", {name: "Whole range"}).waitFor();
    await page.mouse.dblclick(place.x + place.width / 2, place.y + 50);
    await page.getByRole("button", {name: "Whole range"}).waitFor({state: "hidden"});
    await page.locator('input[type="range"]').fill("0.9");
    await page.getByLabel("Logarithmic").check();
    await page.getByLabel("Across").selectOption("epoch");
    await until(async () => (await values(page, "loss")).length === 2, "still two");
    await page.getByRole("button", {name: "Close: stopped"}).click();
    await until(async () => (await values(page, "loss")).length === 1, "one again");
  },

  async theAddressKeepsWhatIsShown(bench) {
    const page = await open(bench);
    await card(page, "finished").locator(".name").click();
    await choose(page, "diverged");
    await page.getByRole("tab", {name: "Settings"}).click();
    const address = page.url();
    const other = await bench.page();
    await other.goto(address);
    await until(async () => (await other.locator(".legend .chip").allInnerTexts()).join() === "finished,diverged", "the same runs");
    same(await other.locator('[aria-selected="true"]').innerText(), "Settings", "the same part");
  },

  async settingsShowDifferences(bench) {
    const page = await open(bench);
    await card(page, "finished").locator(".name").click();
    await choose(page, "stopped");
    await page.getByRole("tab", {name: "Settings"}).click();
    await page.locator(".settings-table tbody th").first().waitFor();
    same((await page.locator(".settings-table tbody th").allInnerTexts()).sort(), ["dropout", "lr"], "differences");
    same(await page.locator(".settings-table tr.differs").count(), 2, "highlighted");
    await page.getByLabel("Only differences").uncheck();
    await page.getByPlaceholder("Find a setting").fill("see");
    same(await page.locator(".settings-table tbody tr").allInnerTexts(), ["seed\t42\t42"], "all");
  },

  async theTabOfWhatIsShownIsMarked(bench) {
    const page = await open(bench);
    await card(page, "finished").locator(".name").click();
    const marked = () => page.locator('[role="tab"][aria-selected="true"]').getAttribute("data-tab");
    const at = page.url().replace(/\/[^/]*$/, "");
    for (const tab of ["settings", "log", "checkpoints"]) {
      await page.evaluate((hash) => { location.hash = hash; }, new URL(`${at}/${tab}`).hash);
      await until(async () => (await marked()) === tab, `${tab} by its address`);
    }
    await page.goBack();
    await until(async () => (await marked()) === "log", "log by going back");
  },

  async anotherProgramsSettingsAreShown(bench) {
    putRun(path.join(bench.runs, "theirs"), 3);
    fs.rmSync(path.join(bench.runs, "theirs/config.yaml"));
    const page = await open(bench);
    await until(() => card(page, "theirs").isVisible(), "the run");
    await card(page, "theirs").locator(".name").click();
    await page.locator('[data-tab="settings"]').click();
    await until(async () => (await page.locator(".settings-table tbody th").allInnerTexts()).includes("seed"), "all that is known");
    same(await page.getByLabel("Only what was given").count(), 0, "nothing to choose from");
    fs.rmSync(path.join(bench.runs, "theirs"), {recursive: true});
  },

  async lossesBeyondEveryMeasureAreDrawn(bench) {
    putRun(path.join(bench.runs, "huge"), 6, {name: (n) => step(n, n % 2 ? 1e308 : -1e308)});
    const page = await open(bench);
    const wrong = [];
    page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
    await until(() => card(page, "huge").isVisible(), "the run");
    await card(page, "huge").locator(".name").click();
    await until(async () => (await values(page, "loss")).length === 1, "its loss");
    check(!(await card(page, "huge").locator(".spark path").getAttribute("d")).includes("NaN"), "the small picture");
    same(wrong, [], "no errors");
    fs.rmSync(path.join(bench.runs, "huge"), {recursive: true});
  },

  async theLogIsFollowed(bench) {
    const page = await open(bench);
    await card(page, "stopped").locator(".name").click();
    await page.getByRole("tab", {name: "Log"}).click();
    await page.getByText("STOPPED (exit 143)").waitFor();
    fs.appendFileSync(path.join(bench.runs, "stopped/train.log"), Array.from({length: 200}, (_, i) => `line ${i}\n`).join(""));
    await page.getByText("line 199").waitFor();
    check(await page.locator(".log-text").evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 5), "it is at the end");
    await page.getByLabel("Follow").uncheck();
    await page.locator(".log-text").evaluate((log) => { log.scrollTop = 0; });
    fs.appendFileSync(path.join(bench.runs, "stopped/train.log"), "the very last\n");
    await until(async () => (await page.locator(".log-text").innerText()).includes("the very last"), "a new line");
    check(await page.locator(".log-text").evaluate((log) => log.scrollTop < 50), "it stays where one reads");
  },

  async checkpointsAndAnswersAreListed(bench) {
    const page = await open(bench);
    await card(page, "finished").locator(".name").click();
    await page.getByRole("tab", {name: "Checkpoints"}).click();
    await page.locator(".panel tbody tr").first().waitFor();
    const rows = (await page.locator(".panel tbody tr").allInnerTexts()).map((row) => row.replace(/\s+/g, " "));
    check(/^checkpoint-50 best ?can be resumed 1\.0 MiB/.test(rows[0]), rows[0]);
    check(/^checkpoint-100 model only 2\.0 MiB/.test(rows[1]), rows[1]);
    await page.locator(".panel tbody button").first().click();
    same(await page.evaluate(() => navigator.clipboard.readText()), path.join(bench.runs, "finished/checkpoint-50"), "copied");
    await page.getByRole("tab", {name: "Answers"}).click();
    await page.getByText("answer 44").waitFor();
    same(await page.locator(".sample").count(), 20, "a page");
    await page.getByRole("button", {name: "Older ones"}).click();
    await page.getByRole("button", {name: "Older ones"}).click();
    await page.getByText("answer 0", {exact: true}).waitFor();
    same(await page.locator(".sample").count(), 45, "all");
    await page.getByRole("button", {name: "Older ones"}).waitFor({state: "hidden"});
  },

  async tabsGoByArrows(bench) {
    const page = await open(bench);
    await page.getByRole("tab", {name: "Curves"}).focus();
    await page.keyboard.press("ArrowRight");
    same(await page.locator('[aria-selected="true"]').innerText(), "Settings", "tab");
    same(await page.evaluate(() => document.activeElement.innerText), "Settings", "focus");
  },

  async onANarrowScreenARunIsAStepOfItsOwn(bench) {
    const page = await open(bench, {width: 360, height: 740});
    check(!(await page.locator(".run-detail").isVisible()), "the list alone");
    await card(page, "finished").locator(".name").click();
    await page.locator(".chart").first().waitFor();
    check(!(await page.locator(".run-list").isVisible()), "the run alone");
    await page.goBack();
    await page.locator(".run-list").waitFor();
    await choose(page, "stopped");
    await page.getByRole("button", {name: "Show what is chosen (2)"}).click();
    same(await page.locator(".legend .chip").allInnerTexts(), ["finished", "stopped"], "both");
    await page.getByRole("button", {name: "All runs"}).click();
    await page.locator(".run-list").waitFor();
  },

  async aBoardAloneHasNoChat(bench) {
    const page = await bench.page();
    await page.goto(bench.board.url);
    await page.locator(".run-card").first().waitFor();
    same(await page.locator("header nav a").allInnerTexts(), ["Runs"], "parts");
  },

  async itComesBackWhenTheServerDoes(bench) {
    const page = await open(bench);
    await page.route("**/api/runs/events", (route) => route.abort());
    await page.evaluate(() => null);
    await sleep(100);
    await page.context().setOffline(true);
    await page.reload().catch(() => {});
    bench.problems = []; // that is what was done to it
    await page.context().setOffline(false);
    await page.unroute("**/api/runs/events");
    await page.goto(bench.mock.url + "/#runs");
    await page.locator(".connection.live").waitFor();
    bench.problems = [];
  },
};
