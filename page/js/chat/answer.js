// One answer of one model: what is asked for, and what comes back piece by piece.
import {postForEvents} from "../api.js";

/** {model, content, reasoning, toolCalls: [{id, name, arguments}], finish, error, stopped, usage, firstAfter, seconds} */
export function emptyAnswer(model) {
  return {model, content: "", reasoning: "", toolCalls: [], finish: null, error: null, stopped: false, usage: null, firstAfter: null, seconds: null};
}

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "repetition_penalty", "presence_penalty", "seed"];
export const SAMPLING_NUMBERS = NUMBERS;

/** A text, or with pictures OpenAI's list of parts. */
function contentOf(turn) {
  if (!turn.pictures?.length) return turn.content;
  return [...turn.pictures.map((url) => ({type: "image_url", image_url: {url}})), {type: "text", text: turn.content}];
}

/** The messages that lane `lane` of a conversation has seen so far. */
export function messagesFor(conversation, lane) {
  const messages = [];
  if (conversation.system.trim()) messages.push({role: "system", content: conversation.system});
  for (const turn of conversation.turns) {
    if (turn.role === "user") messages.push({role: "user", content: contentOf(turn)});
    if (turn.role === "tool" && turn.lane === lane) messages.push({role: "tool", tool_call_id: turn.callId, content: turn.content});
    if (turn.role !== "assistant") continue;
    const answer = turn.answers[lane] ?? turn.answers[0];
    if (answer.error && !answer.content) continue;
    const message = {role: "assistant", content: answer.content};
    if (answer.toolCalls.length)
      message.tool_calls = answer.toolCalls.map((call) => ({id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}));
    messages.push(message);
  }
  return messages;
}

/** The body of a request. Throws a SyntaxError for tools that are no JSON. */
export function requestFor(conversation, model, messages) {
  const {sampling} = conversation;
  const body = {model, messages, stream: true, stream_options: {include_usage: true}};
  for (const name of NUMBERS) {
    if (sampling[name] !== undefined && sampling[name] !== "") body[name] = Number(sampling[name]);
  }
  const stops = (sampling.stop ?? "").split("\n").filter((line) => line !== "");
  if (stops.length) body.stop = stops;
  if (sampling.thinking) body.chat_template_kwargs = {enable_thinking: sampling.thinking === "on"};
  if (conversation.tools?.trim()) {
    const tools = JSON.parse(conversation.tools);
    if (!Array.isArray(tools)) throw new SyntaxError("[…]");
    if (tools.length) body.tools = tools;
  }
  return body;
}

function takeToolCalls(answer, deltas) {
  for (const delta of deltas) {
    const at = delta.index ?? 0;
    answer.toolCalls[at] ??= {id: "", name: "", arguments: ""};
    const call = answer.toolCalls[at];
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.name += delta.function.name;
    if (delta.function?.arguments) call.arguments += delta.function.arguments;
  }
}

/** Takes one chunk of the stream. Whether it brought something that is shown. */
export function takeChunk(answer, chunk) {
  if (chunk.error) {
    answer.error = typeof chunk.error === "string" ? chunk.error : (chunk.error.message ?? JSON.stringify(chunk.error));
    return true;
  }
  if (chunk.usage) answer.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return false;
  const delta = choice.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning) answer.reasoning += reasoning;
  if (delta.content) answer.content += delta.content;
  if (delta.tool_calls) takeToolCalls(answer, delta.tool_calls);
  if (choice.finish_reason) answer.finish = choice.finish_reason;
  return Boolean(reasoning || delta.content || delta.tool_calls);
}

/** Fills the answer until the stream ends, `signal` aborts or something fails; never throws. */
export async function streamAnswer(answer, body, signal, onChange) {
  const begun = performance.now();
  const elapsed = () => (performance.now() - begun) / 1000;
  let done = false;
  try {
    await postForEvents("v1/chat/completions", body, signal, ({data}) => {
      if (data === "[DONE]") {
        done = true;
        return;
      }
      let chunk = null;
      try {
        chunk = JSON.parse(data);
      } catch { /* no chunk */ }
      if (chunk === null || typeof chunk !== "object") return;
      if (takeChunk(answer, chunk) && answer.firstAfter === null) answer.firstAfter = elapsed();
      onChange();
    });
    if (!done && !answer.finish && !answer.error) answer.error = "lost";
  } catch (error) {
    if (signal.aborted) answer.stopped = true;
    else answer.error = error.message || String(error);
  }
  answer.toolCalls = answer.toolCalls.filter(Boolean);
  answer.seconds = elapsed();
  onChange();
}

/** Tokens a second from the first one on; null where too little is known. */
export function tokensPerSecond(answer) {
  const count = answer.usage?.completion_tokens;
  if (!count || answer.seconds === null || answer.firstAfter === null) return null;
  const seconds = answer.seconds - answer.firstAfter;
  return count > 1 && seconds > 0.001 ? (count - 1) / seconds : null;
}
