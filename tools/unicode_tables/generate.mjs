// Writes the stretches of code points whose general category changed after Unicode 8, and when.
// HF's libraries carry different versions of Unicode (8, 9, 16, 17); utf8proc and PCRE2 another one.
import fs from 'node:fs';
import { fileURLToPath } from 'node:url';

const names = { Lu: 'Uppercase_Letter', Ll: 'Lowercase_Letter', Lt: 'Titlecase_Letter', Lm: 'Modifier_Letter', Lo: 'Other_Letter', Mn: 'Nonspacing_Mark',
  Mc: 'Spacing_Mark', Me: 'Enclosing_Mark', Nd: 'Decimal_Number', Nl: 'Letter_Number', No: 'Other_Number', Pc: 'Connector_Punctuation', Pd: 'Dash_Punctuation',
  Ps: 'Open_Punctuation', Pe: 'Close_Punctuation', Pi: 'Initial_Punctuation', Pf: 'Final_Punctuation', Po: 'Other_Punctuation', Sm: 'Math_Symbol',
  Sc: 'Currency_Symbol', Sk: 'Modifier_Symbol', So: 'Other_Symbol', Zs: 'Space_Separator', Zl: 'Line_Separator', Zp: 'Paragraph_Separator', Cc: 'Control',
  Cf: 'Format', Co: 'Private_Use', Cs: 'Surrogate' };
const versions = [8, 9, 14, 16, 17];

async function categories(version) {
  const table = new Array(0x110000).fill('Cn');
  const root = new URL(`./node_modules/@unicode/unicode-${version}.0.0/General_Category/`, import.meta.url);
  for (const [short, long] of Object.entries(names)) {
    const file = ['mjs', 'js'].map((ext) => new URL(`${long}/code-points.${ext}`, root)).find((url) => fs.existsSync(url));
    for (const c of (await import(file)).default) table[c] = short;
  }
  return table;
}

const tables = {};
for (const version of versions) tables[version] = await categories(version);

const rows = [];
for (let c = 0; c < 0x110000; ++c) {
  const steps = versions.slice(1).map((v, i) => [v, tables[versions[i]][c], tables[v][c]]).filter(([, before, after]) => before !== after);
  for (const [since, before, after] of steps) {
    const last = rows.findLast((row) => row.since === since && row.before === before && row.after === after && row.last === c - 1);
    if (last) last.last = c;
    else rows.push({ first: c, last: c, since, before, after });
  }
}
rows.sort((a, b) => a.first - b.first || a.since - b.since);
for (let i = 1; i < rows.length; ++i) {
  if (rows[i].first <= rows[i - 1].last) throw new Error(`U+${rows[i].first.toString(16)} changed twice`);
}
const hex = (x) => '0x' + x.toString(16).toUpperCase();
const lines = rows.map((r) => `{${hex(r.first)}, ${hex(r.last)}, ${r.since}, UTF8PROC_CATEGORY_${r.before.toUpperCase()}, UTF8PROC_CATEGORY_${r.after.toUpperCase()}},`);
const out = '// Made by tools/unicode_tables/generate.mjs. First and last code point, Unicode version since which it\n' +
  '// holds (of 9, 14, 16, 17), general category before and since.\n' + lines.join('\n') + '\n';
fs.writeFileSync(fileURLToPath(new URL('../../src/text/tokenizer/unicode_changes.inc', import.meta.url)), out);
console.log(`${rows.length} rows`);
