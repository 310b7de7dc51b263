#!/usr/bin/python3
"""Twenty steps of a small Llama with Muon in torch: muon_losses.json.

Run with Debian's python3-torch:  /usr/bin/python3 tests/train/goldens/make_muon_goldens.py SHARED
SHARED/golden has the model (llama) and its rows (train_llama). The model is written out below; with
torch.optim.AdamW it must give the losses that Hugging Face's gave, or nothing is written. Muon is
Moonlight's rule (arXiv 2502.16982) from its formulas, in fp32.
"""
import json
import math
import os
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

DTYPES = {"F32": numpy.float32, "I64": numpy.int64}


def read(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors


def norm(x, weight, eps):
    return weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))


def rotated(x, theta):  # x [heads, T, D]
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32),
                         theta ** (-torch.arange(half, dtype=torch.float32) / half))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def logits_of(p, config, ids):
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    eps, width = config["rms_norm_eps"], config["hidden_size"] // config["num_attention_heads"]
    x = p["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = norm(x, p[at + "input_layernorm.weight"], eps)
        split = lambda name, n: (h @ p[f"{at}self_attn.{name}.weight"].T).view(-1, n, width).transpose(0, 1)
        q, k = (rotated(split(name, n), config["rope_theta"])
                for name, n in [("q_proj", heads), ("k_proj", groups)])
        v = split("v_proj", groups)
        k, v = (t.repeat_interleave(heads // groups, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(width)
        mask = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        seen = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
        x = x + seen.transpose(0, 1).reshape(len(ids), -1) @ p[at + "self_attn.o_proj.weight"].T
        h = norm(x, p[at + "post_attention_layernorm.weight"], eps)
        gate = F.silu(h @ p[at + "mlp.gate_proj.weight"].T)
        x = x + (gate * (h @ p[at + "mlp.up_proj.weight"].T)) @ p[at + "mlp.down_proj.weight"].T
    return norm(x, p["model.norm.weight"], eps) @ p["lm_head.weight"].T


def orthogonalised(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class Muon:
    def __init__(self, params, lr, decay, momentum=0.95):
        self.params, self.lr, self.decay, self.momentum = params, lr, decay, momentum
        self.buffers = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self):
        for p, buffer in zip(self.params, self.buffers):
            buffer.mul_(self.momentum).add_(p.grad)
            update = orthogonalised(p.grad + self.momentum * buffer)
            p.mul_(1 - self.lr * self.decay)
            p.sub_(self.lr * 0.2 * math.sqrt(max(p.shape)) * update)


def train(start, config, rows, make):
    params = {name: tensor.clone().requires_grad_(True) for name, tensor in start.items()}
    optimizers = make(params)
    losses, norms = [], []
    for ids, mask, labels in zip(rows["input_ids"], rows["attention_mask"], rows["labels"]):
        total, count = 0, 0
        for row in range(ids.shape[0]):
            kept = mask[row] == 1
            own, targets = ids[row][kept], labels[row][kept][1:]
            logits = logits_of(params, config, own)[:-1]
            total = total + F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
            count += int((targets != -100).sum())
        for p in params.values():
            p.grad = None
        (total / count).backward()
        losses.append(float(total / count))
        norms.append(float(torch.nn.utils.clip_grad_norm_(params.values(), 1.0)))
        for optimizer in optimizers:
            optimizer.step()
    return losses, norms, params


def main():
    golden = os.path.join(sys.argv[1], "golden")
    start = read(os.path.join(golden, "llama", "model.safetensors"))
    rows = read(os.path.join(golden, "train_llama", "golden.safetensors"))
    with open(os.path.join(golden, "llama", "config.json")) as file:
        config = json.load(file)
    adamw = lambda params: torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms, _ = train(start, config, rows, lambda p: [adamw(list(p.values()))])
    far = max(abs(a - float(b)) for a, b in zip(losses, rows["losses"]))
    assert far < 1e-4, f"this is not Hugging Face's model: its losses differ by {far}"

    def muon(params):
        matrices = {n: p for n, p in params.items() if p.dim() == 2 and "embed" not in n and "lm_head" not in n}
        return [Muon(list(matrices.values()), 1e-3, 0.1),
                adamw([p for n, p in params.items() if n not in matrices])]

    losses, norms, params = train(start, config, rows, muon)
    ends = {name: p.detach().flatten()[:8].tolist() for name, p in params.items()}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "muon_losses.json")
    with open(path, "w") as file:
        json.dump({"losses": losses, "grad_norms": norms, "first_weights": ends}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
