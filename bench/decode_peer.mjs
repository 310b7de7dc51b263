// The peer of decode_bench: llama.cpp (prebuilt, in the npm package node-llama-cpp) goes on with the
// same ids of the same file, greedily.
//   (cd tools/gguf_peer && npm ci --omit=optional --ignore-scripts)
//   node bench/decode_peer.mjs FILE.gguf --prompts '[[1, 2], …]' [--tokens 16] [--threads 1]
// One JSON line: seconds a token of all sequences (medians of gaps between tokens of the first; one
// sequence: all gaps), and the ids of the first.
import {getLlama, LlamaLogLevel} from "../tools/gguf_peer/node_modules/node-llama-cpp/dist/index.js";

const [file, ...flags] = process.argv.slice(2);
const value = (name, fallback) => flags.includes(name) ? flags[flags.indexOf(name) + 1] : fallback;
const tokens = Number(value("--tokens", 16)), threads = Number(value("--threads", 1));
const prompts = JSON.parse(value("--prompts", "[[1]]"));

const llama = await getLlama({build: "never", gpu: false, progressLogs: false, skipDownload: true,
                              maxThreads: threads, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file});
const longest = Math.max(...prompts.map((ids) => ids.length));
const context = await model.createContext({contextSize: longest + tokens + 8, sequences: prompts.length,
                                           threads: {ideal: threads, min: threads}});
const sequences = prompts.map(() => context.getSequence());
const times = [];
const ids = [];

async function decode(index) {
  let count = 0;
  for await (const id of sequences[index].evaluate(prompts[index], {temperature: 0})) {
    if (index === 0) {
      times.push(process.hrtime.bigint());
      ids.push(id);
    }
    if (++count === tokens + 2) break;
  }
}
await Promise.all(prompts.map((_, index) => decode(index)));

const gaps = times.slice(1).map((time, i) => Number(time - times[i]) / 1e9).slice(1).sort((a, b) => a - b);
const token_s = gaps[Math.floor(gaps.length / 2)];
console.log(JSON.stringify({peer: "llama.cpp", sequences: prompts.length, token_s: +token_s.toFixed(5),
                            tokens_per_s: +(prompts.length / token_s).toFixed(2), ids}));
process.exit(0);
