// Writes the goldens of tests/text/golden_tokenizers. See README.md.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Tokenizer } from 'tokenizers';
import { componentGoldens } from './components.mjs';
import { StreamHash } from './hash.mjs';
import { escapeBytes, nastyTexts, toText } from './nasty.mjs';
import { readLines, textSources } from './texts.mjs';
import { publishedTokenizers } from '../published_tokenizers.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const output = path.join(here, '..', '..', 'tests', 'text', 'golden_tokenizers');
const [root, ...words] = process.argv.slice(2);
const keys = words.filter((word) => word.startsWith('key=')).map((word) => word.slice(4));
const only = words.filter((word) => !word.startsWith('key='));
if (!root) {
  console.error('usage: node generate.mjs DIRECTORY [tokenizer …|nasty|components] [key=KEY …]');
  process.exit(2);
}
const kChunk = 2048;

function writeJson(name, value) {
  // One line per chunk keeps differences readable.
  const text = JSON.stringify(value, null, 1).replace(/\[\n\s+(\d+),\n\s+(\d+),\n\s+("[0-9a-f]+")\n\s+\]/g, '[$1, $2, $3]');
  fs.writeFileSync(path.join(output, `${name}.json`), text + '\n');
}

async function idsOf(tokenizer, texts) {
  const encodings = await tokenizer.encodeBatch(texts, { addSpecialTokens: true });
  return encodings.map((encoding) => encoding.getIds());
}

/** [number of texts, number of ids, hash] per chunk of texts. */
async function hashChunks(tokenizer, texts) {
  const chunks = [];
  for (let i = 0; i < texts.length; i += kChunk) {
    const part = texts.slice(i, i + kChunk);
    const hash = new StreamHash();
    for (const ids of await idsOf(tokenizer, part)) hash.addIds(ids);
    chunks.push([part.length, hash.count, hash.hex()]);
  }
  return chunks;
}

/** Ids chosen without regard to sense, and the text HF makes of them. */
async function decodeGoldens(tokenizer) {
  const size = tokenizer.getVocabSize(true);
  const hash = { keep: new StreamHash(), skip: new StreamHash() };
  let state = 12345;
  for (let i = 0; i < 500; ++i) {
    const ids = [];
    for (let k = 0; k <= i % 23; ++k) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      // Every third list stays among the first ids, where byte tokens and specials live.
      ids.push((state >>> 8) % (i % 3 === 0 ? Math.min(300, size) : size));
    }
    hash.keep.addText(await tokenizer.decode(ids, false));
    hash.skip.addText(await tokenizer.decode(ids, true));
  }
  return { size, lists: 500, keep_special: hash.keep.hex(), skip_special: hash.skip.hex() };
}

/** Takes these keys' texts alone anew into a golden that is there. */
async function refreshKeys(name, tokenizer) {
  const golden = JSON.parse(fs.readFileSync(path.join(output, `${name}.json`)));
  const sources = textSources(root);
  for (const key of keys) golden.texts[key] = await hashChunks(tokenizer, sources.get(key)());
  writeJson(name, golden);
}

async function tokenizerGoldens(name, file) {
  const tokenizer = Tokenizer.fromFile(file);
  tokenizer.disableTruncation();
  tokenizer.disablePadding();
  if (keys.length > 0) return refreshKeys(name, tokenizer);
  const golden = { oracle: 'npm tokenizers 0.23.2', tokenizer: name, texts: {}, decode: await decodeGoldens(tokenizer), examples: [] };
  for (const [key, read] of textSources(root)) golden.texts[key] = await hashChunks(tokenizer, read());
  for (const [label, bytes] of nastyTexts().slice(0, 120)) {
    const [ids] = await idsOf(tokenizer, [toText(bytes)]);
    golden.examples.push([label, ids.join(' ')]);
  }
  writeJson(name, golden);
}

/** Debian's spm_encode as the oracle of tokenizer.model. '<' becomes '(': it knows no added tokens. */
function sentencePieceGoldens(name) {
  const model = path.join(root, 'tokenizers', name, 'tokenizer.model');
  const golden = { oracle: 'spm_encode 0.1.97', tokenizer: name, texts: {} };
  const encode = (lines) => execFileSync('spm_encode', [`--model=${model}`, '--output_format=id'],
    { input: lines.map((line) => line.replaceAll('<', '(') + '\n').join(''), maxBuffer: 1 << 30 })
    .toString().split('\n').slice(0, lines.length);
  const sources = textSources(root);
  for (const [key, read] of sources) {
    if (!/^nasty$|^lines:corpora\/(sherlock|tinystories|zh_sanguoyanyi)/.test(key)) continue;
    const lines = read().filter((line) => !line.includes('\n') && !line.includes('\0'));
    const outputs = encode(lines);
    golden.texts[key] = [];
    for (let i = 0; i < lines.length; i += kChunk) {
      const hash = new StreamHash();
      const part = outputs.slice(i, i + kChunk);
      for (const line of part) hash.addIds(line === '' ? [] : line.split(' ').map(Number));
      golden.texts[key].push([part.length, hash.count, hash.hex()]);
    }
  }
  writeJson(`${name}.model`, golden);
}

const wanted = (name) => only.length === 0 || only.includes(name);
fs.mkdirSync(output, { recursive: true });
if (keys.length === 0 && wanted('nasty')) {
  fs.writeFileSync(path.join(output, 'nasty.txt'), nastyTexts().map(([name, bytes]) => `${name}\t${escapeBytes(bytes)}\n`).join(''));
}
if (keys.length === 0 && wanted('components')) writeJson('components', await componentGoldens());
for (const name of fs.readdirSync(path.join(root, 'tokenizers')).sort()) {
  const has = (file) => fs.existsSync(path.join(root, 'tokenizers', name, file));
  if (has('tokenizer.json') && wanted(name)) {
    console.error(name);
    await tokenizerGoldens(name, path.join(root, 'tokenizers', name, 'tokenizer.json'));
  }
  if (has('tokenizer.model') && keys.length === 0 && wanted(`${name}.model`)) {
    console.error(`${name}.model`);
    sentencePieceGoldens(name);
  }
}
for (const { name, folder } of publishedTokenizers(wanted)) {
  console.error(name);
  await tokenizerGoldens(name, path.join(folder, 'tokenizer.json'));
}
