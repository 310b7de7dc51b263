// The frame of the page: which parts there are, language, colours, the key.
import {apiKey, getJson, onRefused, setApiKey} from "./api.js";
import {ChatView} from "./chat/view.js";
import {el, icon, iconButton, memory} from "./dom.js";
import {currentLanguage, switchLanguage, t} from "./i18n.js";
import {RunsView} from "./runs/view.js";

const THEMES = ["auto", "light", "dark"];
let theme = THEMES.includes(memory.get("theme")) ? memory.get("theme") : "auto";
const applyTheme = () => {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("danlu-theme"));
};
applyTheme();

/** What the server has; without an answer the page still comes up and says what is wrong. */
async function serverParts() {
  try {
    return await getJson("api/page");
  } catch (error) {
    return {runs: false, chat: false, version: "", problem: error.message};
  }
}

class Page {
  #about;
  #views = {};
  #main = el("main", {id: "main"});
  #wanted = "";

  constructor(about) {
    this.#about = about;
    if (about.chat) this.#views.chat = new ChatView();
    if (about.runs) this.#views.runs = new RunsView();
    window.addEventListener("hashchange", () => this.#show());
    onRefused(() => this.#askForKey(true));
    this.draw();
    if (about.needs_key && !apiKey()) this.#askForKey(false);
  }

  draw() {
    document.title = "Danlu";
    const places = Object.keys(this.#views);
    const links = places.map((name) => el("a", {href: "#" + name, "data-place": name, text: t(name)}));
    const header = el("header", {class: "top"},
      el("a", {class: "brand", href: "#" + (places[0] ?? "")}, el("img", {src: "icon.svg", alt: "", width: 22, height: 22}), el("span", {text: "Danlu"})),
      el("nav", {"aria-label": t("parts")}, links),
      el("span", {class: "grow"}),
      this.#about.needs_key && iconButton("key", t("apiKey"), () => this.#askForKey(false)),
      el("button", {type: "button", class: "quiet language", lang: currentLanguage() === "en" ? "zh-CN" : "en", onclick: () => {
        switchLanguage();
        this.draw();
      }, text: currentLanguage() === "en" ? "中文" : "English"}),
      this.#themeButton());
    document.body.replaceChildren(el("a", {class: "skip", href: "#main", text: t("skip"), onclick: (event) => {
      event.preventDefault();
      this.#main.tabIndex = -1;
      this.#main.focus();
    }}), header, this.#main);
    for (const view of Object.values(this.#views)) view.draw();
    this.#show();
  }

  #themeButton() {
    const label = () => t("theme") + ": " + t("theme_" + theme);
    const button = el("button", {type: "button", class: "icon-button", title: label(), "aria-label": label(), onclick: () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      memory.set("theme", theme);
      applyTheme();
      button.title = label();
      button.setAttribute("aria-label", label());
    }}, icon("sun"));
    return button;
  }

  #show() {
    const [place, ...rest] = location.hash.slice(1).split("/");
    const names = Object.keys(this.#views);
    const name = names.includes(place) ? place : names[0];
    this.#wanted = name;
    for (const link of document.querySelectorAll("header nav a"))
      link.dataset.place === name ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    if (!name) {
      this.#main.replaceChildren(el("p", {class: "empty", text: this.#about.problem ? t("noServer", this.#about.problem) : t("nothingHere")}));
      return;
    }
    const view = this.#views[name];
    if (this.#main.firstChild !== view.element) this.#main.replaceChildren(view.element);
    view.go(rest);
  }

  #askForKey(wasRefused) {
    if (document.querySelector("dialog.key")) return;
    const field = el("input", {type: "password", value: apiKey(), autocomplete: "off", id: "key-field", "aria-describedby": "key-help"});
    const dialog = el("dialog", {class: "key", "aria-label": t("apiKey"), onclose: () => dialog.remove()},
      el("form", {method: "dialog", onsubmit: () => {
        setApiKey(field.value.trim());
        for (const view of Object.values(this.#views)) view.reconnect();
      }},
        el("label", {for: "key-field", text: t("apiKey")}), field,
        el("p", {id: "key-help", class: wasRefused && apiKey() ? "problem" : "hint", text: wasRefused && apiKey() ? t("keyRefused") : t("keyHelp")}),
        el("div", {class: "buttons"},
          el("button", {type: "button", class: "quiet", text: t("cancel"), onclick: () => dialog.close()}),
          el("button", {type: "submit", class: "primary", text: t("ok")}))));
    document.body.append(dialog);
    dialog.showModal();
  }
}

new Page(await serverParts());
