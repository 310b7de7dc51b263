// Proof of a GGUF file against llama.cpp: the same texts give the same ids, and greedy decoding of
// the same ids goes on with the same text as `danlu infer --temperature 0` on the directory the
// file was made from.
//   node check.mjs DANLU MODEL_DIRECTORY FILE.gguf [--tokens N] [--ids-only]
// Prints one line per comparison; exit code 1 if any differs.
import {execFileSync} from "node:child_process";
import {readFileSync} from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [danlu, directory, file, ...flags] = process.argv.slice(2);
if (!file) {
  console.error("node check.mjs DANLU MODEL_DIRECTORY FILE.gguf [--tokens N] [--ids-only]");
  process.exit(2);
}
const count = flags.includes("--tokens") ? Number(flags[flags.indexOf("--tokens") + 1]) : 24;
const texts = JSON.parse(readFileSync(new URL("texts.json", import.meta.url), "utf8"));
const run = (verb, more, input) =>
  execFileSync(danlu, [verb, "--model", directory, ...more],
               {encoding: "utf8", input, maxBuffer: 1 << 26, stdio: ["pipe", "pipe", "pipe"]});
const ids_of = (text, special) =>
  JSON.parse(run("tokenize", ["--json", special ? "--special" : "--no-special"], text));
const text_of = (ids) => run("detokenize", [], ids.join(" ")).replace(/\n$/, "");

const llama = await getLlama({build: "never", gpu: false, progressLogs: false, skipDownload: true,
                              maxThreads: 2, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file});
let failures = 0;
const report = (what, ours, theirs) => {
  const same = JSON.stringify(ours) === JSON.stringify(theirs);
  if (!same) ++failures;
  console.log(`${same ? "same" : "DIFFERS"}  ${what}${same ? "" : `\n  danlu ${JSON.stringify(ours)}\n  llama ${JSON.stringify(theirs)}`}`);
};

async function continuation(ids) {
  // Keys and values in F32, as Danlu keeps them: F16 decides near-ties otherwise.
  const context = await model.createContext({contextSize: ids.length + count + 8, threads: 2, flashAttention: false,
                                             experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"});
  const out = [];
  for await (const id of context.getSequence().evaluate(ids, {temperature: 0})) {
    if (out.push(id) === count) break;
  }
  await context.dispose();
  return out;
}

for (const text of texts)
  report(`ids of ${JSON.stringify(text)}`, ids_of(text, false), Array.from(model.tokenize(text, true)));
if (!flags.includes("--ids-only")) {
  for (const text of texts) {
    const ours = run("infer", ["--raw", "--temperature", "0", "--device", "cpu", "--max_new_tokens",
                               String(count), "--prompt", text]).replace(/\n$/, "");
    report(`${count} tokens after ${JSON.stringify(text)}`, ours,
           text_of(await continuation(ids_of(text, true))));
  }
}
console.log(failures === 0 ? "all the same" : `${failures} differ`);
process.exit(failures === 0 ? 0 : 1);
