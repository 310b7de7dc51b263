"""Times a training step of a 50 M model that sees pictures beside PyTorch's eager operators: the same weights, rows and
arithmetic (fp32, all parameters, AdamW), one core, by turns.

usage: vl_step.py BUILD WORK [--turns 3] [--steps 6] [--rows 2]
       vl_step.py BUILD WORK --wait [--width 64]
Needs a python3 with torch, numpy and PIL; WORK is a folder for the model, the pictures and the runs. A row is one 448 x 448
picture (1024 patches, 256 tokens) and some text. Danlu's times are those that `danlu sft` logs, and hold
the decoding of its pictures. Prints a line of JSON: both first losses, the median
milliseconds of both and their ratio (PyTorch's time by Danlu's).

--wait trains a smaller model on 64 JPEGs of 640 x 480 with two workers and all processors, and prints the pictures a second of
processor time, a second and core, and the part of the time that steps waited for data, of the steps behind the first two.
"""

import argparse
import json
import math
import os

from torch_peer import Danlu, adamw_of, attended, beside, rotated, step_of, tensors_of  # before numpy: one thread
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("build")
arguments.add_argument("work")
arguments.add_argument("--turns", type=int, default=3)
arguments.add_argument("--steps", type=int, default=6)
arguments.add_argument("--rows", type=int, default=2)
arguments.add_argument("--wait", action="store_true")
arguments.add_argument("--width", type=int, default=64, help="of the smaller model; less is more pictures a second")
options = arguments.parse_args()
CORES = len(os.sched_getaffinity(0))
if options.wait:
    options.rows = 64
    os.environ["OMP_NUM_THREADS"] = str(CORES)
else:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the child inherits it
torch.set_num_threads(1)
in_danlu = Danlu(options.build, options.work)

