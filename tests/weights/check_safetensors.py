"""Reads safetensors files with nothing but Python's standard library and checks what the format demands.

usage: check_safetensors.py FILE...   prints one JSON object: tensor -> [dtype, shape, sha256 of its bytes].
"""

import hashlib
import json
import struct
import sys

WIDTH = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def no_duplicates(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), "duplicate key"
    return dict(pairs)


found = {}
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0 and data[8:9] == b"{", path
    header = json.loads(data[8:8 + length].decode("utf-8"), object_pairs_hook=no_duplicates)
    assert list(header)[0] == "__metadata__" and header.pop("__metadata__") == {"format": "pt"}, path
    body, position = data[8 + length:], 0
    for name, entry in header.items():  # the writer's order is the order of the bytes
        begin, end = entry["data_offsets"]
        size = WIDTH[entry["dtype"]]
        for dimension in entry["shape"]:
            size *= dimension
        assert begin == position and end - begin == size and name not in found, (path, name)
        found[name] = [entry["dtype"], entry["shape"], hashlib.sha256(body[begin:end]).hexdigest()]
        position = end
    assert position == len(body), path
print(json.dumps(found))
