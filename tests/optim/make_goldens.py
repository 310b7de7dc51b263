#!/usr/bin/python3
"""Writes goldens.json: torch.optim.AdamW, clip_grad_norm_ and torch's schedulers on small made-up inputs.

Run with Debian's python3-torch:  /usr/bin/python3 tests/optim/make_goldens.py > tests/optim/goldens.json
The inputs are formulas that the test repeats (see adamw_test.cpp), so the file holds results only.
"""
import json
import math

import torch

SHAPES = {"layer.weight": (5, 7), "layer.bias": (5,), "norm.weight": (7,)}


def value(k, i, step):
    return math.sin(0.37 * i + 1.1 * k + 0.53 * step)


def tensor(k, shape, step, scale):
    n = math.prod(shape)
    return torch.tensor([scale * value(k, i, step) for i in range(n)], dtype=torch.float32).view(shape)


def run(decay_all, clip):
    params = {name: torch.nn.Parameter(tensor(k, shape, 0, 1.0)) for k, (name, shape) in enumerate(SHAPES.items())}
    matrices = [p for p in params.values() if p.dim() >= 2]
    rest = [p for p in params.values() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.1 if decay_all else 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    norms = []
    for step in range(1, 7):
        for k, p in enumerate(params.values()):
            p.grad = tensor(k, tuple(p.shape), step, 3.0)
        if clip:
            norms.append(float(torch.nn.utils.clip_grad_norm_(params.values(), clip)))
        optimizer.step()
    return {"norms": norms, "params": {name: p.detach().flatten().tolist() for name, p in params.items()}}


def cosine(lr, min_lr, steps):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=min_lr)
    rates = []
    for _ in range(steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def polynomial(lr, steps, power):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=lr)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=steps, power=power)
    rates = []
    for _ in range(steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


print(json.dumps({
    "torch": torch.__version__,
    "adamw_decay_all_clip_1": run(True, 1.0),
    "adamw_decay_matrices_no_clip": run(False, 0.0),
    "cosine_1e-3_1e-5_10": cosine(1e-3, 1e-5, 10),
    "polynomial_1e-3_0_10_power_2": polynomial(1e-3, 10, 2.0),
}, indent=1))
