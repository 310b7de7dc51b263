// The peer of preprocess_bench: one pass of Hugging Face's tokenizers over the rendered Alpaca rows.
//   (cd tools/tokenizer_goldens && npm ci); node bench/preprocess_peer.mjs ALPACA.json TOKENIZER.json [repeats]
import { readFileSync } from 'node:fs';
import { Tokenizer } from '../tools/tokenizer_goldens/node_modules/tokenizers/index.js';

const [input, tokenizerFile, repeats = '3'] = process.argv.slice(2);
const inputBytes = readFileSync(input);
const texts = JSON.parse(inputBytes)
  .filter((row) => row.output)
  .map((row) => '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n' +
    [row.instruction, row.input].filter(Boolean).join('\n') +
    `<|im_end|>\n<|im_start|>assistant\n${row.output}<|im_end|>`);
const tokenizer = Tokenizer.fromFile(tokenizerFile);

const seconds = [];
let tokens = 0;
for (let repeat = 0; repeat < Number(repeats); ++repeat) {
  const start = process.hrtime.bigint();
  tokens = 0;
  for (let i = 0; i < texts.length; i += 1000) {
    const encodings = await tokenizer.encodeBatch(texts.slice(i, i + 1000), { addSpecialTokens: true });
    for (const encoding of encodings) tokens += encoding.getLength();
  }
  seconds.push(Number(process.hrtime.bigint() - start) / 1e9);
}
seconds.sort((a, b) => a - b);
const median = seconds[Math.floor(seconds.length / 2)];
console.log(JSON.stringify({ peer: 'tokenizers', rows: texts.length, tokens, seconds: +median.toFixed(3),
  seconds_min: +seconds[0].toFixed(3), seconds_max: +seconds[seconds.length - 1].toFixed(3),
  rows_per_s: Math.round(texts.length / median), mb_per_s: +(inputBytes.length / 1e6 / median).toFixed(2) }));
