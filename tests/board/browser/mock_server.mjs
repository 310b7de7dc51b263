// A server as the page finds one: the pages and runs of a `danlu board`, and a /v1 that plays a
// model. What the model says is in the question: it answers as its first word asks.
import http from "node:http";
import fs from "node:fs";
import path from "node:path";

const PIECE_MS = 15;

/** What an answer consists of, by the first word of the question. */
function script(body) {
  const last = body.messages.at(-1);
  const text = typeof last.content === "string" ? last.content : last.content.find((part) => part.type === "text").text;
  const [word, ...rest] = text.split(" ");
  const said = rest.join(" ");
  if (last.role === "tool") return {content: [`The tool says: ${text}`]};
  if (word === "echo") return {content: said.match(/[\s\S]{1,7}/g) ?? [""]};
  if (word === "think") return {reasoning: ["Let me ", "see."], content: ["It is ", "42."]};
  if (word === "tool") return {calls: [{id: "call-1", name: "weather", pieces: ['{"city"', ': "Xi\'an"}']}]};
  if (word === "slow") return {content: Array.from({length: 400}, (_, i) => `word${i} `)};
  if (word === "fail") return {status: 400, error: "the prompt has 9000 tokens, the model takes 4096"};
  if (word === "break") return {content: ["half an "], errorInStream: "the engine has ended"};
  if (word === "cut") return {content: ["half an "], isCut: true};
  if (word === "settings") return {content: [JSON.stringify({...body, messages: body.messages.length, roles: body.messages.map((message) => message.role)})]};
  if (word === "model") return {content: [`I am ${body.model}.`]};
  return {content: ["Hello", " there."]};
}

async function answer(request, response, log) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = JSON.parse(Buffer.concat(pieces).toString());
  log.push(body);
  const plan = script(body);
  if (plan.status) {
    response.writeHead(plan.status, {"Content-Type": "application/json"});
    response.end(JSON.stringify({error: {message: plan.error, type: "BadRequestError", code: plan.status}}));
    return;
  }
  response.writeHead(200, {"Content-Type": "text/event-stream"});
  let isOpen = true;
  response.on("close", () => {
    isOpen = false;
    if (!response.writableEnded) log.aborted += 1;
  });
  const send = (data) => response.write(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
  const chunk = (delta, more = {}) => send({id: "chatcmpl-1", object: "chat.completion.chunk", model: body.model, choices: [{index: 0, delta, finish_reason: null, ...more}]});
  const wait = () => new Promise((done) => setTimeout(done, PIECE_MS));
  chunk({role: "assistant", content: ""});
  let count = 0;
  for (const [name, list] of [["reasoning_content", plan.reasoning ?? []], ["content", plan.content ?? []]]) {
    for (const piece of list) {
      if (!isOpen) return;
      await wait();
      chunk({[name]: piece});
      ++count;
    }
  }
  for (const [index, call] of (plan.calls ?? []).entries()) {
    chunk({tool_calls: [{index, id: call.id, type: "function", function: {name: call.name, arguments: ""}}]});
    for (const piece of call.pieces) {
      await wait();
      chunk({tool_calls: [{index, function: {arguments: piece}}]});
      ++count;
    }
  }
  if (plan.isCut) return response.destroy();
  if (plan.errorInStream) send({error: {message: plan.errorInStream, type: "InternalServerError", code: 500}});
  else {
    chunk({}, {finish_reason: plan.calls ? "tool_calls" : "stop"});
    send({id: "chatcmpl-1", object: "chat.completion.chunk", choices: [], usage: {prompt_tokens: 11, completion_tokens: count, total_tokens: 11 + count, prompt_tokens_details: {cached_tokens: 8}}});
  }
  send("[DONE]");
  response.end();
}

const TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"};

/** Starts one on a free port. key: what /v1 and /api ask for. pageDirectory: for work on the page, its files instead of the board's. */
export async function startMock({board, key = "", models = ["tiny", "tiny-lora"], pageDirectory = process.env.DANLU_PAGE ?? "", port = 0}) {
  const log = Object.assign([], {aborted: 0});
  const forward = (request, response) => {
    const there = http.request(board + request.url, {method: request.method, headers: {...request.headers, host: new URL(board).host}}, (from) => {
      response.writeHead(from.statusCode, from.headers);
      from.pipe(response);
    });
    there.on("error", () => response.destroy());
    response.on("close", () => there.destroy());
    request.pipe(there);
  };
  const server = http.createServer((request, response) => {
    const {pathname} = new URL(request.url, "http://mock");
    const json = (value, status = 200) => {
      response.writeHead(status, {"Content-Type": "application/json"});
      response.end(JSON.stringify(value));
    };
    if (pathname === "/api/page") return json({runs: true, chat: true, needs_key: key !== "", version: "0"});
    if (key && /^\/(v1|api)\//.test(pathname) && request.headers.authorization !== `Bearer ${key}`)
      return json({error: {message: "this server asks for an API key", code: 401}}, 401);
    if (pathname === "/v1/models") return json({object: "list", data: models.map((id) => ({id, object: "model", capabilities: id === "tiny" ? ["completion", "multimodal"] : ["completion"]}))});
    if (pathname === "/v1/chat/completions") return void answer(request, response, log).catch(() => response.destroy());
    if (pageDirectory && !pathname.startsWith("/api/") && !pathname.startsWith("/lib/")) {
      const file = path.join(pageDirectory, pathname === "/" ? "index.html" : pathname);
      if (!fs.existsSync(file)) return json({error: {message: "not here", code: 404}}, 404);
      const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";
      response.writeHead(200, {"Content-Type": TYPES[path.extname(file)] + "; charset=utf-8", "Content-Security-Policy": policy});
      return response.end(fs.readFileSync(file));
    }
    forward(request, response);
  });
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return {url: `http://127.0.0.1:${server.address().port}`, log, close: () => new Promise((done) => {
    server.close(done);
    server.closeAllConnections();
  })};
}

if (process.argv[1] === new URL(import.meta.url).pathname && process.argv[2]) {
  const mock = await startMock({board: process.argv[2], port: Number(process.argv[3] ?? 0)});
  console.log(mock.url);
}
