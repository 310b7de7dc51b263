#!/usr/bin/env python3
"""Writes gpt_index.json: sample orders, splits, blends and cache names computed with numpy alone.

The rules are written down in docs/formats/megatron_indexed.md. This script is a second implementation
of them (Python integers, numpy arrays, numpy's RandomState, json.dumps, hashlib), so that an error has
to be made twice to go unseen. Run: python3 make_gpt_index_goldens.py > gpt_index.json  (numpy 1.24.2)
"""
import hashlib
import io
import json
import math

import numpy as np


def npy_md5(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return hashlib.md5(buffer.getvalue()).hexdigest()


def order(lengths, first, last, seq, num_samples, seed, extra, drop):
    tokens = int(sum(int(v) for v in lengths[first:last]))
    epochs = 1
    while num_samples is not None and epochs * tokens < num_samples * seq + extra:
        epochs += 1
    separate, before = False, None
    if epochs > 1:
        before = ((epochs - 1) * tokens - extra) // seq
        separate = num_samples - before < int(0.80 * ((tokens - extra) // seq))
    random = np.random.RandomState(seed)
    groups = [epochs - 1, 1] if separate else [epochs]
    parts = []
    for group in groups:
        part = np.tile(np.arange(first, last, dtype=np.int32), group)
        random.shuffle(part)
        parts.append(part)
    documents = np.concatenate(parts)
    if drop:
        count = (epochs * tokens - extra) // seq
    else:
        count = math.ceil(float(np.float32(np.float32(epochs * tokens - extra) / np.float32(seq))))
    # Every token of the stream as (position in documents, offset); sample k starts at token k * seq.
    stream = [(p, o) for p, d in enumerate(documents) for o in range(int(lengths[d]))]
    rows = [(0, 0)]
    for k in range(1, count + 1):
        at = k * seq + extra - 1  # the last token that sample k - 1 uses
        if at < len(stream):
            position, offset = stream[at]
            rows.append((position, offset + 1 - extra))
        else:
            rows.append((len(documents) - 1, int(lengths[documents[-1]]) - extra))
    head = np.arange(before if separate else count, dtype=np.uint32)
    random.shuffle(head)
    tail = np.arange(len(head), count, dtype=np.uint32)
    random.shuffle(tail)
    return documents, np.array(rows, dtype=np.int64), np.concatenate([head, tail]), epochs, separate


def order_case(rng, number):
    n = int(rng.randint(1, 40))
    lengths = rng.randint(0, 30, size=n)
    lengths[rng.randint(n)] += 7
    first = int(rng.randint(0, n)) if number % 3 == 0 else 0
    last = n
    if lengths[first:last].sum() == 0:
        first = 0
    seq = int(rng.randint(1, 24))
    if number % 10 == 9:
        seq = 200
    num_samples = None if number % 5 == 0 else int(rng.randint(1, 160))
    extra = 0 if number % 7 == 6 else 1
    # Keeping a partial sample is only asked of one epoch here: with several, Megatron's last offset
    # may lie before the previous one.
    drop = not (number % 4 == 1)
    seed = int(rng.randint(0, 2**31))
    documents, rows, shuffle, epochs, separate = order(
        lengths, first, last, seq, num_samples, seed, extra, drop)
    return {
        "lengths": [int(v) for v in lengths], "first": first, "last": last, "sequence_length": seq,
        "num_samples": num_samples, "seed": seed, "extra": extra, "drop": drop, "epochs": epochs,
        "separate": bool(separate), "total": len(shuffle), "documents_npy": npy_md5(documents),
        "samples_npy": npy_md5(rows), "shuffle_npy": npy_md5(shuffle),
    }


def normalize(values):
    values = np.array(values, dtype=np.float64)
    return (values / np.sum(values)).tolist()


def split_case(text, count):
    shares = normalize(([float(v) for v in text.split(",")] + [0.0, 0.0])[:3])
    bounds = [0]
    for share in shares:
        bounds.append(bounds[-1] + share)
    ranges = [None if high <= low else [int(round(low * float(count))), int(round(high * float(count)))]
              for low, high in zip(bounds, bounds[1:])]
    old = [0]
    for share in [v / sum(shares) for v in shares]:
        old.append(old[-1] + int(round(share * float(count))))
    excess = old[-1] - count
    old = [old[0]] + [v - excess for v in old[1:]]
    return {"text": text, "count": count, "ranges": ranges, "legacy": old}


def blend_case(weights, size):
    shares = normalize(normalize(weights))
    taken = np.zeros(len(shares))
    dataset = np.zeros(size, dtype=np.int16)
    sample = np.zeros(size, dtype=np.int64)
    for s in range(size):
        best = int(np.argmax(np.array(shares) * max(s, 1) - taken))
        dataset[s], sample[s] = best, taken[best]
        taken[best] += 1
    target = size // 2
    sizes = [int(math.ceil(target * w * 1.005)) for w in normalize(weights)]
    return {"weights": weights, "size": size, "shares": [v.hex() for v in shares],
            "target": target, "sizes": sizes,
            "dataset_npy": npy_md5(dataset), "sample_npy": npy_md5(sample)}


def identity_case(split, path, num_samples, tokenizer):
    shares = normalize(([float(v) for v in split.split(",")] + [0.0, 0.0])[:3])
    bounds = [0]
    for share in shares:
        bounds.append(bounds[-1] + share)
    matrix = [None if high <= low else (low, high) for low, high in zip(bounds, bounds[1:])]
    identity = {"class": "GPTDataset", "dataset_path": path, "num_samples": num_samples,
                "index_split": "train", "random_seed": 1234, "sequence_length": 4096, "split": split,
                "split_matrix": matrix, "tokenizer": tokenizer}
    text = json.dumps(identity, indent=4)
    return {"split": split, "path": path, "num_samples": num_samples, "tokenizer": tokenizer,
            "text": text, "md5": hashlib.md5(text.encode("utf-8")).hexdigest()}


def main():
    rng = np.random.RandomState(7)
    out = {"numpy": np.__version__}
    out["orders"] = [order_case(rng, i) for i in range(60)]
    out["splits"] = [split_case(t, n) for t in ("99,1,0", "969,30,1", "98,2,0", "949,50,1", "1,1,1", "0.7,0.3", "5")
                     for n in (1, 2, 5, 10, 33, 50, 99, 1000, 100001)]
    out["blends"] = [blend_case(w, n) for w, n in (
        ([0.5, 0.3, 0.2], 12), ([3, 2, 5, 1.7], 500), (rng.rand(9).tolist(), 400),
        (rng.rand(130).tolist(), 700), (rng.rand(300).tolist(), 900), ([1.0], 5))]
    plain = {"class": "HFTokenizer", "tokenizer_path": ["/m/Qwen2.5-7B"]}
    odd = {"class": "分词器", "tokenizer_path": [], "padding": "True", "note": "tab\t\"q\" \\ \x7f \U0001f600"}
    out["identities"] = [identity_case("99,1,0", "/data/alpaca_text_document", 2000, plain),
                         identity_case("969, 30, 1", "/数据/文本", None, odd),
                         identity_case("1,0,0", "x", 1, {})]
    out["floats"] = [[v.hex(), repr(v)] for v in (
        0.1, 1.0, 1e16, 123456789012345680.0, 9999999999999998.0, 1e-4, 0.00012345, 1e-5, 1.5e-7, 0.99, 1 / 3, 1e22, 5e-324,
        1.7976931348623157e308, 0.0, -2.5)]
    lines = [json.dumps(key) + ": " + (json.dumps(value) if isinstance(value, str) else
             "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]") for key, value in out.items()]
    print("{" + ",\n".join(lines) + "}")


main()
