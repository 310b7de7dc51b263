// Texts meant to break tokenizers. Seeded: the same list every time.

const decoder = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

/** mulberry32 */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const byHand = [
  '', ' ', '  ', '   ', '\n', '\r', '\r\n', '\n\n', '\t', '\t\n', ' \n', '\n ', ' \n \n ', '\r\r\n\n\r', '\v\f',
  'a', ' a', 'a ', ' a ', '  a  b   c    d     ', 'a\n', 'a\r\nb\r\n', 'a \n\n b', '\u00a0', 'a\u00a0b', '\u3000全角\u3000',
  '\u2028\u2029', '\u200b', 'a\u200bb', '\ufeff', '\ufeffBOM', '\u180e', 'a\u180eb', '\u1680', '\u2000\u2001 \u205f', '\u0085x\u0085',
  "it's we'll I'D YOU'RE they've 'tis 's's'S'lL'Ll''s ' s", "'\u017f'\u017fx I'\u017f", "don't'll've'", "'", "''", "'''s",
  '0', '01', '012', '0123', '01234567890', '1,234.56', '٣٤٥', '①②③', 'Ⅷ', '½¼', '²³', '3rd 4th', '1a2b3c', '一二三', '㊀㊁',
  'Hello, World!', 'ALL CAPS', 'camelCaseAndPascalCase', 'snake_case_words', 'kebab-case', 'http://example.org/?q=1&r=%20#x', 'a@b.c',
  'x = y++ + ++z; // comment', 'if (a && b || !c) { return "q\\"uote"; }', '/* */ <!-- --> {{ }} {% %}', '<html><body class="x">&nbsp;</body></html>',
  '你好,世界!', '这是一个测试。', '「引号」、《书名》', '中文English混排123测试', '繁體字與简体字', '𠀀𠀁𪚥', '㐀㿿', '﨑﨩', '\u{2f800}\u{2fa1d}',
  'ひらがなカタカナ漢字', 'ー〜', 'ﾊﾝｶｸ', 'が', 'か\u3099', '한국어 텍스트', '\u1112\u1161\u11ab\u1100\u1173\u11af', '가\u11a8',
  'Привет мир', 'Ελληνικά άέήίόύώ', '\u1f71\u1f73', 'עברית שלום', 'العربية مرحبا', '\u202eRTL override\u202c', 'ไทยภาษา', 'हिन्दी नमस्ते', 'தமிழ்',
  'é', 'e\u0301', 'e\u0301\u0323', 'e\u0323\u0301', 'a\u030a', 'Å\u212b', '\u0344', '\u0958', '\u09c7\u09be', 'ﬁ ﬂ ﬃ', 'ß ẞ ſ', 'İ I ı i', 'ǅ ǆ Ǆ',
  'Z\u0351\u036b\u0343\u036a\u0302A\u0334\u0335LG\u0300\u0301\u0302O', 'ñ n\u0303', '\u0301', ' \u0301a', '\u0301\u0301\u0301',
  '😀', '😀😃😄', '👍🏽', '👨‍👩‍👧‍👦', '🏳️‍🌈', '🇨🇳🇺🇸', '1️⃣', '☺️☹', '🦙.cpp', 'a😀b', '😀\u200d', '\u200d\u200d', '\ufe0f',
  '\u0000', 'a\u0000b', '\u0001\u0002\u0003', '\u001b[31mred\u001b[0m', '\u007f', '\u0080\u009f', '\u0007bell', '\ufffd', '\ufffe\uffff', '\ue000', '\u{10ffff}',
  'Ġ', 'ĠHello', 'Ċ', '▁', '▁▁', 'a▁b', '▁Hello', '<0x0A>', '<0xE4><0xBD>', '##ing', '</w>', '@@',
  '<s>', '</s>', '<unk>', 'a<s>b</s>c', '<s> x </s> y', '<|endoftext|>', '<|im_start|>user\nhi<|im_end|>\n', '<|im_start|', '<|im_end|><|im_end|>',
  '<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>', '<tool_call>\n{"name": "f"}\n</tool_call>', '<think>\n\n</think>', '<<|im_end|>>',
  '<|fim_prefix|><|fim_', '<|startoftext|>x<|endoftext|>', '[INST] <<SYS>>\nx\n<</SYS>>\n\ny [/INST]', ' <s> ', '\n</s>\n',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis', '!!!!!!!!!!', '..........', '----------', '==========', '。。。。。', '\\\\\\\\',
];

