// The panel beside a conversation: system prompt, sampling, tools.
import {el, iconButton} from "../dom.js";
import {t} from "../i18n.js";
import {SAMPLING_NUMBERS} from "./answer.js";

const LIMITS = {
  temperature: {min: 0, max: 2, step: 0.05},
  top_p: {min: 0, max: 1, step: 0.01},
  top_k: {min: 0, step: 1},
  min_p: {min: 0, max: 1, step: 0.01},
  max_tokens: {min: 1, step: 1},
  repetition_penalty: {min: 0.1, max: 3, step: 0.05},
  presence_penalty: {min: -2, max: 2, step: 0.1},
  seed: {step: 1},
};

let lastField = 0;

function field(label, control, hint) {
  control.id = `field-${++lastField}`;
  return el("div", {class: "field"}, el("label", {for: control.id, text: label}), control, hint && el("p", {class: "hint", text: hint}));
}

/** onChange() after each change of the conversation; onClose() when the panel is to go. */
export function settingsPanel(conversation, onChange, onClose) {
  const {sampling} = conversation;
  const number = (name) => field(t(name), el("input", {
    type: "number", ...LIMITS[name], inputmode: "decimal", value: sampling[name] ?? "", "data-name": name,
    oninput: (event) => {
      if (event.target.value === "") delete sampling[name];
      else sampling[name] = event.target.value;
      onChange();
    },
  }));
  const area = (label, value, set, extra = {}, hint) => field(label, el("textarea", {
    value, ...extra, oninput: (event) => {
      set(event.target.value);
      onChange();
    },
  }), hint);
  return el("aside", {class: "chat-settings", "aria-label": t("settings")},
    el("div", {class: "title"}, el("span", {text: t("settings")}), iconButton("close", t("close"), onClose)),
    area(t("system"), conversation.system, (text) => { conversation.system = text; }, {placeholder: t("systemHint"), "data-name": "system"}),
    el("h3", {text: t("sampling")}), el("p", {class: "hint", text: t("samplingHint")}),
    el("div", {class: "pairs"}, SAMPLING_NUMBERS.map(number)),
    field(t("thinking"), el("select", {
      value: sampling.thinking ?? "",
      onchange: (event) => {
        sampling.thinking = event.target.value;
        onChange();
      },
    }, [["", t("thinkingDefault")], ["on", t("on")], ["off", t("off")]].map(([value, text]) => el("option", {value, text})))),
    area(t("stopAt"), sampling.stop ?? "", (text) => { sampling.stop = text; }, {rows: 2}),
    area(t("tools"), conversation.tools ?? "", (text) => { conversation.tools = text; }, {class: "json", spellcheck: "false", "data-name": "tools"}, t("toolsHint")));
}
