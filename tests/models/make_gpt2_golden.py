#!/usr/bin/python3
"""Writes tests/models/goldens/gpt2.safetensors: a small GPT-2 computed with PyTorch, to hold against ours.

Run with Debian's python3-torch:  /usr/bin/python3 tests/models/make_gpt2_golden.py
Each text is computed by itself, dense, in float64, by torch's own layer_norm, gelu, softmax and cross_entropy; Conv1D
is x @ weight + bias, as in transformers' pytorch_utils.py, and what stands between them follows modeling_gpt2.py.
"""
import math, pathlib
import torch
import torch.nn.functional as F

from make_goldens import save_safetensors

LAYERS, HEADS, HIDDEN, INNER, VOCABULARY, POSITIONS = 2, 4, 16, 40, 31, 12
TEXTS = [[5, 9, 2, 7, 30, 4, 3, 3, 20, 8, 1, 11], [8, 6], [4, 4, 17, 2, 29]]


def weights():
    torch.manual_seed(20)
    shapes = {"wte.weight": (VOCABULARY, HIDDEN), "wpe.weight": (POSITIONS, HIDDEN)}
    for layer in range(LAYERS):
        for norm in ("ln_1", "ln_2"):
            shapes[f"h.{layer}.{norm}"] = HIDDEN
        for name, rows, columns in (("attn.c_attn", HIDDEN, 3 * HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN),
                                    ("mlp.c_fc", HIDDEN, INNER), ("mlp.c_proj", INNER, HIDDEN)):
            shapes[f"h.{layer}.{name}.weight"] = (rows, columns)
            shapes[f"h.{layer}.{name}.bias"] = (columns,)
    shapes["ln_f"] = HIDDEN
    made = {}
    for name, shape in shapes.items():
        if isinstance(shape, int):
            made[f"transformer.{name}.weight"] = 1 + 0.2 * torch.randn(shape, dtype=torch.float64)
            made[f"transformer.{name}.bias"] = 0.2 * torch.randn(shape, dtype=torch.float64)
        else:
            made[f"transformer.{name}"] = 0.3 * torch.randn(shape, dtype=torch.float64)
    # Of numbers that F32 files hold exactly.
    return {name: tensor.float().double().requires_grad_() for name, tensor in made.items()}


def logits(of, ids):
    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), of(name + ".weight"), of(name + ".bias"), 1e-5)

    def conv1d(x, name):
        return torch.addmm(of(name + ".bias"), x, of(name + ".weight"))

    x = F.embedding(ids, of("wte.weight")) + F.embedding(torch.arange(len(ids)), of("wpe.weight"))
    hidden = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        name = f"h.{layer}."
        parts = conv1d(norm(x, name + "ln_1"), name + "attn.c_attn").split(HIDDEN, dim=1)
        query, key, value = (part.view(len(ids), HEADS, -1).transpose(0, 1) for part in parts)
        scores = (query @ key.transpose(1, 2) / math.sqrt(HIDDEN // HEADS)).masked_fill(hidden, -math.inf)
        seen = (scores.softmax(-1) @ value).transpose(0, 1).reshape(len(ids), HIDDEN)
        x = x + conv1d(seen, name + "attn.c_proj")
        x = x + conv1d(F.gelu(conv1d(norm(x, name + "ln_2"), name + "mlp.c_fc"), approximate="tanh"), name + "mlp.c_proj")
    return norm(x, "ln_f") @ of("wte.weight").t()


def main():
    model = weights()
    of = lambda name: model["transformer." + name]
    texts = [torch.tensor(text) for text in TEXTS]
    rows = [logits(of, ids) for ids in texts]
    loss = sum(F.cross_entropy(row[:-1], ids[1:], reduction="sum") for row, ids in zip(rows, texts))
    loss.backward()
    out = {"ids": torch.cat(texts), "lengths": torch.tensor([len(text) for text in TEXTS]), "logits": torch.cat(rows),
           "loss": loss.reshape(1)}
    for name, tensor in model.items():
        out["weight/" + name], out["grad/" + name] = tensor.float(), tensor.grad
    save_safetensors(pathlib.Path(__file__).parent / "goldens" / "gpt2.safetensors", out)


if __name__ == "__main__":
    main()
