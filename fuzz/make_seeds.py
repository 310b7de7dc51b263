"""Writes the seed corpora of the weight readers' fuzz targets; run after changing what they should know.

usage: fuzz/make_seeds.py     (needs python3-torch only for this; the seeds are kept in fuzz/corpus)
"""

import argparse
import collections
import enum
import io
import json
import os
import struct
import sys
import types
import zipfile

import numpy
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


class Member(enum.Enum):
    first = 1


class Items(list):
    pass


for cls in (Member, Items):
    cls.__module__ = "custom"
    sys.modules.setdefault("custom", types.ModuleType("custom")).__dict__[cls.__name__] = cls
documents = {
    "weights": tensors, "plain": things["training"],
    "distributed": {"buckets_coalesced": True, 0: {(torch.bfloat16, torch.float32): {"param": torch.ones(3), "numel_unpadded": 3}}},
    "objects": {"args": argparse.Namespace(kind=Member.first, items=Items([1, "x"]), where=torch.device("cpu"), part=slice(1, 2),
                                           cls=Items, empty=b"", frozen=frozenset("a"), none=None, big=-(2**90)),
                "rng_state": [{"np": numpy.random.RandomState(0).get_state()[1][:4], "t": torch.zeros(2, dtype=torch.uint8)}],
                "x._extra_state": io.BytesIO(b"abc"), "d": collections.defaultdict(list, k=[1.5])}}
for name, thing in documents.items():
    for protocol in (2, 4):
        buffer = io.BytesIO()
        torch.save(thing, buffer, pickle_protocol=protocol)
        put("torch_document", f"{name}_{protocol}_program", b"\1" + zipfile.ZipFile(buffer).read("archive/data.pkl"))
    buffer = io.BytesIO()
    torch.save(thing, buffer, _use_new_zipfile_serialization=False)
    put("torch_document", f"{name}_legacy", b"\0" + buffer.getvalue())
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    put("torch_document", f"{name}_zip", b"\0" + buffer.getvalue())

index = {"metadata": {"total_size": 8}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors",
                                                      "b": "model-00002-of-00002.safetensors"}}
for name, content in {"usual": index, "empty": {"weight_map": {}}, "none": {}, "number": {"weight_map": {"a": 1}},
                      "climbs": {"weight_map": {"a": "../b"}}, "escaped": {"weight_map": {"\u6743": "x\u0000y"}}}.items():
    put("weight_index", name, json.dumps(content, indent=2).encode())

base = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
        "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}
extras = {
    "llama": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4,
                               "original_max_position_embeddings": 64}, "attention_bias": True, "mlp_bias": True},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "num_key_value_heads": 2},
    "qwen3": {"head_dim": 12, "layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 64,
              "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}},
    "mistral": {"sliding_window": None, "rope_scaling": {"type": "linear", "factor": 2}}, "baichuan": {"model_max_length": 64},
    "internlm2": {"bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}, 
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
                  "decoder_sparse_step": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [0], "norm_topk_prob": True}}
for model_type, extra in extras.items():
    put("config", model_type, json.dumps({"model_type": model_type, **base, **extra}).encode())
put("config", "adapter", json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_dora": True, "layers_to_transform": [1]}).encode())


def idx(lengths, documents, code=4, modes=None, version=1):
    """A Megatron .idx: magic, version, type, counts, lengths, byte offsets, document bounds, modes."""
    size = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}[code]
    offsets, at = [], 0
    for length in lengths:
        offsets.append(at)
        at += length * size
    data = b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, len(lengths), len(documents))
    data += struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(documents)}q", *lengths, *offsets, *documents)
    return data + (struct.pack(f"<{len(modes)}b", *modes) if modes is not None else b""), at


def npy(values, shape):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}q", *values)


# The target takes the first byte for the length of the .bin at the end; as .npy it reads everything.
for name, arguments in {"one_document_each": ([3, 2, 4], [0, 1, 2, 3]), "several_in_one": ([3, 2, 4], [0, 2, 3]),
                        "empty": ([], [0]), "empty_sequence": ([0, 2], [0, 1, 2]), "uint16": ([5, 1], [0, 1, 2], 8),
                        "int64": ([2], [0, 1], 5), "modes": ([3, 2], [0, 1, 2], 4, [0, 1]),
                        "future_version": ([1], [0, 1], 4, None, 2)}.items():
    index, bin_bytes = idx(*arguments)
    put("idx", name, bytes([bin_bytes]) + index + bytes(i % 7 for i in range(bin_bytes)))
put("idx", "npy_one_dimension", npy([3, 1, 2], "(3,)"))
put("idx", "npy_two_dimensions", npy([0, 0, 1, 5], "(2, 2)"))

# The first byte of an npy seed: 0 before a whole file, 1 before a header alone.
for name, header in {"one_dimension": "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }",
                     "two_dimensions": "{'descr': '<u8', 'fortran_order': False, 'shape': (2, 2), }",
                     "other_order": '{"shape":(8,),"fortran_order":False,"descr":"|u1"}',
                     "floats": "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
                     "fortran": "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }",
                     "many_spaces": "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }" + " " * 3000}.items():
    put("npy", name, b"\1" + header.encode() + b"\n")
put("npy", "file_one_dimension", b"\0" + npy([3, 1, 2], "(3,)"))
put("npy", "file_two_dimensions", b"\0" + npy([0, 0, 1, 5], "(2, 2)"))
put("npy", "file_short", b"\0" + npy([3], "(3,)"))


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def gguf(keys, tensors, data=b"", version=3, alignment=32):
    """A GGUF file of (name, packed type and value) keys and (name, sizes, type, offset) tensors."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    out += b"".join(gguf_text(name) + value for name, value in keys)
    for name, sizes, kind, offset in tensors:
        out += gguf_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return out + b"\0" * (-len(out) % alignment) + data


numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
put("gguf", "values", gguf([(f"a.{kind}".encode(), struct.pack(f"<I{code}", kind, 1)) for kind, code in numbers.items()]
                           + [(b"general.architecture", struct.pack("<I", 8) + gguf_text(b"llama"))], []))
put("gguf", "lists", gguf([(b"ids", struct.pack("<IIQ3i", 9, 5, 3, 1, -1, 7)), (b"words", struct.pack("<IIQ", 9, 8, 2) + gguf_text(b"a") + gguf_text(b"")),
                           (b"lists", struct.pack("<IIQIQ2B", 9, 9, 1, 0, 2, 1, 2)), (b"flags", struct.pack("<IIQ2?", 9, 7, 2, True, False))], []))
put("gguf", "tensors", gguf([(b"general.alignment", struct.pack("<II", 4, 64))],
                            [(b"w", (3, 2), 0, 0), (b"q", (32, 2), 8, 64), (b"s", (), 1, 192), (b"none", (0, 4), 30, 192)], b"x" * 256, alignment=64))
put("gguf", "blocks", gguf([], [(b"k", (256,), 12, 0), (b"i", (5,), 26, 160)], b"\1" * 180, version=2))
put("gguf", "q8_0_scales", gguf([], [(b"q", (64,), 8, 0)], struct.pack("<H32bH32b", 0x7C00, *[127] * 32, 0x7BFF, *[-128] * 32)))
put("gguf", "least_double", gguf([(b"d", struct.pack("<Id", 12, 5e-324))], []))
put("gguf", "future", gguf([], [], version=4))
