"""Looks into a sparse file beyond 4 GiB with PyTorch's and Python's zip readers; reads only its small tensor.

usage: check_torch_zip64.py FILE
"""

import sys
import zipfile

import torch

path = sys.argv[1]
reader = torch._C.PyTorchFileReader(path)
assert reader.get_record("data/3") == b"12345678", reader.get_record("data/3")
assert reader.get_record("version") == b"3\n"

archive = zipfile.ZipFile(path)
sizes = {info.filename: info.file_size for info in archive.infolist()}
gib = 1 << 30
assert sizes["big/data/0"] == 4 * gib - 2 and sizes["big/data/1"] == 4 * gib - 1, sizes
assert sizes["big/data/2"] == 10 * gib and sizes["big/data/3"] == 8, sizes
assert archive.getinfo("big/data/3").header_offset > 18 * gib
assert archive.read("big/data/3") == b"12345678"  # compares the checksum
with archive.open("big/data/2") as entry:  # its local header holds zip64 sizes
    assert entry.read(16) == bytes(16)
