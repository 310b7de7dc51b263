"""Packed matrices as GPTQ, AWQ and compressed-tensors store them, and their numbers in PyTorch's arithmetic.

usage: write_packed.py DIRECTORY   one folder for each form: model.safetensors, config.json, and expected.safetensors
with the numbers under the name that a reader gives them. Codes are packed as whole numbers of Python: a stream of
codes is one long number, its words are that number's bytes.
"""

import json
import os
import struct
import sys

import torch

torch.manual_seed(7)
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64",
         torch.int8: "I8", torch.uint8: "F8_E4M3"}


def raw(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().tobytes()
    return tensor.contiguous().numpy().tobytes()


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += raw(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def folder(name, tensors, expected, quantisation):
    path = os.path.join(sys.argv[1], name)
    os.makedirs(path)
    plain = torch.randn(3, 5).half()
    write(os.path.join(path, "model.safetensors"), {**tensors, "lm_head.weight": plain})
    write(os.path.join(path, "expected.safetensors"), {"x.weight": expected, "lm_head.weight": plain})
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump({"quantization_config": quantisation}, file)


def stream(codes, bits):
    """[n, m] as int32 [n, ceil(m * bits / 32)]: each row is one number, its first code in the lowest bits."""
    words = -(-codes.shape[1] * bits // 32)
    rows = []
    for row in codes.tolist():
        number = sum(code << (bits * i) for i, code in enumerate(row))
        rows.append(list(struct.unpack("<%di" % words, number.to_bytes(4 * words, "little"))))
    return torch.tensor(rows, dtype=torch.int32)


def draw(bits, *shape):
    return torch.randint(0, 2 ** bits, shape)


def scales(*shape):
    return torch.rand(*shape) * 0.02 + 0.001


def gptq(name, bits, rows, cols, group, act_order=False, v2=False, dtype=torch.float16, with_order=True):
    groups = -(-cols // group)
    order = torch.arange(cols) // group
    if act_order:
        order = order[torch.randperm(cols)]
    codes, zeros, scale = draw(bits, cols, rows), draw(bits, groups, rows), scales(groups, rows).to(dtype)
    stored = zeros if v2 else (zeros - 1) % 2 ** bits
    tensors = {"x.qweight": stream(codes.t(), bits).t(), "x.qzeros": stream(stored, bits), "x.scales": scale}
    if with_order:
        tensors["x.g_idx"] = order.int()
    narrow = torch.int16
    expected = (scale[order] * (codes.to(narrow) - zeros[order].to(narrow))).t()
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": False}
    if v2:
        config["checkpoint_format"] = "gptq_v2"
    folder(name, tensors, expected, config)


def awq(name, rows, cols, group):
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(codes):
        words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
        for place, row in enumerate(order):
            words |= codes[:, row::8] << (4 * place)
        return words.to(torch.int32)  # keeps the low 32 bits

    groups = cols // group
    codes, zeros, scale = draw(4, cols, rows), draw(4, groups, rows), scales(groups, rows).half()
    expected = (codes.to(torch.int8) - zeros.repeat_interleave(group, 0).to(torch.int8)) * \
        scale.repeat_interleave(group, 0)
    folder(name, {"x.qweight": pack(codes), "x.qzeros": pack(zeros), "x.scales": scale}, expected.t(),
           {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True})


def compressed(name, bits, rows, cols, group, zero_point=False, act_order=False, dtype=torch.bfloat16):
    groups, half = cols // group, 2 ** (bits - 1)
    order = torch.arange(cols) // group
    if act_order:
        order = order[torch.randperm(cols)]
    codes, scale = draw(bits, rows, cols), scales(rows, groups).to(dtype)
    tensors = {"x.weight_packed": stream(codes, bits), "x.weight_scale": scale,
               "x.weight_shape": torch.tensor([rows, cols])}
    numbers = (codes - half).to(dtype)
    if zero_point:
        zeros = draw(bits, rows, groups)
        tensors["x.weight_zero_point"] = stream(zeros.t(), bits).t()
        numbers -= (zeros - half).to(dtype)[:, order]
    if act_order:
        tensors["x.weight_g_idx"] = order.int()
    folder(name, tensors, numbers * scale[:, order],
           {"quant_method": "compressed-tensors", "format": "pack-quantized"})


def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if byte & 128 else size


def fp8(name, rows, cols, scale, spread, extra=None, **more):
    codes = torch.randint(0, 127, (rows, cols)) + 128 * torch.randint(0, 2, (rows, cols))
    numbers = torch.tensor([e4m3(code) for code in codes.flatten().tolist()]).reshape(rows, cols).to(scale.dtype)
    folder(name, {"x.weight": codes.to(torch.uint8), "x.weight_scale": scale, **(extra or {})},
           numbers * spread(scale), {"quant_method": "compressed-tensors", "format": "float-quantized", **more})


def spread_blocks(rows, cols, height, width):
    return lambda scale: scale.repeat_interleave(height, 0)[:rows].repeat_interleave(width, 1)[:, :cols]


gptq("gptq4", 4, 72, 96, 32)
gptq("gptq4_act_order", 4, 80, 64, 16, act_order=True)
gptq("gptq4_bf16", 4, 64, 64, 64, dtype=torch.bfloat16)
gptq("gptq4_without_order", 4, 64, 64, 32, with_order=False)
gptq("gptq8_v2", 8, 68, 64, 32, v2=True)
gptq("gptq3", 3, 96, 64, 32, act_order=True)
gptq("gptq2", 2, 80, 64, 64)
awq("awq", 88, 64, 32)
compressed("packed4", 4, 70, 96, 32)
compressed("packed4_zeros", 4, 70, 64, 16, zero_point=True, act_order=True, dtype=torch.float16)
compressed("packed4_channel", 4, 9, 20, 20)
compressed("packed8", 8, 66, 64, 64)
fp8("fp8_tensor", 70, 36, torch.tensor([0.03]).bfloat16(), lambda scale: scale,
    extra={"x.input_scale": torch.tensor([0.5]).bfloat16()})
fp8("fp8_channel", 70, 36, scales(70, 1).bfloat16(), lambda scale: scale)
fp8("fp8_block", 70, 36, scales(5, 3), spread_blocks(70, 36, 16, 16),
    config_groups={"group_0": {"weights": {"num_bits": 8, "block_structure": [16, 16]}}})

codes, scale, zeros = torch.randint(-128, 128, (70, 36)), scales(70, 1).half(), torch.randint(-9, 9, (70, 1))
folder("int8_channel", {"x.weight": codes.to(torch.int8), "x.weight_scale": scale,
                        "x.weight_zero_point": zeros.to(torch.int8)},
       (codes.half() - zeros.half()) * scale, {"quant_method": "compressed-tensors", "format": "int-quantized"})
