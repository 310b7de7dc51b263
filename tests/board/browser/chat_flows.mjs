import fs from "node:fs";
import path from "node:path";
import {fileURLToPath} from "node:url";
import {check, same, until} from "./setup.mjs";
import {startMock} from "./mock_server.mjs";

const texts = (page, selector) => page.locator(selector).allInnerTexts();
const say = async (page, text) => {
  await page.fill(".composer textarea", text);
  await page.keyboard.press("Enter");
};
const isIdle = (page) => page.locator('.composer button[aria-label="Send"]').waitFor();
/** Says it, and waits for the end of the answer. */
const ask = async (page, text) => {
  await say(page, text);
  await page.locator(".of-assistant").last().waitFor();
  await isIdle(page);
};
const open = async (bench, options) => {
  const page = await bench.page(options);
  await page.goto(bench.mock.url + "/#chat");
  await page.locator('option[value="tiny"]').first().waitFor({state: "attached"});
  bench.mock.log.length = 0;
  return page;
};
/** The simplest picture that browsers read. */
function blackBitmap(width, height) {
  const bytes = Buffer.alloc(54 + width * height * 3); // rows of a multiple of 4 bytes
  bytes.write("BM");
  for (const [at, value] of [[2, bytes.length], [10, 54], [14, 40], [18, width], [22, height]]) bytes.writeUInt32LE(value, at);
  bytes.writeUInt16LE(1, 26);
  bytes.writeUInt16LE(24, 28);
  return bytes;
}
const lastRequest = (bench) => bench.mock.log.at(-1);

