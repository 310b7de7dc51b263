"""The tensors of a safetensors file as PyTorch's, for the checks beside it."""

import json
import struct

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=DTYPES[info["dtype"]], offset=info["data_offsets"][0],
                                   count=torch.Size(info["shape"]).numel()).reshape(info["shape"])
            for name, info in header.items()}
