"""Writes files with torch.save, in both containers, and what a reader must find in them.

usage: write_torch_files.py DIRECTORY
manifest.json: file -> {tensor name: [dtype as safetensors spells it, shape, file with its raw bytes]}.
"""

import argparse
import collections
import json
import os
import sys

import numpy
import torch

out = sys.argv[1]
torch.manual_seed(0)
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8",
         torch.uint8: "U8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64", torch.bool: "BOOL"}
manifest, raw_count = {}, 0


def raw(tensor):
    tensor = tensor.detach().contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()


def write(stem, thing, tensors, **options):
    global raw_count
    for container in ("zip", "legacy"):
        name = f"{stem}.{container}.pt"
        torch.save(thing, os.path.join(out, name), _use_new_zipfile_serialization=container == "zip", **options)
        entries = {}
        for key, tensor in tensors.items():
            raw_name = f"raw{raw_count}"
            raw_count += 1
            with open(os.path.join(out, raw_name), "wb") as file:
                file.write(raw(tensor))
            entries[key] = [NAMES[tensor.dtype], list(tensor.shape), raw_name]
        manifest[name] = entries


# Every element type.
types = {f"t.{NAMES[d]}": (torch.randn(3, 5) * 40).to(d) for d in NAMES}
write("dtypes", types, types)

# Views: slices, transposes, steps, expanded, scalars, empty ones, high rank.
base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
views = {
    "base": base, "slice": base[1], "inner": base[:, 1:, ::2, 1:4], "transposed": base.permute(3, 1, 0, 2),
    "row": torch.arange(10.0)[3:7], "column": torch.arange(12).reshape(3, 4)[:, 2], "expanded": torch.ones(1, 3).expand(4, 3),
    "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 7), "empty_middle": torch.zeros(3, 0, 2),
    "ones": torch.randn(1, 6, 1)[:, 2:5], "half_view": torch.randn(8, 8).to(torch.float16).t(),
}
write("views", views, views)

# One storage behind several names, parameters, modules, buffers.
shared = torch.randn(6, 4)
linear = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
state = linear.state_dict()
tied = collections.OrderedDict(a=shared, b=shared, c=shared[2:], d=torch.nn.Parameter(shared[:, 1]))
write("shared", tied, dict(tied))
write("module", state, dict(state))

# A training checkpoint: nesting, optimizer state, everything else torch.save meets.
parameter = torch.nn.Parameter(torch.randn(4, 3))
optimizer = torch.optim.AdamW([parameter])
parameter.sum().backward()
optimizer.step()
moment = optimizer.state_dict()["state"][0]
nested = {
    "model": {"w": parameter.detach(), "list": [torch.ones(2), {"x": torch.zeros(1)}], "w._extra_state": None},
    "optimizer": optimizer.state_dict(), "iteration": 2**40, "big": 2**70, "negative": -5, "loss": 1.5e-300,
    "args": argparse.Namespace(lr=0.1, dtype=torch.bfloat16, names=["a"], size=torch.Size([1, 2])),
    "tuple": (1, "two", None, True), "set": {1, 2}, "bytes": b"\x00\xff", "device": torch.device("cpu"),
    "numpy": numpy.float32(2.0), "array": numpy.arange(3), "default": collections.defaultdict(list, {"k": torch.ones(1)}),
    "counter": collections.Counter("aab"), "slice": slice(1, 2), "unicode": "权é", 7: torch.tensor([7]),
}
write("training", nested, {
    "model.w": parameter, "model.list.0": torch.ones(2), "model.list.1.x": torch.zeros(1),
    "optimizer.state.0.step": moment["step"], "optimizer.state.0.exp_avg": moment["exp_avg"],
    "optimizer.state.0.exp_avg_sq": moment["exp_avg_sq"], "default.k": torch.ones(1), "7": torch.tensor([7])})
write("single", base.t() if base.dim() == 2 else base, {"tensor": base})
write("many", {f"k{i}": torch.full((2,), float(i)) for i in range(1500)}, {f"k{i}": torch.full((2,), float(i)) for i in range(1500)})
write("protocol4", state, dict(state), pickle_protocol=4)
write("empty", {}, {})
json.dump(manifest, open(os.path.join(out, "manifest.json"), "w"))
