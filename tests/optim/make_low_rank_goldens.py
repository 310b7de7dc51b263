#!/usr/bin/python3
"""Writes low_rank_goldens.json: updates by GaLore, APOLLO and Adam-mini on small made-up matrices.

Run with Debian's python3-torch:
/usr/bin/python3 tests/optim/make_low_rank_goldens.py > tests/optim/low_rank_goldens.json
In fp64, from the formulas of arXiv 2403.03507 (GaLore), 2412.05270 (APOLLO, whose growth of the norm
is limited as in arXiv 2410.01623) and 2406.16793 (Adam-mini), with what their programs leave open as
they have it: Adam's denominator is not corrected before eps is added in a subspace. The inputs are
formulas that the test repeats (low_rank_test.cpp). Weights decay before a step, and the largest
number of a singular vector is positive.
"""
import json
import math

import torch

torch.set_default_dtype(torch.float64)
SHAPES = {"a.weight": (5, 7), "b.weight": (9, 4), "q.weight": (6, 5), "norm.weight": (7,),
          "embed_tokens.weight": (6, 4)}
B1, B2, EPS, LR, DECAY, STEPS = 0.9, 0.95, 1e-8, 1e-2, 0.1, 7


def tensor(k, shape, step, scale):
    n = math.prod(shape)
    return torch.tensor([scale * math.sin(0.37 * i * i + 1.1 * k + 0.53 * step) for i in range(n)]).view(shape)


def fixed_signs(rows):
    picked = rows.abs().argmax(1, keepdim=True)
    return rows * rows.gather(1, picked).sign()


class Subspace:
    def __init__(self, rank, gap, scale, side, apollo=None):
        self.rank, self.gap, self.scale, self.side, self.apollo = rank, gap, scale, side, apollo
        self.right = self.left = self.last = None
        self.m = self.v = 0.0

    def change(self, g, t):
        tall = g.shape[0] >= g.shape[1]
        side = {"std": "right" if tall else "left", "reverse_std": "left" if tall else "right"}.get(self.side, self.side)
        if (t - 1) % self.gap == 0:
            u, _, vh = torch.linalg.svd(g, full_matrices=False)
            self.right = fixed_signs(vh[: self.rank]) if side != "left" else None
            self.left = fixed_signs(u[:, : self.rank].T).T if side != "right" else None
        low = g
        if self.left is not None:
            low = self.left.T @ low
        if self.right is not None:
            low = low @ self.right.T
        self.m = B1 * self.m + (1 - B1) * low
        self.v = B2 * self.v + (1 - B2) * low ** 2
        n = self.m / (self.v.sqrt() + EPS)
        corrected = math.sqrt(1 - B2 ** t) / (1 - B1 ** t)
        if self.apollo is None:
            if self.left is not None:
                n = self.left @ n
            if self.right is not None:
                n = n @ self.right
            return self.scale * n * corrected
        kind, front = self.apollo
        if kind == "tensor":
            s = g * (n.norm() / (low.norm() + 1e-8))
        else:
            along = 1 if side == "right" else 0
            s = g * (n.norm(dim=along, keepdim=True) / (low.norm(dim=along, keepdim=True) + 1e-8))
        if front:
            s = s * math.sqrt(self.scale)
        norm = s.norm()
        if self.last is not None:
            over = max(float(norm / (self.last + 1e-8)), 1.01) / 1.01
            s, norm = s / over, norm / over
        self.last = norm
        if not front:
            s = s * math.sqrt(self.scale)
        return s * corrected


class Blocks:
    """Second moments of so many blocks; Adam's own denominator."""

    def __init__(self, count):
        self.count, self.m, self.v = count, 0.0, 0.0

    def change(self, g, t):
        self.m = B1 * self.m + (1 - B1) * g
        self.v = B2 * self.v + (1 - B2) * (g ** 2).reshape(self.count, -1).mean(1)
        each = self.v.sqrt() / math.sqrt(1 - B2 ** t) + EPS
        wide = each.view(-1, 1).expand(self.count, g.numel() // self.count).reshape(g.shape)
        return self.m / (1 - B1 ** t) / wide


def run(rules, eps=1e-8):
    global EPS
    EPS = eps
    params = {name: torch.nn.Parameter(tensor(k, shape, 0, 1.0)) for k, (name, shape) in enumerate(SHAPES.items())}
    others = [p for name, p in params.items() if name not in rules]
    adamw = torch.optim.AdamW(others, lr=LR, betas=(B1, B2), eps=EPS, weight_decay=DECAY)
    for step in range(1, STEPS + 1):
        for k, p in enumerate(params.values()):
            p.grad = tensor(k, tuple(p.shape), step, 3.0)
        with torch.no_grad():
            for name, rule in rules.items():
                p = params[name]
                p.mul_(1 - LR * DECAY).sub_(LR * rule.change(p.grad, step))
        adamw.step()
    return {name: p.detach().flatten().tolist() for name, p in params.items()}


def subspaces(*args):
    return {name: Subspace(*args) for name in ("a.weight", "b.weight", "q.weight")}


goldens = {f"galore_{side}": run(subspaces(2, 3, 0.25, side))
           for side in ("std", "reverse_std", "right", "left")}
# Between its own singular vectors a gradient is diagonal: Adam would make the noise of rounding as
# large as the rest.
goldens["galore_full"] = run(subspaces(2, 3, 0.25, "full"), eps=1e-2)
goldens["galore_whole"] = run(subspaces(50, 100, 1.0, "std"))
goldens["apollo_channel"] = run(subspaces(2, 3, 4.0, "std", ("channel", False)))
goldens["apollo_tensor"] = run(subspaces(1, 3, 9.0, "left", ("tensor", True)))
goldens["adam_mini"] = run({"a.weight": Blocks(1), "b.weight": Blocks(1), "q.weight": Blocks(3),
                            "norm.weight": Blocks(1)})
print(json.dumps({name: {k: [round(x, 9) for x in v] for k, v in params.items()} for name, params in goldens.items()}))
