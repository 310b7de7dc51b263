"""A Llama from its Hugging Face directory, computed with plain torch operators."""
import functools
import json
import math
import pathlib
import struct

import torch


def read_safetensors(path):
    """Name -> float32 tensor of a file that holds nothing else."""
    data = path.read_bytes()
    (header_size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + header_size])
    body = data[8 + header_size :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, only F32 is read here")
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(body[begin:end]), dtype=torch.float32)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


class SmallLlama:
    """Log-probabilities of the next token at every place of one sequence, without any cache."""

    def __init__(self, directory, dtype=torch.float64):
        directory = pathlib.Path(directory)
        self.config = json.loads((directory / "config.json").read_text())
        weights = read_safetensors(directory / "model.safetensors")
        self.weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.dtype = dtype
        self.num_heads = self.config["num_attention_heads"]
        self.num_key_heads = self.config["num_key_value_heads"]
        self.head_size = self.config["hidden_size"] // self.num_heads
        self.window = self.config["max_position_embeddings"]
        self.cos, self.sin = self._rotations()
        # Choices often differ in the last token alone, which is not read.
        self.log_probabilities = functools.lru_cache(maxsize=8)(self._log_probabilities)

    def _rotations(self):
        half = torch.arange(0, self.head_size, 2, dtype=torch.float64)
        frequencies = self.config["rope_theta"] ** (-half / self.head_size)
        angles = torch.outer(torch.arange(self.window, dtype=torch.float64), frequencies)
        angles = torch.cat([angles, angles], dim=-1)  # the first half of a head turns with the second
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def _norm(self, x, name):
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.config["rms_norm_eps"]) * self.weights[name]

    def _heads(self, x, name, count):
        return (x @ self.weights[name].T).reshape(x.shape[0], count, self.head_size).transpose(0, 1)

    def _rotate(self, heads):
        length = heads.shape[1]
        first, second = heads.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return heads * self.cos[:length] + turned * self.sin[:length]

    def _attention(self, x, layer):
        prefix = f"model.layers.{layer}.self_attn."
        q = self._rotate(self._heads(x, prefix + "q_proj.weight", self.num_heads))
        k = self._rotate(self._heads(x, prefix + "k_proj.weight", self.num_key_heads))
        v = self._heads(x, prefix + "v_proj.weight", self.num_key_heads)
        shared = self.num_heads // self.num_key_heads
        k, v = k.repeat_interleave(shared, dim=0), v.repeat_interleave(shared, dim=0)
        scores = q @ k.transpose(1, 2) / math.sqrt(self.head_size)
        length = x.shape[0]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        joined = (weights @ v).transpose(0, 1).reshape(length, -1)
        return joined @ self.weights[prefix + "o_proj.weight"].T

    def _mlp(self, x, layer):
        prefix = f"model.layers.{layer}.mlp."
        gate = torch.nn.functional.silu(x @ self.weights[prefix + "gate_proj.weight"].T)
        up = x @ self.weights[prefix + "up_proj.weight"].T
        return (gate * up) @ self.weights[prefix + "down_proj.weight"].T

    @torch.no_grad()
    def _log_probabilities(self, ids):
        """[len(ids), vocabulary]: row i is of the token behind ids[i]; ids is a tuple."""
        if not 0 < len(ids) <= self.window:
            raise ValueError(f"{len(ids)} tokens do not fit a window of {self.window}")
        x = self.weights["model.embed_tokens.weight"][torch.tensor(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, prefix + "input_layernorm.weight"), layer)
            x = x + self._mlp(self._norm(x, prefix + "post_attention_layernorm.weight"), layer)
        tied = self.config["tie_word_embeddings"]
        head = self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return (self._norm(x, "model.norm.weight") @ head.T).log_softmax(-1)
