"""PyTorch's side of torch_python_test.cpp.

usage: check_torch_written.py checkpoint FILE        the file holds what the test built
       check_torch_written.py restricted FILE        so does the state dict, with weights_only=True
       check_torch_written.py again DIRECTORY COUNT  0.pt … -> 0.zip.pt, 0.legacy.pt …: load and save
       check_torch_written.py write DIRECTORY        zip.pt, legacy.pt, protocol4.pt
"""

import argparse
import collections
import enum
import io
import os
import random
import sys
import types
import zipfile

import numpy
import torch

ENUMS = types.ModuleType("megatron.core.enums")
CUSTOM = types.ModuleType("custom")
for name, module in {"megatron": types.ModuleType("megatron"), "megatron.core": types.ModuleType("megatron.core"),
                     "megatron.core.enums": ENUMS, "custom": CUSTOM}.items():
    sys.modules[name] = module


class ModelType(enum.Enum):
    encoder_or_decoder = 1
    encoder_and_decoder = 2

    def __reduce_ex__(self, protocol):  # as every Python but 3.11.0 to 3.11.3
        return type(self), (self.value,)


class AttnBackend(enum.Enum):
    flash = 1

    def __reduce_ex__(self, protocol):  # as Python 3.11.0 to 3.11.3
        return getattr, (type(self), self.name)


class Thing:
    pass


class ListOf(list):
    pass


class DictOf(dict):
    pass


for cls, module in {ModelType: ENUMS, AttnBackend: ENUMS, Thing: CUSTOM, ListOf: CUSTOM, DictOf: CUSTOM}.items():
    cls.__module__ = module.__name__
    setattr(module, cls.__name__, cls)


def check_archive(path):
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None
    assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    assert len({info.filename.split("/")[0] for info in archive.infolist()}) == 1


def same(tensor, expected):
    assert type(tensor) is torch.Tensor and tensor.dtype == expected.dtype, (tensor, expected)
    assert tensor.shape == expected.shape and tensor.stride() == expected.stride(), (tensor.stride(), expected.stride())
    assert torch.equal(tensor, expected), (tensor, expected)
    assert not tensor.requires_grad


def checkpoint(path):
    check_archive(path)
    root = torch.load(path, weights_only=False)
    model = root["model"]
    assert type(model) is collections.OrderedDict and type(root) is dict
    same(model["w"], torch.tensor([[1, 2, -3], [0, 0, 0]], dtype=torch.bfloat16))
    assert model["w._extra_state"] is None
    same(model["scalar"], torch.tensor(2.5, dtype=torch.float64))
    same(model["empty"], torch.zeros(0, 7))
    same(model["empty_middle"], torch.zeros(3, 0, 2, dtype=torch.float16))
    for name, dtype in {"I8": torch.int8, "U8": torch.uint8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64}.items():
        same(model[name], torch.tensor([[1, 2]], dtype=dtype))
    same(model["BOOL"], torch.tensor([True, False]))
    same(model["F16"], torch.tensor([1.5], dtype=torch.float16))
    assert root["iteration"] == 2**40 and type(root["iteration"]) is int
    assert root["checkpoint_version"] == 3.0 and type(root["checkpoint_version"]) is float
    args = root["args"]
    assert type(args) is argparse.Namespace
    assert vars(args) == {
        "num_layers": 24, "lr": 1.25e-6, "params_dtype": torch.bfloat16, "swiglu": True, "bias": False, "data_path": ["权é"],
        "model_type": ModelType.encoder_or_decoder, "noop": {3}, "attention": AttnBackend.flash, "empty_set": set(), "frozen": frozenset("x"), "none": None}, args
    assert args.swiglu is True and args.model_type is ModelType.encoder_or_decoder and type(args.frozen) is frozenset
    assert root["tuples"] == ((), (None,), (1, 2), (None, None, None))
    assert root["ints"] == [-1, 65536, -(2**63), 2**63 - 1, 2**70, 2**2400], root["ints"]
    assert root["floats"] == [1.5e-300, 0.0] and str(root["floats"][1]) == "-0.0"
    assert root["bytes"] == b"\x00\x7f\x80\xff" and root["no_bytes"] == b""
    assert root["size"] == torch.Size([1, 2]) and type(root["size"]) is torch.Size
    assert root["surrogate"] == "\ud800"
    same(root[0][(torch.bfloat16, torch.float32)]["param"], torch.zeros(1))
    assert root["many"] == {f"k{i}": i for i in range(3000)} and list(root["many"])[2999] == "k2999"
    assert list(root)[:4] == ["model", "iteration", "checkpoint_version", "args"]


def restricted(path):  # no floats and dtypes: torch 1.13 refuses them here
    root = torch.load(path, weights_only=True)
    same(root["model"]["weight"], torch.tensor([1, 2], dtype=torch.bfloat16))
    same(root["model"]["bias"], torch.tensor(1.0))
    assert root["iteration"] == 2**33 and root["big"] == 2**70 and root["list"] == [5, None, True]
    assert root["size"] == torch.Size([3])


def again(directory, count):
    for i in range(int(count)):
        path = os.path.join(directory, f"{i}.pt")
        check_archive(path)
        root = torch.load(path, weights_only=False)
        for container in ("zip", "legacy"):
            torch.save(root, os.path.join(directory, f"{i}.{container}.pt"), _use_new_zipfile_serialization=container == "zip")


def write(directory):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    thing = Thing()
    thing.x, thing.w = 1, torch.ones(1)
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    model = torch.nn.Linear(3, 2, bias=False).state_dict()  # has _metadata
    model["a._extra_state"] = None
    model["b._extra_state"] = torch.zeros(4, dtype=torch.uint8)
    model["c._extra_state"] = io.BytesIO(b"abc")
    root = {
        "args": argparse.Namespace(
            params_dtype=torch.bfloat16, model_type=ModelType.encoder_or_decoder, attention=[AttnBackend.flash] * 2, betas=[0.9, 0.95], files={"a"}, thing=thing,
            big=2**78, nothing=None, not_a_number=float("nan")),
        "checkpoint_version": 3.0, "iteration": 7, "model": model, "optimizer": torch.optim.AdamW([parameter]).state_dict(),
        "scheduler": {"max_lr": 1e-4}, "default": collections.defaultdict(list, {"k": []}), "slice": slice(1, 2),
        "rng_state": [{"random_rng_state": random.getstate(), "np_rng_state": numpy.random.get_state(),
                       "torch_rng_state": torch.get_rng_state(), "rng_tracker_states": {"data-parallel-rng": torch.get_rng_state()}}]}
    torch.save(root, os.path.join(directory, "zip.pt"))
    torch.save(root, os.path.join(directory, "legacy.pt"), _use_new_zipfile_serialization=False)
    torch.save(root, os.path.join(directory, "protocol4.pt"), pickle_protocol=4)


{"checkpoint": checkpoint, "restricted": restricted, "again": again, "write": write}[sys.argv[1]](*sys.argv[2:])
