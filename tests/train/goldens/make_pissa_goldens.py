#!/usr/bin/python3
"""Ten steps of a small Llama with PiSSA's and OLoRA's adapters in torch: pissa_losses.json.

Run with Debian's python3-torch:  /usr/bin/python3 tests/train/goldens/make_pissa_goldens.py SHARED
As PEFT does it: the base's weights lose scale B A, and A and B are trained. Written from the
formulas of arXiv 2404.02948 and 2406.01775; the model is make_muon_goldens.py's.
"""
import json
import os
import sys

import torch

from make_muon_goldens import logits_of, read

RANK, ALPHA = 4, 6
TARGETS = ("q_proj", "down_proj")


def start(weight, kind):
    scale = ALPHA / RANK
    if kind == "olora":
        q, r = torch.linalg.qr(weight)
        return r[:RANK].clone(), q[:, :RANK].clone()
    u, s, v = torch.linalg.svd(weight, full_matrices=False)
    root = (s[:RANK] / scale).sqrt()
    return root[:, None] * v[:RANK], u[:, :RANK] * root


def train(weights, config, rows, kind, steps):
    scale, base, adapters = ALPHA / RANK, {}, {}
    for name, weight in weights.items():
        base[name] = weight.clone()
        if any(name.endswith(target + ".weight") for target in TARGETS):
            a, b = start(weight, kind)
            base[name] -= scale * b @ a
            adapters[name] = (a.requires_grad_(True), b.requires_grad_(True))
    trained = [p for pair in adapters.values() for p in pair]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(steps):
        ids, mask, labels = (rows[key][step] for key in ("input_ids", "attention_mask", "labels"))
        full = {n: w + scale * adapters[n][1] @ adapters[n][0] if n in adapters else w for n, w in base.items()}
        total, count = 0, 0
        for row in range(ids.shape[0]):
            kept = mask[row] == 1
            targets = labels[row][kept][1:]
            logits = logits_of(full, config, ids[row][kept])[:-1]
            total = total + torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
            count += int((targets != -100).sum())
        optimizer.zero_grad()
        (total / count).backward()
        losses.append(float(total / count))
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        optimizer.step()
    changes = {n: float((scale * b @ a - (weights[n] - base[n])).norm()) for n, (a, b) in adapters.items()}
    return {"losses": losses, "grad_norms": norms, "changes": changes}


def main():
    golden = os.path.join(sys.argv[1], "golden")
    weights = read(os.path.join(golden, "llama", "model.safetensors"))
    rows = read(os.path.join(golden, "train_llama", "golden.safetensors"))
    with open(os.path.join(golden, "llama", "config.json")) as file:
        config = json.load(file)
    found = {kind: train(weights, config, rows, kind, 10) for kind in ("pissa", "olora")}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pissa_losses.json")
    with open(path, "w") as file:
        json.dump(found, file)
        file.write("\n")


main()