export const flows = {
  async anAnswerStreamsAndIsKept(bench) {
    const page = await open(bench);
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    check(!(await page.locator(".talk-body").innerText()).includes("word399"), "it came all at once");
    await page.keyboard.press("Escape");
    await isIdle(page);
    check((await page.locator(".answer .foot").innerText()).includes("stopped"), "it does not say that it was stopped");
    await until(() => bench.mock.log.aborted === 1, "the server saw the end");
    const before = await page.locator(".answer .markdown").innerText();
    await page.reload();
    await page.locator(".answer .markdown").first().waitFor();
    same(await texts(page, ".answer .markdown"), [before], "after a reload");
  },

  async whatCameIsKeptWhereThePageGoes(bench) {
    const page = await open(bench);
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    await page.reload();
    await page.locator(".answer .markdown").waitFor();
    check((await page.locator(".answer .markdown").innerText()).includes("word3"), "what came is gone");
    check((await page.locator(".answer .foot").innerText()).includes("stopped"), "it does not say that it was stopped");
  },

  async textThatMarkdownCannotDoIsShownAsItIs(bench) {
    const page = await open(bench);
    await ask(page, "echo " + "> ".repeat(2000) + "ground");
    const isShown = async () => check((await page.locator(".answer .markdown").innerText()).includes("ground"), "the answer is not shown");
    await isShown();
    await page.reload();
    await isShown();
    await ask(page, "echo **fine**");
    same(await texts(page, ".markdown strong"), ["fine"], "the conversation goes on");
  },

  async theButtonStopsToo(bench) {
    const page = await open(bench);
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    await page.click('.composer button[aria-label="Stop"]');
    await isIdle(page);
  },

  async markdownIsShownAndCodeCopied(bench) {
    const page = await open(bench);
    await ask(page, "echo # Title\n\n**bold** [link](https://example.com/a)\n\n```python\nprint('hi')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |");
    same(await texts(page, ".markdown h1"), ["Title"], "heading");
    same(await texts(page, ".markdown strong"), ["bold"], "bold");
    same(await texts(page, ".markdown td"), ["1", "2"], "table");
    same(await texts(page, ".code-head span"), ["python"], "language");
    same(await page.locator(".markdown a").getAttribute("rel"), "noopener noreferrer nofollow", "rel");
    await page.click(".code-head button");
    same(await page.evaluate(() => navigator.clipboard.readText()), "print('hi')", "copied");
    const foot = await page.locator(".of-assistant .foot").innerText();
    check(/11 \+ \d+ tokens/.test(foot) && /tokens\/s/.test(foot), "no figures: " + foot);
  },

  async editingEndsTheAnswerUnderWay(bench) {
    const page = await open(bench);
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    await page.locator('.of-user button[aria-label="Edit"]').first().click();
    await page.fill(".editor textarea", "echo anew");
    await page.click(".editor .primary");
    await page.locator(".markdown", {hasText: "anew"}).waitFor();
    await isIdle(page);
    same(await texts(page, ".said"), ["echo anew"], "questions");
    same(lastRequest(bench).messages, [{role: "user", content: "echo anew"}], "messages");
    await page.reload();
    await page.locator(".said").first().waitFor();
    same(await texts(page, ".said"), ["echo anew"], "after a reload");
  },

  async whatIsDeletedWhileItIsAnsweredIsGone(bench) {
    const page = await open(bench);
    await page.evaluate(() => localStorage.setItem("danlu.chat.lost", "{}"));
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    await page.locator('.chat-list button[aria-label="Delete this conversation"]').first().click();
    await page.click("dialog .primary");
    await until(() => bench.mock.log.aborted > 0, "the server saw the end");
    const kept = () => page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("danlu.chat.")));
    await page.waitForTimeout(300);
    same(await kept(), ["danlu.chat.lost"], "what is kept");
    await page.reload();
    await page.locator(".composer textarea").waitFor();
    same(await kept(), [], "what no list names");
  },

  async picturesGoWithAMessage(bench) {
    const page = await open(bench);
    const bitmap = blackBitmap(1400, 700);
    const input = page.locator('.composer input[type="file"]');
    await input.setInputFiles([{name: "a.bmp", mimeType: "image/bmp", buffer: bitmap}, {name: "b.bmp", mimeType: "image/bmp", buffer: bitmap}, {name: "c.png", mimeType: "image/png", buffer: Buffer.from("no picture")}]);
    await page.getByText("c.png is no picture").waitFor();
    same(await page.locator(".tray img").count(), 2, "pictures before they are sent");
    await page.click('button[aria-label="Remove picture 2"]');
    await ask(page, "echo a square");
    const [picture, text] = lastRequest(bench).messages.at(-1).content;
    same([picture.type, text], ["image_url", {type: "text", text: "echo a square"}], "the parts");
    check(picture.image_url.url.startsWith("data:image/jpeg;base64,"), "no picture was sent");
    same(await page.locator(".tray img").count(), 0, "the tray afterwards");
    await page.reload();
    const shown = page.locator(".of-user .picture img");
    same(await shown.evaluate((image) => image.decode().then(() => [image.naturalWidth, image.naturalHeight])), [1280, 640], "the picture of a turn");
    await page.locator('.of-user button[aria-label="Edit"]').click();
    await page.fill(".editor textarea", "echo again");
    await page.click(".editor .primary");
    await isIdle(page);
    same(lastRequest(bench).messages.at(-1).content.length, 2, "an edit keeps the picture");
    await page.selectOption('select[aria-label="Model"]', "tiny-lora");
    check(!(await page.locator('button[aria-label="Add a picture"]').isVisible()), "a model that does not see takes one");
  },

  async editingForgetsWhatCameAfter(bench) {
    const page = await open(bench);
    await ask(page, "echo one");
    await ask(page, "echo two");
    await page.locator('.of-user button[aria-label="Edit"]').first().click();
    await page.fill(".editor textarea", "echo three");
    await page.click(".editor .primary");
    await page.locator(".markdown", {hasText: "three"}).waitFor();
    await isIdle(page);
    same(await texts(page, ".said"), ["echo three"], "questions");
    same(lastRequest(bench).messages, [{role: "user", content: "echo three"}], "messages");
  },

  async anAnswerIsMadeAgain(bench) {
    const page = await open(bench);
    await ask(page, "echo one");
    await page.click('button[aria-label="Answer again"]');
    await until(() => bench.mock.log.length === 2, "a second request");
    await isIdle(page);
    same(lastRequest(bench).messages, [{role: "user", content: "echo one"}], "messages");
    same(await page.locator(".of-assistant").count(), 1, "answers");
  },

  async thoughtsAreFolded(bench) {
    const page = await open(bench);
    await ask(page, "think");
    same(await page.locator(".fold").getAttribute("open"), null, "folded");
    same(await texts(page, ".answer .markdown"), ["It is 42."], "answer");
    await page.click(".fold summary");
    check((await page.locator(".fold .inside").innerText()).includes("Let me see."), "thoughts");
    await ask(page, "echo more");
    same(lastRequest(bench).messages[1], {role: "assistant", content: "It is 42."}, "thoughts are not sent back");
  },

  async aToolIsCalledAndAnswered(bench) {
    const page = await open(bench);
    await page.click('button[aria-label="Settings"]');
    await page.fill('[data-name="tools"]', '[{"type":"function","function":{"name":"weather"}}]');
    await ask(page, "tool");
    check((await page.locator(".fold summary").innerText()).includes("Calls weather"), "the call");
    await page.click(".fold summary");
    check((await page.locator(".fold pre").innerText()).includes('"city": "Xi\'an"'), "its arguments");
    same(lastRequest(bench).tools, [{type: "function", function: {name: "weather"}}], "tools");
    await page.fill(".results textarea", "sunny");
    await page.click(".results button");
    await page.getByText("The tool says: sunny").waitFor();
    same(lastRequest(bench).messages.slice(1), [
      {role: "assistant", content: "", tool_calls: [{id: "call-1", type: "function", function: {name: "weather", arguments: '{"city": "Xi\'an"}'}}]},
      {role: "tool", tool_call_id: "call-1", content: "sunny"}], "messages");
  },

  async toolsThatAreNoJsonAreSaid(bench) {
    const page = await open(bench);
    await page.click('button[aria-label="Settings"]');
    await page.fill('[data-name="tools"]', "[{");
    await say(page, "echo x");
    await page.getByText("Tools:", {exact: false}).waitFor();
    same(bench.mock.log.length, 0, "requests");
  },

  async settingsReachTheServer(bench) {
    const page = await open(bench);
    await page.click('button[aria-label="Settings"]');
    await page.fill('[data-name="system"]', "Be brief.");
    await page.fill('[data-name="temperature"]', "0");
    await page.fill('[data-name="max_tokens"]', "77");
    await ask(page, "settings");
    const {temperature, max_tokens, messages, stream, top_p} = lastRequest(bench);
    same({temperature, max_tokens, stream, top_p, roles: messages.map((message) => message.role)},
      {temperature: 0, max_tokens: 77, stream: true, top_p: undefined, roles: ["system", "user"]}, "request");
    await page.reload();
    same(await page.inputValue('[data-name="system"]'), "Be brief.", "kept");
  },

  async twoModelsAnswerSideBySide(bench) {
    const page = await open(bench);
    await page.click('button[aria-label="Compare two models"]');
    await ask(page, "model");
    same(await texts(page, ".answer .markdown"), ["I am tiny.", "I am tiny-lora."], "answers");
    await ask(page, "echo more");
    const sent = bench.mock.log.slice(-2).map((body) => [body.model, body.messages[1].content]).sort();
    same(sent, [["tiny", "I am tiny."], ["tiny-lora", "I am tiny-lora."]], "each has its own past");
    await page.locator('.answer button[aria-label="Answer again"]').nth(1).click();
    await until(() => bench.mock.log.length === 5, "one request more");
    same(lastRequest(bench).model, "tiny-lora", "who answers again");
  },

  async errorsAreSaid(bench) {
    const page = await open(bench);
    await ask(page, "fail");
    check((await page.locator(".answer .problem").last().innerText()).includes("9000 tokens, the model takes 4096"), "refused");
    bench.problems = []; // the browser notes the 400
    await ask(page, "break");
    check((await page.locator(".of-assistant").last().innerText()).includes("the engine has ended"), "in the stream");
    await ask(page, "cut");
    check((await page.locator(".of-assistant .problem").last().innerText()).length > 10, "cut");
    bench.problems = []; // and what was cut
    await ask(page, "echo after all");
    check(!lastRequest(bench).messages.some((message) => message.content === ""), "an answer that failed is sent back");
  },

  async conversationsAreKeptAndDeleted(bench) {
    const page = await open(bench);
    await ask(page, "echo first");
    await page.getByRole("button", {name: "New chat"}).click();
    await ask(page, "echo second");
    same(await texts(page, ".chat-list li .title"), ["echo second", "echo first"], "list");
    await page.locator(".chat-list li .title", {hasText: "first"}).click();
    same(await texts(page, ".said"), ["echo first"], "the first one");
    await page.locator(".chat-list li", {hasText: "first"}).hover();
    await page.locator(".chat-list li", {hasText: "first"}).locator(".icon-button").click();
    await page.getByRole("button", {name: "Delete", exact: true}).click();
    await page.reload();
    await page.locator(".chat-list li .title").first().waitFor();
    same(await texts(page, ".chat-list li .title"), ["echo second"], "after deleting");
  },

  async whatAnotherProgramLeftInTheStorageHarmsNothing(bench) {
    const page = await open(bench);
    await page.evaluate(() => {
      localStorage.setItem("danlu.chats", '["a","b",3]');
      localStorage.setItem("danlu.chat.a", '{"id":"a","turns":"x"}');
      localStorage.setItem("danlu.chat.b", "{{{");
      localStorage.setItem("danlu.theme", '"<b>"');
      localStorage.setItem("danlu.charts", "7");
    });
    await page.reload();
    await ask(page, "echo fine");
    same(await texts(page, ".answer .markdown"), ["fine"], "answer");
  },

  async anInputMethodsEnterSendsNothing(bench) {
    const page = await open(bench);
    await page.fill(".composer textarea", "ni hao");
    await page.locator(".composer textarea").evaluate((area) => area.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true})));
    same(await page.locator(".turn").count(), 0, "turns");
    await page.keyboard.press("Shift+Enter");
    same(await page.inputValue(".composer textarea"), "ni hao\n", "a new line");
  },

  async theKeyIsAskedFor(bench) {
    const guarded = await startMock({board: bench.board.url, key: "the key"});
    const page = await bench.page();
    await page.goto(guarded.url);
    await page.locator("dialog.key").waitFor();
    await page.fill("#key-field", "wrong");
    await page.keyboard.press("Enter");
    await page.getByText("refused this key").waitFor();
    await page.fill("#key-field", "the key");
    await page.keyboard.press("Enter");
    await page.locator('option[value="tiny"]').first().waitFor({state: "attached"});
    await ask(page, "echo open");
    same(await texts(page, ".answer .markdown"), ["open"], "answer");
    check(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("the key"), "the key is kept for good");
    bench.problems = []; // the browser notes each 401
    await page.close();
    await guarded.close();
  },

  async itSpeaksBothLanguages(bench) {
    const page = await open(bench, {locale: "zh-CN"});
    same(await page.locator("header nav a").allInnerTexts(), ["对话", "训练"], "the browser's language");
    await say(page, "slow");
    await page.getByText("word3", {exact: false}).waitFor();
    await page.getByRole("button", {name: "English"}).click(); // while it streams
    same(await page.locator("header nav a").allInnerTexts(), ["Chat", "Runs"], "switched");
    const length = (await page.locator(".answer .markdown").innerText()).length;
    await until(async () => (await page.locator(".answer .markdown").innerText()).length > length, "the stream goes on");
    await page.keyboard.press("Escape");
    await page.reload();
    same(await page.locator("header nav a").allInnerTexts(), ["Chat", "Runs"], "kept");
  },

  async everyTextIsThereInBothLanguages() {
    const js = path.join(process.env.DANLU_PAGE ?? path.join(path.dirname(fileURLToPath(import.meta.url)), "../../../page"), "js");
    const {TEXTS} = await import(path.join(js, "texts.js"));
    const sources = fs.readdirSync(js, {recursive: true}).filter((file) => file.endsWith(".js") && file !== "texts.js").map((file) => fs.readFileSync(path.join(js, file), "utf8")).join("\n");
    const used = new Set([...sources.matchAll(/\bt\("([a-z_A-Z0-9]+)"/g)].map((match) => match[1]));
    for (const name of used) if (!name.endsWith("_")) check(TEXTS[name], `no text ${name}`);
    for (const [name, pair] of Object.entries(TEXTS)) {
      check(pair.length === 2 && pair.every((text) => text), `${name} is not there in both`);
      const places = (text) => [...new Set(text.match(/\{\d\}/g) ?? [])].sort().join();
      same(places(pair[0]), places(pair[1]), name);
      const group = name.includes("_") ? `"${name.split("_")[0]}_"` : `"${name}"`;
      check(used.has(name) || sources.includes(`"${name}"`) || sources.includes(group), `nothing says ${name}`);
    }
  },

  async theKeyboardIsEnough(bench) {
    const page = await open(bench);
    same(await page.evaluate(() => document.querySelector("a, button").textContent), "Skip to the content", "the first stop");
    const seen = new Set();
    for (let i = 0; i < 30; ++i) {
      await page.keyboard.press("Tab");
      seen.add(await page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent));
    }
    for (const stop of ["Runs", "New chat", "Model", "Settings", "Message", "Send"]) check(seen.has(stop), `no way to ${stop}: ${[...seen]}`);
  },
};
