// Goldens of single components: every normalizer, pre-tokenizer, decoder, model and post-processor.
import { readFileSync } from 'node:fs';
import { Tokenizer } from 'tokenizers';
import { StreamHash } from './hash.mjs';
import { nastyTexts, toText } from './nasty.mjs';
import { codePointRanges, codePointTexts } from './texts.mjs';

const specs = JSON.parse(readFileSync(new URL('../../tests/text/golden_tokenizers/component_specs.json', import.meta.url)));
const emptyModel = { type: 'WordLevel', vocab: { x: 0 }, unk_token: 'x' };

const tokenizerWith = (parts) => Tokenizer.fromString(JSON.stringify({ version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null,
  pre_tokenizer: null, post_processor: null, decoder: null, model: emptyModel, ...parts }));

const nasty = nastyTexts().map(([, bytes]) => toText(bytes));
const codePoints = codePointRanges.flatMap(([begin, end]) => codePointTexts(begin, end));

function hashBy(texts, perText) {
  const hash = new StreamHash();
  for (const text of texts) perText(hash, text);
  return [texts.length, hash.count, hash.hex()];
}

/** A hash per 4096 texts: a difference then names its neighbourhood. */
function hashBlocks(perText) {
  const blocks = [];
  for (let i = 0; i < codePoints.length; i += 4096) blocks.push(hashBy(codePoints.slice(i, i + 4096), perText)[2]);
  return blocks.join(' ');
}

/** Token lists for decoders: pieces a vocabulary of their kind could hold. */
const tokenLists = [
  [], ['Hello'], ['▁Hello', '▁world', '!'], ['▁', '▁Hey', '▁▁x'], ['Hey', '▁▁', 'x▁y'], ['<0xE4>', '<0xBD>', '<0xA0>', '▁a'], ['<0xE4>', '<0xBD>', 'a', '<0xFF>'],
  ['<0xE4>', '<0xBD>', '<0xA0>', '<0xFF>', '<0x0a>'], ['ĠHello', 'Ċ', 'ä½', 'ł', '<|x|>', '世'], ['un', '##believ', '##able', '.', "do", "n't", ' .', ' ?'],
  ['good', 'bye</w>', 'a', 'b</w>'], ['<pad>', 'h', 'h', 'e', '<pad>', 'l', 'l', '<pad>', 'l', 'o', '|', '|', 'w', "'", 's', '<pad>'], [' a ', '  b', 'c  '], ['▁a▁', 'b'],
];

export async function componentGoldens() {
  const golden = { oracle: 'npm tokenizers 0.23.2', normalizers: {}, pre_tokenizers: {}, decoders: {}, tokenizers: {} };
  for (const [name, spec] of Object.entries(specs.normalizers)) {
    const normalizer = tokenizerWith({ normalizer: spec }).getNormalizer();
    const perText = (hash, text) => hash.addText(normalizer.normalizeString(text));
    golden.normalizers[name] = { nasty: hashBy(nasty, perText), codepoints: hashBlocks(perText) };
  }
  for (const [name, spec] of Object.entries(specs.pre_tokenizers)) {
    const preTokenizer = tokenizerWith({ pre_tokenizer: spec }).getPreTokenizer();
    const perText = (hash, text) => {
      for (const [piece] of preTokenizer.preTokenizeString(text)) hash.addText(piece);
      hash.add(-2);
    };
    golden.pre_tokenizers[name] = { nasty: hashBy(nasty, perText), codepoints: hashBlocks(perText) };
  }
  for (const [name, spec] of Object.entries(specs.decoders)) {
    const decoder = tokenizerWith({ decoder: spec }).getDecoder();
    golden.decoders[name] = tokenLists.map((tokens) => [tokens, decoder.decode(tokens)]);
  }
  for (const [name, parts] of Object.entries(specs.tokenizers)) {
    const tokenizer = tokenizerWith(parts);
    const idsOf = async (texts) => (await tokenizer.encodeBatch(texts, { addSpecialTokens: true })).map((encoding) => encoding.getIds());
    const hash = new StreamHash();
    for (const ids of await idsOf(nasty)) hash.addIds(ids);
    const examples = specs.examples[name] ?? [];
    golden.tokenizers[name] = { nasty: [nasty.length, hash.count, hash.hex()], examples: (await idsOf(examples)).map((ids, i) => [examples[i], ids]) };
  }
  return golden;
}
