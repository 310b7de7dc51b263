// A model's Markdown as elements. HTML in it is shown, not obeyed; what comes out of the Markdown
// goes through DOMPurify with a short list of elements, and the page's policy allows no other way.
import {Marked} from "../lib/marked.js";
import DOMPurify from "../lib/purify.js";
import {copyButton, el} from "./dom.js";
import {t} from "./i18n.js";

const ALLOWED = {
  ALLOWED_TAGS: ["p", "br", "em", "strong", "del", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "a",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "title", "start", "align", "data-language"],
  ADD_URI_SAFE_ATTR: ["start", "align", "data-language"], // they hold no address
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.codePointAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({text}) => escaped(text),
    // A picture would tell its server that, and when, this was read.
    image: ({href, text}) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({checked}) => (checked ? "☑ " : "☐ "),
    code: ({text, lang}) => `<pre><code data-language="${escaped((lang ?? "").split(/\s/)[0].slice(0, 40))}">${escaped(text)}\n</code></pre>`,
  },
});

function decorate(fragment) {
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const language = code?.dataset.language ?? "";
    const box = el("div", {class: "code"});
    pre.replaceWith(box);
    pre.tabIndex = 0; // scrolls, so the keyboard must reach it
    box.append(
      el("div", {class: "code-head"}, el("span", {text: language}), copyButton(t("copy"), t("copied"), () => pre.textContent.replace(/\n$/, ""))),
      pre);
  }
  for (const table of fragment.querySelectorAll("table")) {
    const box = el("div", {class: "table-box"});
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

/** Texts that nest too deep for the parser are shown as they are. */
function lexed(text) {
  try {
    return marked.lexer(text);
  } catch {
    return Object.assign([{type: "plain", raw: text}], {links: {}});
  }
}

function elementsOf(token, links) {
  try {
    if (token.type !== "plain") {
      const one = Object.assign([token], {links});
      return decorate(DOMPurify.sanitize(marked.parser(one), ALLOWED));
    }
  } catch {
    // As plain text, below.
  }
  return el("p", {class: "plain-text", text: token.raw});
}

/** Shows a text that grows: blocks that stay as they were keep their elements. */
export class MarkdownView {
  element = el("div", {class: "markdown"});
  #blocks = []; // {raw, element}

  update(text) {
    const tokens = lexed(text);
    const shown = tokens.filter((token) => token.type !== "space" && token.type !== "def");
    let same = 0;
    while (same < shown.length && same < this.#blocks.length && shown[same].raw === this.#blocks[same].raw) ++same;
    for (const block of this.#blocks.splice(same)) block.element.remove();
    for (const token of shown.slice(same)) {
      const element = el("div", {class: "block"});
      element.append(elementsOf(token, tokens.links));
      this.element.append(element);
      this.#blocks.push({raw: token.raw, element});
    }
  }
}
