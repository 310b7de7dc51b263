// danlu against Hugging Face's tokenizers, in turns, per second of CPU time.
//   (cd tools/tokenizer_goldens && npm ci); node bench/tokenize.mjs BUILD_DIR TOKENIZER_DIR FILE... [--rounds N]
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

process.env.TOKENIZERS_PARALLELISM = 'false';
const { Tokenizer } = await import('../tools/tokenizer_goldens/node_modules/tokenizers/index.js');

const words = process.argv.slice(2);
const at = words.indexOf('--rounds');
const rounds = at < 0 ? 3 : Number(words.splice(at, 2)[1]);
const [build, directory, ...files] = words;
if (files.length === 0) {
  console.error('usage: node bench/tokenize.mjs BUILD_DIR TOKENIZER_DIR FILE... [--rounds N]');
  process.exit(2);
}
const tokenizer = Tokenizer.fromFile(path.join(directory, 'tokenizer.json'));
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function peer(file) {
  const bytes = readFileSync(file);
  const lines = bytes.toString('utf8').split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  let tokens = 0;
  const start = process.cpuUsage();
  for (let i = 0; i < lines.length; i += 512) {
    for (const encoding of await tokenizer.encodeBatch(lines.slice(i, i + 512))) tokens += encoding.getLength();
  }
  const { user, system } = process.cpuUsage(start);
  return { tokens, speed: bytes.length / (user + system) };
}

for (const file of files) {
  const ours = [], theirs = [];
  let tokens;
  for (let round = 0; round < rounds; ++round) {
    const result = JSON.parse(execFileSync(path.join(build, 'tokenize_bench'), [directory, file, '--repeats', '5']));
    ours.push(result.mb_per_s);
    const other = await peer(file);
    theirs.push(other.speed);
    tokens = result.tokens;
    if (other.tokens !== tokens) throw new Error(`${file}: ${tokens} tokens, tokenizers gives ${other.tokens}`);
  }
  console.log(JSON.stringify({ bench: 'tokenize', tokenizer: path.basename(directory), file: path.basename(file), tokens,
    danlu_mb_per_s: +median(ours).toFixed(1), tokenizers_mb_per_s: +median(theirs).toFixed(2), ratio: +(median(ours) / median(theirs)).toFixed(1) }));
}
