"""Writes a Hugging Face directory of any size with random bits, without holding it in memory.

usage: large_model.py DIRECTORY [--layers 20] [--hidden 4096] [--ffn 11008] [--heads 32] [--kv-heads 8]
       [--vocab 32000] [--shard-gb 4]
The shape is Llama's, the type bf16; 20 layers of the default shape are 8.0 GB.
"""

import argparse
import json
import os
import struct

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("directory")
for name, value in {"layers": 20, "hidden": 4096, "ffn": 11008, "heads": 32, "kv_heads": 8, "vocab": 32000}.items():
    arguments.add_argument("--" + name.replace("_", "-"), type=int, default=value)
arguments.add_argument("--shard-gb", type=float, default=4.0)
options = arguments.parse_args()
os.makedirs(options.directory, exist_ok=True)

hidden, head_dim = options.hidden, options.hidden // options.heads
tensors = [("model.embed_tokens.weight", [options.vocab, hidden])]
for layer in range(options.layers):
    at = f"model.layers.{layer}."
    tensors += [(at + "input_layernorm.weight", [hidden]),
                (at + "self_attn.q_proj.weight", [options.heads * head_dim, hidden]),
                (at + "self_attn.k_proj.weight", [options.kv_heads * head_dim, hidden]),
                (at + "self_attn.v_proj.weight", [options.kv_heads * head_dim, hidden]),
                (at + "self_attn.o_proj.weight", [hidden, options.heads * head_dim]),
                (at + "post_attention_layernorm.weight", [hidden]),
                (at + "mlp.gate_proj.weight", [options.ffn, hidden]),
                (at + "mlp.up_proj.weight", [options.ffn, hidden]),
                (at + "mlp.down_proj.weight", [hidden, options.ffn])]
tensors += [("model.norm.weight", [hidden]), ("lm_head.weight", [options.vocab, hidden])]


def size_of(shape):
    size = 2
    for extent in shape:
        size *= extent
    return size


shards, limit = [[]], options.shard_gb * 1e9
for tensor in tensors:
    if shards[-1] and sum(size_of(shape) for _, shape in shards[-1]) + size_of(tensor[1]) > limit:
        shards.append([])
    shards[-1].append(tensor)

block = bytearray(os.urandom(1 << 26))
for i in range(1, len(block), 2):  # no infinities and no NaNs: exponents stay below the top
    block[i] &= 0xBF
weight_map = {}
for number, shard in enumerate(shards, 1):
    name = f"model-{number:05}-of-{len(shards):05}.safetensors"
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor, shape in shard:
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size_of(shape)]}
        offset += size_of(shape)
        weight_map[tensor] = name
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(options.directory, name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        start = 2 * number
        while offset > 0:
            piece = memoryview(block)[start:start + offset]
            file.write(piece)
            offset -= len(piece)
            start = (start + 4098) % (1 << 16)  # no two stretches alike
total = sum(size_of(shape) for _, shape in tensors)
with open(os.path.join(options.directory, "model.safetensors.index.json"), "w") as file:
    json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file, indent=2)
with open(os.path.join(options.directory, "config.json"), "w") as file:
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
               "intermediate_size": options.ffn, "num_hidden_layers": options.layers,
               "num_attention_heads": options.heads, "num_key_value_heads": options.kv_heads,
               "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": options.vocab,
               "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}, file, indent=2)
print(f"{total / 1e9:.2f} GB in {len(shards)} files")
