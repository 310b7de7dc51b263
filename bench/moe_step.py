"""Times a training step of a model of experts (Qwen3-MoE's layers: 199 M parameters, 60 M of them used for a token) beside PyTorch's
eager operators with a loop over the experts: the same weights, rows and arithmetic (fp32, all parameters, AdamW), one core, by turns.

usage: moe_step.py BUILD WORK [--turns 3] [--steps 4] [--rows 4] [--tokens 512]
Needs a python3 with torch and numpy; WORK is a folder for the model and the runs. Danlu's times are those
that `danlu sft` logs. Prints a line of JSON: parameters, tokens of a step, both first
losses, the median milliseconds of both and their ratio (PyTorch's time by Danlu's).
"""

import argparse
import json
import os

from torch_peer import Danlu, adamw_of, attended, beside, rotated, step_of, tensors_of  # before torch: one thread
import torch
import torch.nn.functional as F

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("build")
arguments.add_argument("work")
arguments.add_argument("--turns", type=int, default=3)
arguments.add_argument("--steps", type=int, default=4)
arguments.add_argument("--rows", type=int, default=4)
arguments.add_argument("--tokens", type=int, default=512, help="of a row, about")
options = arguments.parse_args()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the child inherits it
torch.set_num_threads(1)
danlu = Danlu(options.build, options.work)

LR = 1e-4
WIDTH, LAYERS, HEADS, KV, HEAD, VOCAB = 512, 8, 8, 4, 64, 16000
EXPERTS, CHOSEN, FFN = 28, 6, 512


def in_work(name):
    return os.path.join(options.work, name)


def make_inputs():
    os.makedirs(options.work, exist_ok=True)
    words = [f"{kind}{i}" for i in range(8) for kind in ("fox", "dog", "hare", "owl", "elk", "bee", "cat", "hen")]
    with open(in_work("texts.txt"), "w") as texts:
        texts.writelines(" ".join(words[i:] + words[:i]) + "\n" for i in range(64))
    with open(in_work("rows.jsonl"), "w") as rows:
        for row in range(options.rows):  # the same words in another order, so that rows are of one length
            turned = words[7 * row:] + words[:7 * row]
            text = " ".join(["the"] + (turned * (options.tokens // len(words) + 1))[:options.tokens // 2])
            rows.write(json.dumps({"messages": [{"role": "user", "content": "who is there?"},
                                                {"role": "assistant", "content": text}]}) + "\n")
    if os.path.exists(in_work("model")):
        return
    danlu("tokenizer", "train", "--input", "texts.txt", "--vocab_size", 320, "--chat_template", "chatml", "--output", "tokenizer",
          "--special_tokens", "<|endoftext|>")
    with open(in_work("config.json"), "w") as file:
        json.dump({"model_type": "qwen3_moe", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 4 * FFN,
                   "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD,
                   "num_experts": EXPERTS, "num_experts_per_tok": CHOSEN, "moe_intermediate_size": FFN, "norm_topk_prob": True,
                   "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                   "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "float32"}, file)
    danlu("init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model")


class Peer:
    def __init__(self):
        self.weights = {}
        for name in sorted(os.listdir(in_work("model"))):
            if name.endswith(".safetensors"):
                self.weights.update(tensors_of(in_work(f"model/{name}")))
        self.adamw = adamw_of(self.weights, LR)
        with open(in_work("rows.jsonl")) as file:
            rows = [danlu.rendered(row) for row in file]
        self.ids, self.labels = (torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels"))
        rates = 1 / 1e6 ** (torch.arange(HEAD // 2) / (HEAD // 2))
        angles = (torch.arange(self.ids.shape[1])[:, None] * rates).repeat(1, 2)
        self.turn = angles.cos(), angles.sin()

    def rms(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weights[name + ".weight"]

    def attention(self, x, at):
        q, k, v = (F.linear(x, self.weights[f"{at}{name}_proj.weight"]).unflatten(-1, (-1, HEAD)) for name in "qkv")
        q, k, v = (y.transpose(1, 2) for y in (self.rms(q, at + "q_norm"), self.rms(k, at + "k_norm"), v))
        k, v = rotated(k, *self.turn).repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        return F.linear(attended(rotated(q, *self.turn), k, v, causal=True).transpose(1, 2).flatten(2), self.weights[at + "o_proj.weight"])

    def experts(self, x, at):
        rows = x.flatten(0, 1)
        shares, chosen = torch.softmax(F.linear(rows, self.weights[at + "gate.weight"]), dim=-1).topk(CHOSEN, dim=-1)
        shares = shares / shares.sum(-1, keepdim=True)
        result = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            token, place = torch.where(chosen == expert)
            w = [self.weights[f"{at}experts.{expert}.{name}_proj.weight"] for name in ("gate", "up", "down")]
            mine = rows[token]
            y = F.linear(F.silu(F.linear(mine, w[0])) * F.linear(mine, w[1]), w[2])
            result = result.index_add(0, token, y * shares[token, place, None])
        return result.view_as(x)

    def loss(self):
        x = F.embedding(self.ids, self.weights["model.embed_tokens.weight"])
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            x = x + self.attention(self.rms(x, at + "input_layernorm"), at + "self_attn.")
            x = x + self.experts(self.rms(x, at + "post_attention_layernorm"), at + "mlp.")
        logits = F.linear(self.rms(x, "model.norm"), self.weights["lm_head.weight"])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), self.labels[:, 1:].flatten())

    def step(self):
        return step_of(self.weights, self.adamw, self.loss)


make_inputs()
peer = Peer()
run = lambda steps: danlu.training_seconds(steps, options.rows, LR, "--tuner", "full", "--no_shuffle", "--max_length",
                                           options.rows * 2 * options.tokens, "--router_aux_loss_coef", 0)[1]
print(json.dumps({"parameters": sum(w.numel() for w in peer.weights.values()), "tokens": peer.ids.numel(),
                  **beside(peer.step, run, options)}))
