// What others write is data: in answers, names of runs, files and numbers, lines of logs.
import fs from "node:fs";
import path from "node:path";
import {check, put, putRun, same, step, until} from "./setup.mjs";

const PROBES = [
  "<script>window.hit=1</script>",
  "<img src=x onerror=window.hit=1>",
  "<svg onload=window.hit=1>",
  "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
  "<a href='javascript:window.hit=1'>a</a>",
  "[a](javascript:window.hit=1)",
  "[a](JaVaScRiPt&colon;window.hit=1)",
  "[a](data:text/html,<script>window.hit=1</script>)",
  "[a](vbscript:x)",
  "![x](https://example.com/leak?secret)",
  "![x](javascript:window.hit=1)",
  "<https://example.com/\"onmouseover=\"window.hit=1>",
  "[a](https://example.com/ \"onmouseover=window.hit=1 x=\")",
  "```\"><img src=x onerror=window.hit=1>\ncode</code></pre><img src=x onerror=window.hit=1>\n```",
  "`</code><img src=x onerror=window.hit=1>`",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=x onerror=window.hit=1&gt;\">",
  "<form id=body name=attributes><input name=nodeName></form>",
  "<style>*{display:none}</style><link rel=stylesheet href=https://example.com/x.css>",
  "<meta http-equiv=refresh content='0;url=https://example.com'>",
  "<base href=https://example.com/>",
  "| a |\n|---|\n| <img src=x onerror=window.hit=1> |",
  "- [ ] <input autofocus onfocus=window.hit=1>",
  "[x]: javascript:window.hit=1\n\n[x]",
  "<details open ontoggle=window.hit=1>",
  "&lt;img src=x onerror=window.hit=1&gt;",
];

