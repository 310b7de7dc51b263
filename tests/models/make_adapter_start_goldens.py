#!/usr/bin/python3
"""Writes adapter_start.json: what PiSSA and OLoRA take from small made-up matrices.

Run with Debian's python3-torch:  /usr/bin/python3 tests/models/make_adapter_start_goldens.py > tests/models/adapter_start.json
Signs of singular vectors are free, so the products B A are here, and the lengths of rows and
columns. The inputs are formulas that the test repeats (adapter_start_test.cpp).
"""
import json
import math

import torch

torch.set_default_dtype(torch.float64)


def tensor(rows, cols):
    # Singular values that fall off, so that few of them are most of the matrix.
    x = torch.tensor([math.sin(0.37 * i * i + 0.11 * i) for i in range(rows * cols)]).view(rows, cols)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return u @ torch.diag(s * 0.6 ** torch.arange(len(s))) @ v


def case(rows, cols, rank, scale):
    weight = tensor(rows, cols)
    u, s, v = torch.linalg.svd(weight, full_matrices=False)
    q, r = torch.linalg.qr(weight)
    root = (s[:rank] / scale).sqrt()
    a, b = root[:, None] * v[:rank], u[:, :rank] * root
    return {"rows": rows, "cols": cols, "rank": rank, "scale": scale, "weight": weight.flatten().tolist(),
            "pissa": (b @ a).flatten().tolist(), "a_lengths": a.norm(dim=1).tolist(),
            "b_lengths": b.norm(dim=0).tolist(),
            "olora": (q[:, :rank] @ r[:rank]).flatten().tolist(), "olora_b_lengths": q[:, :rank].norm(dim=0).tolist()}


print(json.dumps([case(12, 7, 3, 2.0), case(6, 11, 2, 0.5), case(5, 5, 5, 1.0)]))
