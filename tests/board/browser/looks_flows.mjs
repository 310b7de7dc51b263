// Each part at the narrowest and a wide width, in both colours and languages: nothing is cut off or
// lies beyond the edge. With DANLU_PICTURES=DIR the pictures are kept to be looked at.
import fs from "node:fs";
import path from "node:path";
import {check, put, putRun, same} from "./setup.mjs";

function fill({runs}) {
  putRun(path.join(runs, "qwen2.5-0.5b/v0-20261129-081500"), 100, {done: true, settings: {lr: 0.002}});
  putRun(path.join(runs, "qwen2.5-0.5b/v1-20261129-093000-a-run-with-a-very-long-name-indeed"), 64, {settings: {lr: 0.001, dataset: ["a/very/long/path/to/a/data/set.jsonl#100000"]}, log: "FAILED (exit 9)\n" + "x".repeat(400) + "\n"});
  put(path.join(runs, "qwen2.5-0.5b/v0-20261129-081500/checkpoint-100/DONE"), '{"resumable":true,"files":{"model":123456789}}');
  put(path.join(runs, "qwen2.5-0.5b/v0-20261129-081500/samples.jsonl"), JSON.stringify({step: 3, prompt: "What is 2+3?", completion: "5 ".repeat(80), reward: 1, rewards: {accuracy: 1}, advantage: 0.3}) + "\n");
}

const QUESTION = "echo ## 结果 Result\n\nA paragraph with `code`, **bold** and averylongwordwithoutanyspaces".padEnd(140, "x") + "\n\n```cpp\nint main() { return 0; }  // " + "long ".repeat(30) + "\n```\n\n| one | two | three | four | five |\n|---|---|---|---|---|\n| " + "wide cell | ".repeat(5);

/** Elements that stick out of the screen, but for those in something that scrolls. */
const sticksOut = (page) => page.evaluate(() => [...document.querySelectorAll("body *")].filter((element) => {
  const {right, left, width} = element.getBoundingClientRect();
  if (!width || (right <= innerWidth + 1 && left >= -1) || element.closest("svg, .off-screen, .skip")) return false;
  for (let up = element.parentElement; up; up = up.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX)) return up === document.body;
  return true;
}).map((element) => element.outerHTML.slice(0, 120)));

async function look(page, name) {
  same(await sticksOut(page), [], name);
  check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name + " is wider than the screen");
  const cut = await page.evaluate(() => [...document.querySelectorAll(".composer textarea")].filter((area) => area.offsetParent && area.scrollHeight > area.clientHeight + 1).length);
  same(cut, 0, name + ": what is to be typed, or its hint, is cut");
  const facts = await page.evaluate(() => [...document.querySelectorAll(".run-card .facts")].filter((line) => line.scrollWidth > line.clientWidth).map((line) => line.textContent));
  same(facts, [], name + ": what a run has done is cut");
  if (!process.env.DANLU_PICTURES) return;
  fs.mkdirSync(process.env.DANLU_PICTURES, {recursive: true});
  await page.screenshot({path: path.join(process.env.DANLU_PICTURES, name + ".png")});
}

async function everything(bench, width, colorScheme, locale) {
  const page = await bench.page({width, height: width < 500 ? 740 : 1000, colorScheme, locale});
  const name = (part) => `${part}_${width}_${colorScheme}_${locale.slice(0, 2)}`;
  await page.goto(bench.mock.url + "/#chat");
  await page.locator('option[value="tiny"]').first().waitFor({state: "attached"});
  await look(page, name("welcome"));
  const send = page.locator(`.composer button[aria-label="${locale === "zh-CN" ? "发送" : "Send"}"]`);
  for (const text of ["think", "tool", QUESTION]) {
    await page.fill(".composer textarea", text);
    await page.keyboard.press("Enter");
    await page.waitForTimeout(60);
    await send.waitFor();
  }
  await look(page, name("chat"));
  await page.locator(".talk-head .icon-button").nth(-2).click();
  await look(page, name("compare"));
  await page.locator(".talk-head .icon-button").last().click();
  await look(page, name("chat-settings"));
  await page.goto(bench.mock.url + "/#runs");
  await page.locator(".run-card").first().waitFor();
  await look(page, name("runs"));
  const cards = page.locator(".run-card");
  if (width < 500) {
    await cards.last().locator(".name").click();
  } else {
    for (const card of await cards.all()) if (!(await card.locator("input").isChecked())) await card.locator("input").click();
  }
  await page.locator(".chart").first().waitFor();
  for (const tab of ["curves", "settings", "log", "checkpoints", "answers"]) {
    await page.locator(`[data-tab="${tab}"]`).click();
    await page.locator({curves: ".chart", settings: ".settings-table td", log: ".log-text", checkpoints: ".panel th, .panel .hint", answers: ".sample, .panel .empty"}[tab]).first().waitFor();
    await look(page, name(tab));
  }
}

export const flows = {
  async fills(bench) {
    fill(bench);
  },
  narrowAndLight: (bench) => everything(bench, 360, "light", "en-US"),
  narrowAndDark: (bench) => everything(bench, 360, "dark", "zh-CN"),
  wideAndLight: (bench) => everything(bench, 1600, "light", "zh-CN"),
  wideAndDark: (bench) => everything(bench, 1600, "dark", "en-US"),
};
