// The texts that goldens are taken over, by name. tests/text/tokenizer_golden.h reads them alike.
import fs from 'node:fs';
import path from 'node:path';
import { nastyTexts, toText } from './nasty.mjs';

/** Every string of a JSON value, in order of appearance. */
function collectStrings(value, out) {
  if (typeof value === 'string') out.push(value);
  else if (value && typeof value === 'object') for (const item of Object.values(value)) collectStrings(item, out);
}

export function readLines(file) {
  const lines = toText(fs.readFileSync(file)).split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  return lines;
}

/** .json: its strings; .jsonl: the strings of every line; what does not parse: its lines. */
function readStrings(file) {
  const text = toText(fs.readFileSync(file));
  const documents = file.endsWith('.jsonl') ? text.split('\n').filter((line) => line !== '') : [text];
  const strings = [];
  try {
    for (const document of documents) collectStrings(JSON.parse(document), strings);
  } catch {
    return readLines(file);
  }
  return strings;
}

function filesUnder(root, folder) {
  return fs.readdirSync(path.join(root, folder), { recursive: true })
    .map((name) => path.posix.join(folder, name.split(path.sep).join('/')))
    .filter((name) => fs.statSync(path.join(root, name)).isFile())
    .sort();
}

/** Ideographs, syllables and private use: every sixteenth stands for the rest. */
const uniform = [[0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xac00, 0xd7a3], [0xe000, 0xf8ff], [0x12000, 0x143ff], [0x17000, 0x18cff], [0x20000, 0x31fff]];
const isSampledOut = (value) => value % 16 !== 0 && uniform.some(([first, last]) => value >= first && value <= last);

/** Code points in contexts where their class, case and composition matter. */
export function codePointTexts(begin, end) {
  const texts = [];
  for (let value = begin; value < end; ++value) {
    if ((value >= 0xd800 && value < 0xe000) || isSampledOut(value)) continue;
    const c = String.fromCodePoint(value);
    texts.push(`a${c}b ${c}1${c}${c} !${c}`);
  }
  return texts;
}

export const codePointRanges = [[0, 0x32000], [0xe0000, 0xe0200], [0x10ff00, 0x110000]];

const longAlphabets = ['a', 'ab', 'aab', 'etaoin', 'abcdefghijklmnopqrstuvwxyz', 'ABCxyz0189+/=', '01', '-=_', '\u7684\u4e00\u662f\u4e86\u6211', 'a\u7684',
  '\u00e9\u00df\u0436', ' a', ' \u2581', 'in gthe', '\u{1f600}\u{20000}', '<>s/', '\n ', 'th\u00e9\u4eba\u{1f600} '];

/** Words that no pre-tokenizer cuts, drawn from few characters, and runs that repeat. */
export function longTexts() {
  const texts = [];
  let state = 20261125;
  for (const alphabet of longAlphabets) {
    const chars = [...alphabet];
    for (const length of [33, 64, 65, 97, 130, 500, 3000, 20000]) {
      let text = '';
      for (let i = 0; i < length; ++i) {
        state = (Math.imul(state, 1103515245) + 12345) >>> 0;
        text += chars[(state >>> 16) % chars.length];
      }
      texts.push(text);
    }
    for (const count of [50, 333, 1000]) texts.push(alphabet.repeat(count), `x${alphabet.repeat(count)}`);
  }
  return texts;
}

/** Map from key to a function that gives the texts. */
export function textSources(root) {
  const sources = new Map();
  sources.set('nasty', () => nastyTexts().map(([, bytes]) => toText(bytes)));
  sources.set('codepoints', () => codePointRanges.flatMap(([begin, end]) => codePointTexts(begin, end)));
  sources.set('long', longTexts);
  for (const file of filesUnder(root, 'corpora')) {
    sources.set(`lines:${file}`, () => readLines(path.join(root, file)));
    sources.set(`whole:${file}`, () => [toText(fs.readFileSync(path.join(root, file)))]);
  }
  for (const file of filesUnder(root, 'instruct')) {
    const isJson = file.endsWith('.json') || file.endsWith('.jsonl');
    sources.set(`${isJson ? 'strings' : 'lines'}:${file}`, () => (isJson ? readStrings : readLines)(path.join(root, file)));
  }
  return sources;
}
