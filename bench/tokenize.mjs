// danlu against Hugging Face's tokenizers (a folder with tokenizer.json) or SentencePiece's library (a tokenizer.model),
// in turns, per second of CPU time, ids compared.
//   (cd tools/tokenizer_goldens && npm ci)
//   node bench/tokenize.mjs BUILD_DIR TOKENIZER[,TOKENIZER…] FILE... [--whole FILE...] [--rounds N] [--markdown]
// FILEs are tokenised line by line, those behind --whole as one text each. Every round is a new process of either side, which
// takes the file twice: once unseen, once seen. Pin it to one processor: taskset -c 1 node …
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const words = process.argv.slice(2);
const here = fileURLToPath(import.meta.url);

async function peer(tokenizerFile, file, whole, hashed) {
  process.env.TOKENIZERS_PARALLELISM = 'false';
  const { Tokenizer } = await import('../tools/tokenizer_goldens/node_modules/tokenizers/index.js');
  const { StreamHash } = await import('../tools/tokenizer_goldens/hash.mjs');
  const tokenizer = Tokenizer.fromFile(tokenizerFile);
  const bytes = readFileSync(file);
  const lines = whole ? [bytes.toString('utf8')] : bytes.toString('utf8').split('\n');
  if (!whole && lines[lines.length - 1] === '') lines.pop();
  const batches = [];
  for (let i = 0; i < lines.length; i += 512) batches.push(lines.slice(i, i + 512));
  const speeds = [];
  let tokens;
  for (let pass = 0; pass < 2; ++pass) {
    tokens = 0;
    const start = process.cpuUsage();
    for (const batch of batches) for (const encoding of await tokenizer.encodeBatch(batch)) tokens += encoding.getLength();
    const { user, system } = process.cpuUsage(start);
    speeds.push(bytes.length / (user + system));
  }
  const hash = new StreamHash();
  if (hashed) for (const batch of batches) for (const encoding of await tokenizer.encodeBatch(batch)) hash.addIds(encoding.getIds());
  return { tokens, ids: hash.hex(), mb_per_s_first: speeds[0], mb_per_s: speeds[1] };
}

if (words[0] === '--peer') {
  console.log(JSON.stringify(await peer(words[1], words[2], words[3] === 'whole', words[4] === 'hashed')));
  process.exit(0);
}

const take = (name, count) => {
  const at = words.indexOf(name);
  return at < 0 ? [] : words.splice(at, count + 1).slice(1);
};
const rounds = Number(take('--rounds', 1)[0] ?? 3);
const markdown = words.includes('--markdown');
take('--markdown', 0);
const whole = take('--whole', Infinity);
const [build, tokenizers, ...files] = words;
if (files.length + whole.length === 0) {
  console.error('usage: node bench/tokenize.mjs BUILD_DIR TOKENIZER[,TOKENIZER…] FILE... [--whole FILE...] [--rounds N] [--markdown]');
  process.exit(2);
}
const run = (program, ...args) => JSON.parse(execFileSync(program, args, { maxBuffer: 1 << 26 }));
// The file alone: the peer knows nothing of what lies beside it.
const bare = mkdtempSync(path.join(os.tmpdir(), 'danlu-tokenize-'));
process.on('exit', () => rmSync(bare, { recursive: true, force: true }));
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const round = (value, digits) => +value.toFixed(digits);

if (markdown) console.log('| tokenizer | text | first pass: ours, peer (MB/s) | ratio (spread) | second pass: ours, peer | ratio (spread) |\n|---|---|---|---|---|---|');
for (const tokenizer of tokenizers.split(',')) {
  const isModel = statSync(tokenizer).isFile();
  const alone = path.join(bare, isModel ? 'tokenizer.model' : 'tokenizer.json');
  rmSync(alone, { force: true });
  symlinkSync(path.resolve(isModel ? tokenizer : path.join(tokenizer, 'tokenizer.json')), alone);
  for (const file of [...files, ...whole]) {
    const isWhole = whole.includes(file);
    const sides = { ours: [], theirs: [] };
    for (let i = 0; i < rounds; ++i) {
      const mine = run(path.join(build, 'tokenize_bench'), alone, file, '--repeats', '3', ...(isWhole ? ['--whole'] : []));
      const other = isModel
        ? run('/usr/bin/python3', path.join(path.dirname(here), 'sentencepiece_peer.py'), tokenizer, file, ...(isWhole ? ['whole'] : []))
        : run(process.execPath, here, '--peer', path.join(tokenizer, 'tokenizer.json'), file, isWhole ? 'whole' : 'lines', i === 0 ? 'hashed' : '');
      if (mine.tokens !== other.tokens || (i === 0 && mine.ids !== other.ids)) throw new Error(`${tokenizer} ${file}: the ids differ`);
      sides.ours.push(mine);
      sides.theirs.push(other);
    }
    const compared = (key) => {
      const ours = sides.ours.map((x) => x[key]), theirs = sides.theirs.map((x) => x[key]);
      const ratios = ours.map((x, i) => x / theirs[i]);
      return { ours: round(median(ours), 1), theirs: round(median(theirs), 2), ratio: round(median(ratios), 1),
        spread: [round(Math.min(...ratios), 1), round(Math.max(...ratios), 1)] };
    };
    const first = compared('mb_per_s_first'), again = compared('mb_per_s');
    const name = isModel ? `${path.basename(path.dirname(tokenizer))} .model` : path.basename(tokenizer);
    const cell = (x) => `${x.ours}, ${x.theirs} | ${x.ratio} (${x.spread.join('–')})`;
    if (markdown) console.log(`| ${name} | ${path.basename(file, '.txt')} | ${cell(first)} | ${cell(again)} |`);
    else console.log(JSON.stringify({ bench: 'tokenize', tokenizer: name, file: path.basename(file), tokens: sides.ours[0].tokens, first, again }));
  }
}
