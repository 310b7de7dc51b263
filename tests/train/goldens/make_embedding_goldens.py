#!/usr/bin/env python3
"""Losses of vectors of texts, and their gradients, as torch computes them: embedding_losses.json.

Rows of the matrix are not of length one. Groups are [anchor, positive, negatives...], rows in
order. Written from the formulas of arXiv 1807.03748 (InfoNCE), with what ms-swift's documentation
says of its options, a row at a time.
"""
import json
import os

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
GROUPS = {"equal": [4, 4, 4], "unequal": [2, 4, 3, 5], "lone": [3]}


def infonce(x, sizes, temperature=0.1, use_batch=True, hard=None, mask=False, margin=0.1, qq=False,
            dd=False):
    unit = F.normalize(x, dim=1)
    groups, start = [], 0
    for size in sizes:
        anchor, positive = unit[start], unit[start + 1]
        negatives = [unit[i] for i in range(start + 2, start + size)]
        if hard is not None:
            negatives = [negatives[i % len(negatives)] for i in range(hard)]
        groups.append((anchor, positive, negatives))
        start += size
    total = 0
    for i, (anchor, positive, negatives) in enumerate(groups):
        right = anchor @ positive
        limit = right.item() + margin
        against = []
        for j, (other, fits, others) in enumerate(groups):
            if use_batch or i == j:
                for k, text in enumerate([fits] + others):
                    if i == j and k == 0:
                        continue
                    cosine = anchor @ text
                    if use_batch and mask and cosine.item() > limit:
                        continue
                    against.append(cosine)
            if use_batch and qq and i != j:
                cosine = anchor @ other
                if not (mask and cosine.item() > limit):
                    against.append(cosine)
            if use_batch and dd:
                for k, text in enumerate([fits] + others):
                    if not (i == j and k == 0):
                        against.append(positive @ text)
        logits = torch.stack([right] + against) / temperature
        total = total + F.cross_entropy(logits[None], torch.zeros(1, dtype=torch.long))
    return total


def pairs(x):
    return F.cosine_similarity(x[0::2], x[1::2])


def cosine(x, labels):
    return F.mse_loss(pairs(x), labels, reduction="sum")


def contrastive(x, labels):
    d = 1 - pairs(x)
    return sum(0.5 * d[i]**2 if labels[i] == 1 else 0.5 * torch.clamp(0.5 - d[i], min=0)**2
               for i in range(len(labels)))


def online(x, labels):
    d = 1 - pairs(x)
    fitting = [v for v, y in zip(d, labels) if y == 1]
    others = [v for v, y in zip(d, labels) if y == 0]
    mean = lambda some: sum(v.item() for v in some) / len(some)
    loss = 0 * d.sum()
    if others:
        limit = max(v.item() for v in fitting) if len(fitting) > 1 else mean(others)
        loss = loss + sum(torch.clamp(0.5 - v, min=0)**2 for v in others if v.item() < limit)
    if fitting:
        limit = min(v.item() for v in others) if len(others) > 1 else mean(fitting)
        loss = loss + sum(v**2 for v in fitting if v.item() > limit)
    return loss


def case(name, x, loss, **told):
    x = x.clone().requires_grad_(True)
    value = loss(x)
    value.backward()
    return {"name": name, "vectors": x.tolist(), "loss": value.item(), "grad": x.grad.tolist(),
            **told}


def main():
    torch.manual_seed(20)
    cases = []
    options = [("plain", {}), ("cold", {"temperature": 0.02}), ("own", {"use_batch": False}),
               ("hard2", {"hard": 2}), ("mask", {"mask": True, "margin": 0.05}),
               ("qq", {"qq": True}), ("dd", {"dd": True}),
               ("all", {"qq": True, "dd": True, "mask": True, "margin": 0.0})]
    for kind, sizes in GROUPS.items():
        for name, told in options:
            if 2 in sizes and ("hard" in told or "use_batch" in told):
                continue
            x = torch.randn(sum(sizes), 5)
            cases.append(case(f"infonce {kind} {name}", x, lambda x: infonce(x, sizes, **told),
                              kind="infonce", sizes=sizes, options=told))
    for name, labels in [("mixed", [1., 0., 1., 0., 1., 0., 1., 0.]), ("fits", [1., 1., 1.]),
                         ("differs", [0., 0., 0.]), ("one", [1., 0.]), ("few", [0., 1., 0.])]:
        for kind, loss in [("contrastive", contrastive), ("online_contrastive", online)]:
            # Near and far pairs both, so that margins matter.
            x = torch.randn(2 * len(labels), 4)
            x[1::2] = 0.6 * x[0::2] + 0.7 * x[1::2]
            cases.append(case(f"{kind} {name}", x, lambda x: loss(x, torch.tensor(labels)),
                              kind=kind, labels=labels))
    labels = [0.8, -0.25, 0.0, 1.0]
    cases.append(case("cosine_similarity", torch.randn(8, 4),
                      lambda x: cosine(x, torch.tensor(labels)), kind="cosine_similarity",
                      labels=labels))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "embedding_losses.json")
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