SIDE, PATCH, LR = 448, 14, 1e-4
WIDTH, LAYERS, HEADS, KV, FFN, VOCAB = 512, 8, 8, 4, 1536, 16000
TOWER, BLOCKS, TOWER_HEADS = 384, 8, 6
if options.wait:
    HEADS = options.width // 64
    WIDTH, LAYERS, KV, FFN, TOWER, BLOCKS = options.width, 4, max(1, HEADS // 2), 3 * options.width, 48 * HEADS, 4
    TOWER_HEADS = TOWER // 48
SECTIONS = [8, 12, 12]
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def in_work(name):
    return os.path.join(options.work, name)


def make_inputs():
    os.makedirs(options.work, exist_ok=True)
    numbers = np.random.default_rng(1)
    with open(in_work("texts.txt"), "w") as texts:
        texts.writelines(f"what is in the picture {i}? a small red fox {7 * i} and a lazy dog\n" for i in range(64))
    with open(in_work("rows.jsonl"), "w") as rows:
        for i in range(options.rows):
            small = Image.fromarray(numbers.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            size, kind = ((640, 480), "jpg") if options.wait else ((SIDE, SIDE), "png")
            small.resize(size, Image.BICUBIC).save(in_work(f"{i}.{kind}"))
            answer = " and ".join(["a small red fox", "a lazy dog"] * 6)
            rows.write(json.dumps({"images": [f"{i}.{kind}"], "messages": [
                {"role": "user", "content": "<image>what is in the picture?"}, {"role": "assistant", "content": answer}]}) + "\n")
    if os.path.exists(in_work("model")):
        return
    in_danlu("tokenizer", "train", "--input", "texts.txt", "--vocab_size", 320, "--chat_template", "chatml", "--output", "tokenizer",
          "--special_tokens", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    with open(in_work("tokenizer/tokenizer.json")) as file:
        ids = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
    with open(in_work("config.json"), "w") as file:
        json.dump({"model_type": "qwen2_vl", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": FFN,
                   "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV, "rms_norm_eps": 1e-6,
                   "rope_theta": 1e6, "max_position_embeddings": 4096, "tie_word_embeddings": True, "torch_dtype": "float32",
                   "rope_scaling": {"type": "mrope", "mrope_section": SECTIONS}, "bos_token_id": ids["<|endoftext|>"],
                   "eos_token_id": ids["<|im_end|>"], "vision_start_token_id": ids["<|vision_start|>"],
                   "vision_end_token_id": ids["<|vision_end|>"], "image_token_id": ids["<|image_pad|>"],
                   "video_token_id": ids["<|video_pad|>"],
                   "vision_config": {"depth": BLOCKS, "embed_dim": TOWER, "mlp_ratio": 4, "num_heads": TOWER_HEADS,
                                     "hidden_size": WIDTH, "patch_size": PATCH, "spatial_merge_size": 2,
                                     "temporal_patch_size": 2}}, file)
    in_danlu("init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model")
    with open(in_work("model/preprocessor_config.json"), "w") as file:
        json.dump({"min_pixels": 3136, "max_pixels": SIDE * SIDE, "patch_size": PATCH, "merge_size": 2,
                   "temporal_patch_size": 2, "image_mean": MEAN, "image_std": STD}, file)


def patches_of(name):
    pixels = np.asarray(Image.open(in_work(name)).convert("RGB"), np.float32) / 255
    pixels = ((pixels - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1)
    cells = SIDE // PATCH // 2
    frames = np.stack([pixels, pixels]).reshape(1, 2, 3, cells, 2, PATCH, cells, 2, PATCH)
    return torch.from_numpy(frames.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(4 * cells * cells, -1).copy())


class Peer:
    def __init__(self):
        self.weights = tensors_of(in_work("model/model.safetensors"))
        self.adamw = adamw_of(self.weights, LR)
        self.pixels = torch.stack([patches_of(f"{i}.png") for i in range(options.rows)])
        ids, labels, begins = [], [], []
        with open(in_work("rows.jsonl")) as rows:
            for row in rows:
                answer = in_danlu.rendered(row)
                ids.append(answer["input_ids"])
                labels.append(answer["labels"])
                begins.append(answer["media"][0]["begin"])
        self.ids, self.labels, self.begin = torch.tensor(ids), torch.tensor(labels), begins[0]
        self.make_positions()

    def make_positions(self):
        cells = SIDE // PATCH // 2
        rows, cols = torch.meshgrid(torch.arange(2 * cells), torch.arange(2 * cells), indexing="ij")
        in_blocks = lambda x: x.reshape(cells, 2, cells, 2).permute(0, 2, 1, 3).flatten()
        quarter = TOWER // TOWER_HEADS // 4
        rates = 1 / 10000 ** (torch.arange(quarter) / quarter)
        angles = torch.cat([in_blocks(axis)[:, None] * rates for axis in (rows, cols)], dim=1).repeat(1, 2)
        self.tower_turn = angles.cos(), angles.sin()
        visual, length = cells * cells, self.ids.shape[1]
        tail = length - self.begin - visual
        before, after = torch.arange(self.begin), self.begin + cells + torch.arange(tail)
        at = torch.arange(visual)
        axes = [torch.zeros(visual, dtype=torch.long), at // cells, at % cells]
        half = WIDTH // HEADS // 2
        rates = 1 / 1e6 ** (torch.arange(half) / half)
        angles = torch.stack([torch.cat([before, self.begin + axis, after])[:, None] * rates for axis in axes])
        chosen = torch.cat([part[axis] for axis, part in enumerate(angles.split(SECTIONS, dim=-1))], dim=-1).repeat(1, 2)
        self.turn = chosen.cos(), chosen.sin()

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-6)

    def rms(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weights[name + ".weight"]

    def tower(self):
        x = F.linear(self.pixels, self.weights["visual.patch_embed.proj.weight"].flatten(1))
        for block in range(BLOCKS):
            at = f"visual.blocks.{block}."
            y = self.linear(self.norm(x, at + "norm1"), at + "attn.qkv")
            q, k, v = y.reshape(*y.shape[:2], 3, TOWER_HEADS, -1).permute(2, 0, 3, 1, 4)
            y = attended(rotated(q, *self.tower_turn), rotated(k, *self.tower_turn), v, causal=False)
            x = x + self.linear(y.transpose(1, 2).flatten(2), at + "attn.proj")
            y = self.linear(self.norm(x, at + "norm2"), at + "mlp.fc1")
            x = x + self.linear(y * torch.sigmoid(1.702 * y), at + "mlp.fc2")
        x = self.norm(x, "visual.merger.ln_q").reshape(options.rows, -1, 4 * TOWER)
        return self.linear(F.gelu(self.linear(x, "visual.merger.mlp.0")), "visual.merger.mlp.2")

    def loss(self):
        x = F.embedding(self.ids, self.weights["model.embed_tokens.weight"])
        visual = self.tower()
        x = torch.cat([x[:, :self.begin], visual, x[:, self.begin + visual.shape[1]:]], dim=1)
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            y = self.rms(x, at + "input_layernorm")
            q, k, v = (self.linear(y, f"{at}self_attn.{name}_proj").unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                       for name in "qkv")
            k, v = rotated(k, *self.turn).repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
            y = attended(rotated(q, *self.turn), k, v, causal=True)
            x = x + self.linear(y.transpose(1, 2).flatten(2), at + "self_attn.o_proj")
            y = self.rms(x, at + "post_attention_layernorm")
            y = F.silu(self.linear(y, at + "mlp.gate_proj")) * self.linear(y, at + "mlp.up_proj")
            x = x + self.linear(y, at + "mlp.down_proj")
        logits = F.linear(self.rms(x, "model.norm"), self.weights["model.embed_tokens.weight"])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), self.labels[:, 1:].flatten())

    def step(self):
        return step_of(self.weights, self.adamw, self.loss)


def seconds_of_run(steps, rows, *more):
    """Of a training of so many rows a step."""
    return in_danlu.training_seconds(steps, rows, LR, "--tuner", "full", "--freeze_vit", "false", "--freeze_aligner", "false",
                                     "--max_length", min(4096, 1024 * rows), *more)


make_inputs()
if options.wait:
    short, _ = seconds_of_run(2, 8, "--dataloader_num_workers", 2)
    whole, logged = seconds_of_run(14, 8, "--dataloader_num_workers", 2)
    logged = logged[2:]
    seconds = sum(step["train_speed(s/it)"] for step in logged)
    print(json.dumps({"pictures_per_processor_second": round(8 * len(logged) / (whole - short), 2),
                      "pictures_per_second_and_core": round(8 * len(logged) / seconds / CORES, 2),
                      "data_wait": round(sum(step["data_wait"] * step["train_speed(s/it)"] for step in logged) / seconds, 5)}))
    raise SystemExit
peer = Peer()
print(json.dumps({"parameters": sum(w.numel() for w in peer.weights.values()), "tokens": peer.ids.numel(),
                  **beside(peer.step, lambda steps: seconds_of_run(steps, options.rows, "--no_shuffle")[1], options)}))
