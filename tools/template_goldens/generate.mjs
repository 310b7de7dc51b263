// Writes tests/text/golden_templates/*.json: what @huggingface/jinja prints for real chat templates
// (read from a reference directory, named here by file and hash only) over conversations.json, and for
// the snippets of snippets.json. Usage: npm run generate -- TOKENIZERS_DIR CHAT_TEMPLATES_DIR
//
// Python's Jinja2 is the authority where the two differ; check_with_python.py lists those places and
// snippets.json records them ("python": the text Python prints, "because": how the JavaScript deviates).
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Template } from "@huggingface/jinja";
import { publishedTokenizers } from "../published_tokenizers.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.join(here, "../../tests/text/golden_templates");
const [tokenizers, templates] = process.argv.slice(2);
if (!templates) throw new Error("usage: npm run generate -- TOKENIZERS_DIR CHAT_TEMPLATES_DIR");

/** Templates that print the date are rendered on one day, which the test knows. */
globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length > 0 ? given : [2026, 10, 21, 12]));
  }
};

/** FNV-1a 64, as danlu::hash_bytes. */
function hash(text) {
  let h = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(text)) h = BigInt.asUintN(64, (h ^ BigInt(byte)) * 0x100000001b3n);
  return h.toString(16).padStart(16, "0");
}

function collect() {
  const found = [];
  for (const file of fs.readdirSync(templates).filter((f) => f.endsWith(".jinja")).sort()) {
    found.push({ name: `chat_templates/${file}`, source: fs.readFileSync(path.join(templates, file), "utf8") });
  }
  for (const dir of fs.readdirSync(tokenizers).sort()) {
    const config = path.join(tokenizers, dir, "tokenizer_config.json");
    if (!fs.existsSync(config)) continue;
    const source = JSON.parse(fs.readFileSync(config, "utf8")).chat_template;
    if (typeof source === "string") found.push({ name: `tokenizers/${dir}`, source });
  }
  return found;
}

/** Those of published models; without one of them the goldens would lose its cases. */
function published() {
  const found = [];
  for (const { name, folder } of publishedTokenizers()) {
    const source = JSON.parse(fs.readFileSync(path.join(folder, "tokenizer_config.json"), "utf8")).chat_template;
    if (typeof source === "string") found.push({ name: `published/${name}`, source });
  }
  return found;
}

function render(source, variables) {
  try {
    return { text: new Template(source).render(variables) };
  } catch (error) {
    return { error: String(error.message) };
  }
}

const conversations = JSON.parse(fs.readFileSync(path.join(here, "conversations.json"), "utf8"));
const goldens = [];
for (const { name, source } of [...collect(), ...published()]) {
  const cases = [];
  for (const conversation of conversations) {
    for (const add_generation_prompt of [false, true]) {
      const variables = {
        messages: structuredClone(conversation.messages),
        tools: conversation.tools ?? null,
        documents: null,
        add_generation_prompt,
        bos_token: "<s>",
        eos_token: "</s>",
        functions: "[]",
        datetime: "Monday",
        ...(conversation.arguments ?? {}),
      };
      cases.push({ conversation: conversation.name, add_generation_prompt, ...render(source, variables) });
    }
  }
  goldens.push({ template: name, hash: hash(source), cases });
}
fs.writeFileSync(path.join(out, "chat.json"), JSON.stringify(goldens, null, 1) + "\n");
fs.copyFileSync(path.join(here, "conversations.json"), path.join(out, "conversations.json"));

const snippets = JSON.parse(fs.readFileSync(path.join(here, "snippets.json"), "utf8"));
for (const snippet of snippets) {
  const { text, error } = render(snippet.template, snippet.variables ?? {});
  if (error === undefined) snippet.text = text;
  else snippet.error = error;
}
fs.writeFileSync(path.join(out, "snippets.json"), JSON.stringify(snippets, null, 1) + "\n");
console.log(`${goldens.length} templates, ${goldens.reduce((n, g) => n + g.cases.length, 0)} cases, ${snippets.length} snippets`);
