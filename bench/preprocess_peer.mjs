// The peer of preprocess_bench: one pass of Hugging Face's tokenizers over the rendered Alpaca rows.
//   (cd tools/tokenizer_goldens && npm ci); node bench/preprocess_peer.mjs ALPACA.json|ROWS.jsonl TOKENIZER.json [repeats]
// Seconds are those of its calls alone: reading and rendering rows is not its work. Lines of a .jsonl are read a thousand at a time.
import { createReadStream, readFileSync, statSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Tokenizer } from '../tools/tokenizer_goldens/node_modules/tokenizers/index.js';

const [input, tokenizerFile, repeats = '3'] = process.argv.slice(2);
const BATCH = 1000;

function rendered(row) {
  return '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n' +
    [row.instruction, row.input].filter(Boolean).join('\n') +
    `<|im_end|>\n<|im_start|>assistant\n${row.output}<|im_end|>`;
}

async function* rows() {
  if (!input.endsWith('.jsonl')) {
    yield* JSON.parse(readFileSync(input));
    return;
  }
  for await (const line of createInterface({ input: createReadStream(input), crlfDelay: Infinity })) {
    if (line.trim()) yield JSON.parse(line);
  }
}

async function* batches() {
  let texts = [];
  for await (const row of rows()) {
    if (row.output) texts.push(rendered(row));
    if (texts.length < BATCH) continue;
    yield texts;
    texts = [];
  }
  if (texts.length > 0) yield texts;
}

const tokenizer = Tokenizer.fromFile(tokenizerFile);
const seconds = [];
let tokens = 0, count = 0;
for (let repeat = 0; repeat < Number(repeats); ++repeat) {
  let nanoseconds = 0n;
  tokens = count = 0;
  for await (const texts of batches()) {
    const start = process.hrtime.bigint();
    const encodings = await tokenizer.encodeBatch(texts, { addSpecialTokens: true });
    for (const encoding of encodings) tokens += encoding.getLength();
    nanoseconds += process.hrtime.bigint() - start;
    count += texts.length;
  }
  seconds.push(Number(nanoseconds) / 1e9);
}
seconds.sort((a, b) => a - b);
const median = seconds[Math.floor(seconds.length / 2)];
console.log(JSON.stringify({ peer: 'tokenizers', rows: count, tokens, seconds: +median.toFixed(3),
  seconds_min: +seconds[0].toFixed(3), seconds_max: +seconds[seconds.length - 1].toFixed(3),
  rows_per_s: Math.round(count / median), mb_per_s: +(statSync(input).size / 1e6 / median).toFixed(2) }));