/** Byte strings that are not UTF-8, in every way there is. */
const broken = [
  [0x80], [0xbf, 0xbf], [0xc0, 0xaf], [0xc1, 0xbf], [0xc2], [0xe0, 0x80, 0x80], [0xe0, 0xa0], [0xe4, 0xbd], [0xe4, 0xbd, 0x41],
  [0xed, 0xa0, 0x80], [0xed, 0xb0, 0x80], [0xed, 0xa0, 0x80, 0xed, 0xb0, 0x80], [0xf0, 0x80, 0x80, 0x80], [0xf0, 0x9f], [0xf0, 0x9f, 0x98],
  [0xf0, 0x9f, 0x98, 0x41], [0xf4, 0x90, 0x80, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xf8, 0x88, 0x80, 0x80, 0x80], [0xfe], [0xff, 0xfe],
  [0x61, 0xff, 0x62], [0x20, 0xe4, 0xbd, 0xa0, 0xe5, 0xa5], [0xe4, 0xe4, 0xbd, 0xa0], [0xf0, 0x9f, 0x98, 0x80, 0x80],
];

const alphabets = [
  'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '0123456789', ' ', ' \n', ' \t\r\n', '\'"`’', '.,;:!?-_()[]{}<>/\\|@#$%^&*+=~',
  'éèêëàâäïîôöùûüçñ', 'абвгдежзийклмн', 'αβγδεζηθ', '你好世界天地玄黄宇宙洪荒日月盈昃', '的一是不了人我在有他这中大来上', 'あいうえおカキクケコ', '가나다라마바사',
  'אבגדה', 'ابتثج', 'กขคงจ', 'अआइईउ', '\u0300\u0301\u0302\u0323\u0327\u3099', '\u200b\u200c\u200d\ufeff', '\u00a0\u2003\u3000\u2028', '😀🎉👍🏽🦙\ufe0f',
  '𝐀𝐁𝟘𝟙', '①½²Ⅷ٣', '。，、！？「」《》', '\u0000\u0001\u001b\u007f\u0085', '\ue000\u{f0000}', '▁Ġ',
].map((s) => [...s]);

const words = ['the', ' of', ' and', 'ing', 'tion', "'s", "'LL", '<s>', '</s>', '<unk>', '<|im_end|>', '<|endoftext|>', '<|eot_id|>', '<think>', '\n\n', '  ', '一个', '我们', '什么', '2024', ' New York', 'https://', '{"a": 1}'];

/** [name, bytes][] */
export function nastyTexts() {
  const texts = byHand.map((text, i) => [`hand${i}`, Buffer.from(text, 'utf8')]);
  broken.forEach((bytes, i) => texts.push([`broken${i}`, Buffer.from(bytes)]));
  const next = random(20261121);
  const pick = (list) => list[Math.floor(next() * list.length)];
  for (let i = 0; i < 800; ++i) {
    const used = Array.from({ length: 1 + Math.floor(next() * 4) }, () => pick(alphabets));
    let text = '';
    const length = 1 + Math.floor(next() * (i % 50 === 0 ? 400 : 40));
    for (let k = 0; k < length; ++k) {
      const repeat = next() < 0.1 ? 1 + Math.floor(next() * 12) : 1;
      text += (next() < 0.08 ? pick(words) : pick(pick(used))).repeat(repeat);
    }
    texts.push([`random${i}`, Buffer.from(text, 'utf8')]);
  }
  for (let i = 0; i < 120; ++i) {
    const bytes = Array.from({ length: 1 + Math.floor(next() * 24) }, () => (next() < 0.3 ? 32 + Math.floor(next() * 95) : Math.floor(next() * 256)));
    texts.push([`bytes${i}`, Buffer.from(bytes)]);
  }
  return texts;
}

/** What HF is given: ill-formed parts replaced by U+FFFD as WHATWG says. */
export const toText = (bytes) => decoder.decode(bytes);

/** Printable ASCII; every other byte and '%' as %HH. */
export function escapeBytes(bytes) {
  let out = '';
  for (const b of bytes) {
    out += b > 0x20 && b < 0x7f && b !== 0x25 ? String.fromCharCode(b) : '%' + b.toString(16).toUpperCase().padStart(2, '0');
  }
  return out;
}
