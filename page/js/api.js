// Requests to the server that this page is from.
import {readEvents} from "./sse.js";

let key = "";
try {
  key = sessionStorage.getItem("danlu.key") ?? "";
} catch { /* kept by this page alone */ }

const whenRefused = new Set();

/** Called when the server asks for a key, or for another one. */
export function onRefused(callback) {
  whenRefused.add(callback);
}

export function apiKey() {
  return key;
}

/** Kept until the browser's tab is closed. */
export function setApiKey(text) {
  key = text;
  try {
    sessionStorage.setItem("danlu.key", text);
  } catch { /* kept by this page alone */ }
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = {...(options.headers ?? {})};
  if (key) headers.Authorization = "Bearer " + key;
  const response = await fetch(path, {...options, headers, credentials: "omit"});
  if (response.ok) return response;
  const text = await response.text();
  let message = text.slice(0, 2000);
  try {
    const error = JSON.parse(text).error;
    message = typeof error === "string" ? error : (error.message ?? message);
  } catch { /* no JSON: the text itself */ }
  if (response.status === 401) whenRefused.forEach((callback) => callback());
  throw new ApiError(response.status, message || response.statusText || String(response.status));
}

export async function getJson(path, signal) {
  return (await request(path, {signal})).json();
}

/** Posts JSON; onEvent gets the data of each event, as text. */
export async function postForEvents(path, body, signal, onEvent) {
  const response = await request(path, {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify(body),
    signal,
  });
  await readEvents(response, onEvent);
}

/** Events of a GET, again and again until `signal`; onState(true or false): whether it is heard. */
export async function followEvents(path, signal, onEvent, onState) {
  for (let wait = 1000; !signal.aborted; wait = Math.min(2 * wait, 15000)) {
    try {
      const response = await request(path, {signal});
      onState(true);
      wait = 500;
      await readEvents(response, onEvent);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) return onState(false); // until there is another key
    }
    onState(false);
    await new Promise((done) => {
      const timer = setTimeout(done, wait);
      signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, {once: true});
    });
  }
}
