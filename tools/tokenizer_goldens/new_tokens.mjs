// Goldens of tokens that a tokenizer gains: ids of texts, and the file that the library writes.
// usage: node new_tokens.mjs DIRECTORY-OF-TOKENIZERS >tests/text/golden_tokenizers/new_tokens.json
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { AddedToken, Tokenizer } from 'tokenizers';

// "a" is in every vocabulary already, <|im_start|> and <s> in some.
const ordinary = ['wordpiece', 'ĠFoo', 'a'];
const special = ['<|0|>', '<|1|>', '<|im_start|>', '<s>'];
const texts = ['<|0|>', ' <|0|> x<|1|>y ', 'a wordpieces word piece', '<|1|><|0|><|1|>', 'ĠFoo Foo', '<|im_start|>user\nhi<|0|>', 'aaa', '<s>a</s>', '你好<|1|>世界', ''];
const root = process.argv[2];
const golden = { oracle: 'npm tokenizers 0.23.2', ordinary, special };
for (const name of ['qwen2_5', 'llama3', 'gpt2', 'mistral_v1']) {
  const tokenizer = Tokenizer.fromFile(path.join(root, name, 'tokenizer.json'));
  tokenizer.addAddedTokens(ordinary.map((content) => new AddedToken(content, false, { normalized: true })));
  tokenizer.addAddedTokens(special.map((content) => new AddedToken(content, true, { normalized: false })));
  const encoded = [];
  for (const text of texts) encoded.push([text, (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()]);
  const file = path.join(os.tmpdir(), 'new_tokens.json');
  tokenizer.save(file, false);
  const added = JSON.parse(fs.readFileSync(file)).added_tokens;
  golden[name] = { size: tokenizer.getVocabSize(true), encoded, added: added.filter((token) => ordinary.includes(token.content) || special.includes(token.content)) };
}
process.stdout.write(JSON.stringify(golden, null, 1) + '\n');
