#!/usr/bin/python3
"""Writes muon_goldens.json: Newton-Schulz iterations and updates by Muon on small made-up matrices.

Run with Debian's python3-torch:  /usr/bin/python3 tests/optim/make_muon_goldens.py > tests/optim/muon_goldens.json
In fp64, from the formulas of arXiv 2502.16982 (Moonlight: a sum as momentum, 0.2 sqrt(max(rows, cols))) and
of NVIDIA's Emerging-Optimizers, whose momentum is a mean: that both give one direction is part of
what is tested. The inputs are formulas that the test repeats (muon_test.cpp).
"""
import json
import math

import torch

torch.set_default_dtype(torch.float64)
SHAPES = {"a.weight": (5, 7), "b.weight": (9, 4), "norm.weight": (7,), "embed_tokens.weight": (6, 4)}
SETS = {
    "simple": [(3.4445, -4.7750, 2.0315)] * 5,
    "quintic": [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
                (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)],
    "polar_express": [(8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250),
                      (3.2856, -2.4153, 0.4853), (2.2779, -1.6198, 0.3985), (1.8726, -1.2307, 0.3585),
                      (1.8564, -1.2132, 0.3568)] + [(1.8750, -1.2500, 0.3750)] * 2,
    "aol": [(4.0098, -7.0585, 2.4635), (3.4585, -5.5479, 2.5959), (2.7573, -3.2939, 1.4254),
            (2.7215, -3.0494, 1.3169)] * 2,
}


def tensor(k, shape, step, scale):
    n = math.prod(shape)
    return torch.tensor([scale * math.sin(0.37 * i * i + 1.1 * k + 0.53 * step) for i in range(n)]).view(shape)


def newton_schulz(g, steps):
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for a, b, c in steps:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if g.shape[0] > g.shape[1] else x


SCALES = {
    "spectral": lambda rows, cols: max(rows, cols) ** 0.5,
    "unit_rms_norm": lambda rows, cols: (rows / cols) ** 0.5,
    "shape_scaling": lambda rows, cols: max(1, rows / cols) ** 0.5,
}


def run(decay_all, momentum, nesterov, is_mean, steps, scale, factor):
    params = {name: torch.nn.Parameter(tensor(k, shape, 0, 1.0)) for k, (name, shape) in enumerate(SHAPES.items())}
    matrices = [params["a.weight"], params["b.weight"]]
    vectors = [params["norm.weight"]]
    table = [params["embed_tokens.weight"]]
    lr, decay = 1e-2, 0.1
    adamw = torch.optim.AdamW([{"params": vectors, "weight_decay": decay if decay_all else 0.0},
                               {"params": table, "weight_decay": decay}], lr=lr, betas=(0.9, 0.95), eps=1e-8)
    buffers = [torch.zeros_like(p) for p in matrices]
    for step in range(1, 7):
        for k, p in enumerate(params.values()):
            p.grad = tensor(k, tuple(p.shape), step, 3.0)
        with torch.no_grad():
            for p, buffer in zip(matrices, buffers):
                if is_mean:
                    buffer.lerp_(p.grad, 1 - momentum)
                    g = p.grad.lerp(buffer, momentum) if nesterov else buffer
                else:
                    buffer.mul_(momentum).add_(p.grad)
                    g = p.grad + momentum * buffer if nesterov else buffer
                p.mul_(1 - lr * decay).sub_(lr * factor * SCALES[scale](*p.shape) * newton_schulz(g, steps))
        adamw.step()
    return {name: p.detach().flatten().tolist() for name, p in params.items()}


print(json.dumps({
    "torch": torch.__version__,
    "iterations": [{"set": name, "steps": len(steps), "shape": list(shape),
                    "result": newton_schulz(tensor(3, shape, 2, 40.0), steps).flatten().tolist()}
                   for name, steps in SETS.items() for shape in [(5, 7), (9, 4), (6, 6), (1, 8)]],
    "moonlight": run(True, 0.95, True, False, SETS["simple"], "spectral", 0.2),
    "megatron": run(False, 0.9, False, True, SETS["quintic"], "unit_rms_norm", 1.5),
    "megatron_nesterov": run(False, 0.9, True, True, SETS["aol"], "shape_scaling", 1.0),
}, indent=1))
