// The page's language: a table of texts, the browser's choice, and the user's.
import {memory} from "./dom.js";
import {TEXTS} from "./texts.js";

const LANGUAGES = ["en", "zh"];

function browsersLanguage() {
  for (const wanted of navigator.languages ?? [navigator.language]) {
    const found = LANGUAGES.find((language) => wanted.toLowerCase().startsWith(language));
    if (found) return found;
  }
  return "en";
}

let language = LANGUAGES.includes(memory.get("language")) ? memory.get("language") : browsersLanguage();
document.documentElement.lang = language === "zh" ? "zh-CN" : "en";

export function currentLanguage() {
  return language;
}

export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  memory.set("language", language);
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

/** The text of that name, {0}, {1} … filled in. */
export function t(name, ...values) {
  const pair = TEXTS[name];
  const text = pair ? pair[LANGUAGES.indexOf(language)] : name;
  return text.replace(/\{(\d)\}/g, (_, place) => String(values[Number(place)] ?? ""));
}
