"""The peer of tokenize.mjs for a tokenizer.model: SentencePiece's library, one thread.

  sentencepiece_peer.py MODEL FILE [whole]
"""
import json
import sys
import time

import sentencepiece

model, file, *whole = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=model)
with open(file, 'rb') as source:
    data = source.read()
texts = [data] if whole else data.split(b'\n')
if not whole and texts[-1] == b'':
    texts.pop()
bos = [processor.bos_id()] if processor.bos_id() >= 0 else []
speeds = []
for _ in range(2):
    start = time.process_time()
    tokens = 0
    for text in texts:
        tokens += len(processor.encode(text)) + len(bos)
    speeds.append(len(data) / 1e6 / (time.process_time() - start))

low, high = 0x811c9dc5, 0x27220a95
for text in texts:
    for value in bos + processor.encode(text) + [-1]:
        low = ((low ^ value & 0xffffffff) * 0x01000193) & 0xffffffff
        low ^= low >> 15
        high = ((high ^ value & 0xffffffff) * 0x5bd1e995) & 0xffffffff
        high ^= high >> 13
print(json.dumps({'tokens': tokens, 'ids': f'{high:08x}{low:08x}', 'mb_per_s_first': speeds[0], 'mb_per_s': speeds[1]}))