const isUnharmed = async (page) => {
  check(await page.evaluate(() => window.hit === undefined), "a probe has run");
  const found = await page.evaluate(() => [...document.querySelectorAll("main *, dialog *")].filter((element) =>
    ["SCRIPT", "IMG", "IFRAME", "OBJECT", "EMBED", "FORM", "STYLE", "LINK", "META", "BASE", "MATH"].includes(element.tagName) && !element.closest(".composer, .results, .editor") ||
    [...element.attributes].some((attribute) => attribute.name.startsWith("on")) ||
    (element.tagName === "A" && !/^(https?:|mailto:|#)/.test(element.getAttribute("href") ?? "#"))).map((element) => element.outerHTML.slice(0, 200)));
  same(found, [], "elements that should not be there");
};

export const flows = {
  async answersDoNothing(bench) {
    const page = await bench.page();
    await page.goto(bench.mock.url + "/#chat");
    await page.locator('option[value="tiny"]').first().waitFor({state: "attached"});
    for (const probe of PROBES) {
      await page.fill(".composer textarea", "echo " + probe);
      await page.keyboard.press("Enter");
      await page.locator('.composer button[aria-label="Stop"]').waitFor({timeout: 1000}).catch(() => {});
      await page.locator('.composer button[aria-label="Send"]').waitFor();
    }
    await isUnharmed(page);
    for (const element of await page.locator(".markdown *").all()) await element.dispatchEvent("mouseover");
    await page.reload();
    await page.locator(".answer").first().waitFor();
    await isUnharmed(page);
    check((await page.locator(".answer").first().innerText()).includes("<script>window.hit=1</script>"), "what was said is shown");
  },

  async thoughtsToolsErrorsAndModelNamesDoNothing(bench) {
    const {startMock} = await import("./mock_server.mjs");
    const evil = "<img src=x onerror=window.hit=1>";
    const mock = await startMock({board: bench.board.url, models: [evil, "</option></select>" + evil]});
    const page = await bench.page();
    await page.goto(mock.url + "/#chat");
    await page.locator("select option").first().waitFor({state: "attached"});
    await page.click('button[aria-label="Compare two models"]');
    for (const text of ["think", "tool", "fail", "echo " + evil]) {
      await page.fill(".composer textarea", text);
      await page.keyboard.press("Enter");
      await page.locator('.composer button[aria-label="Send"]').waitFor();
    }
    await until(async () => (await page.locator(".answer").count()) === 8, "all answers");
    await isUnharmed(page);
    bench.problems = bench.problems.filter((text) => !text.includes("400")); // the browser notes it
    await page.close();
    await mock.close();
  },

  async runsDoNothing(bench) {
    const evil = "<img src=x onerror=window.hit=1>";
    const run = path.join(bench.runs, evil.replace("/", ""));
    putRun(run, 10, {
      settings: {[evil]: evil, output_dir: "</td><script>window.hit=1</script>"},
      log: PROBES.join("\n") + "\n\x1b[31mred\x1b[0m\u2028\n",
      name: (n) => step(n, 5 - n / 4, {[evil]: n, "</script><script>window.hit=1</script>": n, "__proto__": {polluted: 1}, constructor: n, remaining_time: evil}),
    });
    put(path.join(run, "samples.jsonl"), PROBES.map((probe, n) => JSON.stringify({step: evil, prompt: probe, completion: probe, reward: evil, rewards: {[evil]: n}, advantage: {a: 1}}) + "\n").join(""));
    put(path.join(run, "checkpoint-7/DONE"), '{"files":{"<b>":1}}');
    put(path.join(run, "rank-1.log"), evil);
    const page = await bench.page();
    await page.goto(bench.mock.url + "/#runs");
    await page.locator(".run-card .name", {hasText: "<img"}).click();
    await page.locator(".chart").first().waitFor();
    for (const button of await page.locator(".more button").all()) await button.click();
    await page.locator(".chart h3", {hasText: "<img"}).waitFor();
    for (const tab of ["Settings", "Log", "Checkpoints", "Answers"]) {
      await page.getByRole("tab", {name: tab}).click();
      await page.locator({Settings: ".settings-table td", Log: ".log-text", Checkpoints: ".panel td", Answers: ".sample"}[tab]).first().waitFor();
      await isUnharmed(page);
    }
    check(await page.evaluate(() => ({}).polluted === undefined), "a prototype was changed");
    await isUnharmed(page);
  },

  async curvesOfAnyNameGoOn(bench) {
    const run = path.join(bench.runs, "oddly named");
    putRun(run, 10);
    const page = await bench.page();
    await page.goto(bench.mock.url + "/#runs");
    await page.locator(".run-card .name", {hasText: "oddly named"}).click();
    await page.locator(".chart").first().waitFor();
    // They come later, when curves are known already: names that every object has.
    for (let n = 11; n <= 14; ++n)
      fs.appendFileSync(path.join(run, "logging.jsonl"), step(n, 2.5, JSON.parse('{"constructor": 14, "toString": 14, "__proto__": 14}')));
    await page.locator(".more button", {hasText: "constructor"}).click();
    const chart = page.locator(".chart", {has: page.locator("h3", {hasText: /^constructor$/})});
    await until(async () => (await chart.locator(".values span").allInnerTexts()).some((text) => text === "14"), "its last value");
    await isUnharmed(page);
    await page.close();
  },

  async theAddressDoesNothing(bench) {
    const page = await bench.page();
    for (const hash of ["#runs/<img src=x onerror=window.hit=1>/curves", "#runs/__proto__,constructor/log", "#javascript:window.hit=1", "#runs/../../x"]) {
      await page.goto(bench.mock.url + "/" + hash);
      await page.locator("header nav a").first().waitFor();
      await isUnharmed(page);
    }
  },

  async thePolicyHolds(bench) {
    const page = await bench.page();
    await page.goto(bench.board.url);
    await page.locator("header nav a").first().waitFor();
    const results = await page.evaluate(async () => {
      const script = document.createElement("script");
      let inline = "refused";
      try {
        script.textContent = "window.hit = 1";
        document.body.append(script);
      } catch { /* trusted types */ }
      if (window.hit) inline = "ran";
      let html = "refused";
      try {
        document.createElement("div").innerHTML = "<b>x</b>";
        html = "taken";
      } catch { /* trusted types */ }
      const elsewhere = await fetch("https://example.com/").then(() => "fetched", () => "refused");
      return {inline, html, elsewhere};
    });
    same(results, {inline: "refused", html: "refused", elsewhere: "refused"}, "policy");
    bench.problems = []; // that is what it complains about
    bench.foreign = bench.foreign.filter((url) => url !== "https://example.com/");
  },
};
