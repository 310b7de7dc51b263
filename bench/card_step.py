#!/usr/bin/env python3
"""Times PyTorch's training step of a Llama, eager and compiled, for tools/gpu_first_run.sh: the arithmetic of
`danlu sft --tuner full --dtype bf16`. Weights and activations are bf16; gradients are summed, masters and AdamW kept in f32.

usage: card_step.py MODEL [--device cuda] [--tokens 4096] [--passes 2] [--steps 8]
MODEL is a folder with config.json, whose shape alone is read. Prints lines of JSON: PyTorch's version and parameters, then of each
way, as soon as it is done, the first loss, tokens a second (the median step) and the most memory. A way that fails has its error in
their place.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("model")
arguments.add_argument("--device", default="cuda")
arguments.add_argument("--tokens", type=int, default=4096, help="of a pass, one sample")
arguments.add_argument("--passes", type=int, default=2, help="of a step")
arguments.add_argument("--steps", type=int, default=8, help="that are timed; two come before")
options = arguments.parse_args()
with open(os.path.join(options.model, "config.json")) as file:
    config = json.load(file)
WIDTH, FFN, LAYERS, HEADS, KV, VOCAB = (config[key] for key in (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size"))
HEAD = WIDTH // HEADS
ON_CARD = options.device.startswith("cuda")


def weights_of(seed):
    shapes = {"embedding": (VOCAB, WIDTH), "norm": (WIDTH,), "head": (VOCAB, WIDTH)}
    for i in range(LAYERS):
        shapes.update({f"{i}.in": (WIDTH,), f"{i}.q": (WIDTH, WIDTH), f"{i}.k": (KV * HEAD, WIDTH), f"{i}.v": (KV * HEAD, WIDTH),
                       f"{i}.o": (WIDTH, WIDTH), f"{i}.post": (WIDTH,), f"{i}.gate": (FFN, WIDTH), f"{i}.up": (FFN, WIDTH),
                       f"{i}.down": (WIDTH, FFN)})
    torch.manual_seed(seed)
    return {name: torch.ones(shape, device=options.device) if len(shape) == 1 else 0.02 * torch.randn(shape, device=options.device)
            for name, shape in shapes.items()}


def rms(x, weight):
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"])).to(x.dtype)


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def attended(q, k, v):
    k, v = (x.repeat_interleave(HEADS // KV, dim=1) for x in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.full((q.shape[2], q.shape[2]), float("-inf"), device=q.device).triu(1)
    return torch.softmax((q @ k.transpose(-1, -2)).float() / HEAD ** 0.5 + mask, dim=-1).to(q.dtype) @ v


def loss_of(w, ids, cos, sin):
    x = F.embedding(ids, w["embedding"])
    for i in range(LAYERS):
        h = rms(x, w[f"{i}.in"])
        q, k, v = (F.linear(h, w[f"{i}.{name}"]).view(1, -1, heads, HEAD).transpose(1, 2)
                   for name, heads in (("q", HEADS), ("k", KV), ("v", KV)))
        h = attended(rotated(q, cos, sin), rotated(k, cos, sin), v).transpose(1, 2).reshape(1, -1, WIDTH)
        x = x + F.linear(h, w[f"{i}.o"])
        h = rms(x, w[f"{i}.post"])
        x = x + F.linear(F.silu(F.linear(h, w[f"{i}.gate"])) * F.linear(h, w[f"{i}.up"]), w[f"{i}.down"])
    logits = F.linear(rms(x, w["norm"]), w["head"])
    return F.cross_entropy(logits[0, :-1].float(), ids[0, 1:])


def wait():
    if ON_CARD:
        torch.cuda.synchronize()


def time_steps(loss_function):
    masters = weights_of(7)
    weights = {name: master.bfloat16().requires_grad_() for name, master in masters.items()}
    for master in masters.values():
        master.grad = torch.zeros_like(master)
    adamw = torch.optim.AdamW(masters.values(), lr=1e-5, weight_decay=0.1, betas=(0.9, 0.95), **({"fused": True} if ON_CARD else {"foreach": True}))
    rates = 1 / config["rope_theta"] ** (torch.arange(HEAD // 2, device=options.device) / (HEAD // 2))
    angles = (torch.arange(options.tokens, device=options.device)[:, None] * rates).repeat(1, 2)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    ids = torch.randint(VOCAB, (1, options.tokens), device=options.device)
    times, first = [], None
    for step in range(2 + options.steps):
        wait()
        begin = time.perf_counter()
        for _ in range(options.passes):
            loss = loss_function(weights, ids, cos, sin)
            (loss / options.passes).backward()
            with torch.no_grad():
                for name, weight in weights.items():
                    masters[name].grad.add_(weight.grad)
                    weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters.values(), 1.0)
        adamw.step()
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(masters[name])
                masters[name].grad.zero_()
        first = loss.item() if first is None else first
        wait()
        if step >= 2:
            times.append(time.perf_counter() - begin)
    return {"first_loss": round(first, 4), "tokens_per_second": round(options.passes * options.tokens / statistics.median(times), 1),
            "peak_bytes": torch.cuda.max_memory_allocated() if ON_CARD else None}


def tried(loss_function):
    try:
        if ON_CARD:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return time_steps(loss_function())
    except Exception as error:  # one way's failure says nothing of the other
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def say(line):
    print(json.dumps(line), flush=True)


say({"torch": torch.__version__,
     "parameters": 2 * VOCAB * WIDTH + LAYERS * (2 * WIDTH * WIDTH + 2 * KV * HEAD * WIDTH + 3 * FFN * WIDTH + 2 * WIDTH) + WIDTH})
say({"eager": tried(lambda: loss_of)})
say({"compiled": tried(lambda: torch.compile(loss_of)) if hasattr(torch, "compile") else {"error": "this PyTorch has no torch.compile"}})
