"""Trains small SentencePiece models of every kind and writes what the library makes of many texts.

  sentencepiece_oracle.py DIRECTORY TEXT_FILE...   ->  DIRECTORY/<name>/{tokenizer.model,expected.json}
"""
import json
import os
import random
import sys

import sentencepiece


def fields(data):
    """(start, end, number, wire type, value start) of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        start = at
        tag = varint()
        if tag & 7 == 0:
            body = at
            varint()
        elif tag & 7 == 5:
            body = at
            at += 4
        elif tag & 7 == 1:
            body = at
            at += 8
        else:
            size = varint()
            body = at
            at += size
        yield start, at, tag >> 3, tag & 7, body


def with_unused(model, is_unused, is_removed):
    """The model with some ordinary pieces marked unused, and others gone."""
    out = b''
    for start, end, number, _, body in fields(model):
        message = model[body:end]
        if number == 1:
            inner = list(fields(message))
            text = next(message[b:e].decode() for _, e, n, _, b in inner if n == 1)
            ordinary = all(n != 3 for _, _, n, _, _ in inner)
            if ordinary and is_removed(text):
                continue
            if ordinary and is_unused(text):
                message += b'\x18\x05'
                out += b'\x0a' + bytes([len(message)]) + message
                continue
        out += model[start:end]
    return out


def texts_of(corpus, kept, rng):
    lines = [line for line in corpus if line]
    odd = ['\u00a0', '\u3000', '\u2581', '\ufb01', '\uff21', 'e\u0301', '\u0301', '\u2460', '\u00bd', '\u1e9b\u0323', '\uac00',
           '\u1100\u1161', '\u200b', '\ufeff', '\ufffd', '\x00', '\x01', '\x7f', '\t', '\n', '\r\n', '\U0001F600', '\U0001F468\u200d\U0001F469',
           '\U00020000', '\u0130', '\u00df', '\u0915\u094d\u0937', '0', '42', '--', '...']
    texts = ['', ' ', '  ', '\t', '\u2581', ' a', 'a ', '  a  b  ', 'a' * 300, '\u2581' * 40, ' ' * 50 + 'x', 'ab' * 200, '\x01', '\x01\x01 ']
    for _ in range(1500):
        parts = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.randrange(8)
            if kind < 3:
                line = rng.choice(lines)
                start = rng.randrange(len(line))
                parts.append(line[start:start + rng.randrange(1, 60)])
            elif kind == 3:
                parts.append(rng.choice(odd) * rng.randrange(1, 4))
            elif kind == 4:
                parts.append(' ' * rng.randrange(1, 5))
            elif kind == 5:
                parts.append(''.join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xA0, 0x3000), rng.randrange(0x4E00, 0x9FFF),
                                                     rng.randrange(0x1F300, 0x1F700)])) for _ in range(rng.randrange(1, 12))))
            elif kind == 6 and kept:
                parts.append(rng.choice(kept))
            else:
                parts.append(rng.choice('abeot\u7684\u4e00') * rng.randrange(1, 90))
        texts.append(''.join(parts))
    texts.append(''.join(rng.choice('abcdefghijklmnopqrstuvwxyz') for _ in range(5000)))
    texts.append(''.join(lines)[:20000].replace(' ', ''))
    # Names of special tokens in a text are Danlu's own affair.
    return [text.replace('<', '(') for text in texts]


def main():
    directory, *sources = sys.argv[1:]
    corpus = []
    for source in sources:
        with open(source, encoding='utf-8') as file:
            corpus += [line[:200] for line in file.read().split('\n')[:1000]]
    corpus_file = os.path.join(directory, 'corpus.txt')
    with open(corpus_file, 'w', encoding='utf-8') as file:
        file.write('\n'.join(corpus))
    kept = ['[sep]', 'ab', '\u2581of', '\u7684\u4eba', '\uff21', ' x']
    variants = {
        'unigram': dict(model_type='unigram', byte_fallback=True),
        'unigram_kept': dict(model_type='unigram', normalization_rule_name='identity', user_defined_symbols=kept, remove_extra_whitespaces=False),
        'unigram_suffix': dict(model_type='unigram', treat_whitespace_as_suffix=True, normalization_rule_name='nfkc_cf'),
        'bpe': dict(model_type='bpe', normalization_rule_name='nmt_nfkc_cf', user_defined_symbols=kept),
        'bpe_llama': dict(model_type='bpe', normalization_rule_name='identity', byte_fallback=True, split_digits=True,
                          remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
        'bpe_suffix': dict(model_type='bpe', treat_whitespace_as_suffix=True, split_by_whitespace=False),
        'bpe_bare': dict(model_type='bpe', add_dummy_prefix=False, byte_fallback=True),
        'word': dict(model_type='word', user_defined_symbols=kept),
        'char': dict(model_type='char', user_defined_symbols=kept),
    }
    models = {}
    for name, options in variants.items():
        options = dict(dict(vocab_size=3000, character_coverage=0.98, hard_vocab_limit=False, num_threads=1, minloglevel=2), **options)
        prefix = os.path.join(directory, name)
        sentencepiece.SentencePieceTrainer.train(input=corpus_file, model_prefix=prefix, **options)
        with open(prefix + '.model', 'rb') as file:
            models[name] = file.read()
    is_unused = lambda text: len(text) > 1 and sum(map(ord, text)) % 5 == 0
    models['bpe_unused'] = with_unused(models['bpe_llama'], is_unused, lambda text: text in ('e', 't', 'n'))
    models['unigram_unused'] = with_unused(models['unigram_kept'], is_unused, lambda text: False)
    models['bpe_holes'] = with_unused(models['bpe'], lambda text: False, lambda text: text in ('e', 't', 'n'))

    rng = random.Random(20261125)
    for name, model in models.items():
        os.makedirs(os.path.join(directory, name), exist_ok=True)
        path = os.path.join(directory, name, 'tokenizer.model')
        with open(path, 'wb') as file:
            file.write(model)
        processor = sentencepiece.SentencePieceProcessor(model_file=path)
        texts = texts_of(corpus, kept, rng)
        encoded = [[text, processor.encode(text)] for text in texts]
        # Danlu writes control tokens and the unknown one by their names.
        ordinary = [i for i in range(processor.get_piece_size()) if not processor.is_control(i) and not processor.is_unknown(i)]
        lists = [[i for i in ids if i != processor.unk_id()] for _, ids in encoded[:300]]
        lists += [[rng.choice(ordinary[:300] if i % 3 == 0 else ordinary) for _ in range(rng.randrange(12))] for i in range(1000)]
        decoded = [[ids, processor.decode(ids)] for ids in lists]
        with open(os.path.join(directory, name, 'expected.json'), 'w', encoding='utf-8') as file:
            json.dump({'encoded': encoded, 'decoded': decoded}, file, ensure_ascii=False)


main()
