"""Writes the seed corpora of the weight readers' fuzz targets; run after changing what they should know.

usage: fuzz/make_seeds.py     (needs python3-torch only for this; the seeds are kept in fuzz/corpus)
"""

import argparse
import collections
import io
import json
import os
import struct
import zipfile

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    folder = os.path.join(ROOT, "fuzz_" + target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def safetensors(header, data=b""):
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


put("safetensors", "empty", safetensors({}))
put("safetensors", "types", safetensors({
    "__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "b.c": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}, "d": {"dtype": "BOOL", "shape": [0, 3], "data_offsets": [10, 10]},
    "e": {"dtype": "I64", "shape": [1, 1], "data_offsets": [10, 18]}}, b"x" * 18))

tensors = collections.OrderedDict(w=torch.arange(6.0).reshape(2, 3).t(), b=torch.zeros(2, dtype=torch.bfloat16))
things = {"weights": tensors, "parameter": {"p": torch.nn.Parameter(torch.ones(1))},
          "training": {"args": argparse.Namespace(a=1, t=torch.float16), "model": {"x": torch.ones(1)}, "n": 2**80, "f": 1.5,
                       "s": {1}, "l": [None, True, b"x"], "z": torch.Size([1])}}
for name, thing in things.items():
    for new in (True, False):
        buffer = io.BytesIO()
        torch.save(thing, buffer, _use_new_zipfile_serialization=new)
        put("pickle", f"{name}_{'zip' if new else 'legacy'}", b"\0" + buffer.getvalue())
        if new:
            put("pickle", f"{name}_program", b"\1" + zipfile.ZipFile(buffer).read("archive/data.pkl"))

base = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
        "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}
extras = {
    "llama": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4,
                               "original_max_position_embeddings": 64}, "attention_bias": True, "mlp_bias": True},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "num_key_value_heads": 2},
    "qwen3": {"head_dim": 12, "layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 64,
              "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}},
    "mistral": {"sliding_window": None, "rope_scaling": {"type": "linear", "factor": 2}}, "baichuan": {"model_max_length": 64},
    "internlm2": {"bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}, "mixtral": {}}
for model_type, extra in extras.items():
    put("config", model_type, json.dumps({"model_type": model_type, **base, **extra}).encode())
put("config", "adapter", json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_dora": True, "layers_to_transform": [1]}).encode())
