"""PyTorch's side of mindspeed_mm_test.cpp: MindSpeed-MM checkpoints made again from the Hugging Face tensors.

usage: check_mindspeed_mm.py DIRECTORY   with cases 0/, 1/, …: case.json, model/, mm/

Whole tensors are reshaped, joined and cut; the files may hold nothing else and nothing more.
"""

import json
import os
import sys

import torch

from hf_tensors import read_safetensors


class Case:
    def __init__(self, directory):
        with open(os.path.join(directory, "case.json")) as file:
            case = json.load(file)
        self.config, self.tp, self.llm, self.vit = case["config"], case["tp"], case["llm"], case["vit"]
        self.vision = self.config["vision_config"]
        self.gated = self.config["model_type"] == "qwen2_5_vl"
        self.hf = read_safetensors(os.path.join(directory, "model", "model.safetensors"))

    def both(self, name):
        return [(kind, self.hf[f"{name}.{kind}"]) for kind in ("weight", "bias") if f"{name}.{kind}" in self.hf]

    def block(self, number):
        """Pairs of names and lists of what each tensor rank holds."""
        hf = f"visual.blocks.{number}."
        for ours, theirs in (("input_layernorm", "norm1"), ("pre_mlp_layernorm", "norm2")):
            for kind, tensor in self.both(hf + theirs):
                yield f"{ours}.{kind}", [tensor] * self.tp
        heads = self.vision["num_heads"]
        for kind, tensor in self.both(hf + "attn.qkv"):
            q, k, v = (part.unflatten(0, (heads, -1)) for part in tensor.chunk(3))
            yield f"self_attention.linear_qkv.{kind}", torch.cat([q, k, v], 1).flatten(0, 1).chunk(self.tp)
        yield from self.row_parallel("self_attention.linear_proj", hf + "attn.proj")
        if self.gated:
            for kind in ("weight", "bias"):
                pairs = zip(self.hf[f"{hf}mlp.gate_proj.{kind}"].chunk(self.tp), self.hf[f"{hf}mlp.up_proj.{kind}"].chunk(self.tp))
                yield f"mlp.linear_fc1.{kind}", [torch.cat(pair) for pair in pairs]
            yield from self.row_parallel("mlp.linear_fc2", hf + "mlp.down_proj")
        else:
            for kind, tensor in self.both(hf + "mlp.fc1"):
                yield f"mlp.linear_fc1.{kind}", tensor.chunk(self.tp)
            yield from self.row_parallel("mlp.linear_fc2", hf + "mlp.fc2")

    def row_parallel(self, ours, theirs):
        for kind, tensor in self.both(theirs):
            yield f"{ours}.{kind}", tensor.chunk(self.tp, 1) if kind == "weight" else [tensor] * self.tp

    def projector(self):
        for kind, tensor in self.both("visual.merger.ln_q"):
            yield f"layernorm.{kind}", [tensor] * self.tp
        for kind, tensor in self.both("visual.merger.mlp.0"):
            yield f"encoder.linear_fc1.{kind}", tensor.chunk(self.tp)
        yield from self.row_parallel("encoder.linear_fc2", "visual.merger.mlp.2")

    def layer(self, number):
        hf = f"model.layers.{number}."
        for ours, theirs in (("input_layernorm", "input_layernorm"), ("pre_mlp_layernorm", "post_attention_layernorm")):
            yield f"{ours}.weight", [self.hf[f"{hf}{theirs}.weight"]] * self.tp
        groups = self.config["num_key_value_heads"]
        for kind in ("weight", "bias"):
            parts = [self.hf[f"{hf}self_attn.{x}_proj.{kind}"].unflatten(0, (groups, -1)) for x in "qkv"]
            yield f"self_attention.linear_qkv.{kind}", torch.cat(parts, 1).flatten(0, 1).chunk(self.tp)
        yield from self.row_parallel("self_attention.linear_proj", hf + "self_attn.o_proj")
        gate, up = (self.hf[f"{hf}mlp.{x}_proj.weight"].chunk(self.tp) for x in ("gate", "up"))
        yield "mlp.linear_fc1.weight", [torch.cat(pair) for pair in zip(gate, up)]
        yield from self.row_parallel("mlp.linear_fc2", hf + "mlp.down_proj")

    def files(self):
        """State dicts by (tp, pp): one for each chunk."""
        stages, chunks = len(self.llm[0]), len(self.llm)
        depth, layers = sum(map(sum, self.vit)), sum(map(sum, self.llm))
        out = {(tp, pp): [{} for _ in range(chunks)] for tp in range(self.tp) for pp in range(stages)}
        block = layer = 0
        for chunk in range(chunks):
            for pp in range(stages):
                parts = []
                if block == 0 and self.vit[chunk][pp] > 0:
                    patches = self.hf["visual.patch_embed.proj.weight"]
                    parts.append(("image_encoder.encoder.patch_embed.proj.weight", [patches] * self.tp))
                for local in range(self.vit[chunk][pp]):
                    prefix = f"image_encoder.encoder.blocks.layers.{local}."
                    parts += [(prefix + name, ranks) for name, ranks in self.block(block)]
                    block += 1
                    if block == depth:
                        parts += [("image_encoder.projector." + name, ranks) for name, ranks in self.projector()]
                embedding = self.hf["model.embed_tokens.weight"].chunk(self.tp)
                if layer == 0 and self.llm[chunk][pp] > 0:
                    parts.append(("text_decoder.embedding.word_embeddings.weight", embedding))
                for local in range(self.llm[chunk][pp]):
                    parts += [(f"text_decoder.decoder.layers.{local}.{name}", ranks) for name, ranks in self.layer(layer)]
                    layer += 1
                if chunk == chunks - 1 and pp == stages - 1:
                    parts.append(("text_decoder.decoder.final_layernorm.weight", [self.hf["model.norm.weight"]] * self.tp))
                    if not self.config["tie_word_embeddings"]:
                        parts.append(("text_decoder.output_layer.weight", self.hf["lm_head.weight"].chunk(self.tp)))
                    elif stages > 1:
                        parts.append(("text_decoder.output_layer.weight", embedding))
                for name, ranks in parts:
                    for tp in range(self.tp):
                        out[tp, pp][chunk][name] = ranks[tp]
        assert (block, layer) == (depth, layers)
        return out


def check(directory):
    case = Case(directory)
    files = case.files()
    stages = len(case.llm[0])
    folders = set()
    for (tp, pp), chunks in files.items():
        folder = f"mp_rank_{tp:02d}" + (f"_{pp:03d}" if stages > 1 else "")
        folders.add(folder)
        path = os.path.join(directory, "mm", "release", folder, "model_optim_rng.pt")
        saved = torch.load(path, map_location="cpu")
        keys = ["model"] if len(chunks) == 1 else [f"model{i}" for i in range(len(chunks))]
        assert sorted(saved) == sorted(keys), (path, list(saved))
        for key, expected in zip(keys, chunks):
            assert set(saved[key]) == set(expected), (path, key, set(saved[key]) ^ set(expected))
            for name, tensor in expected.items():
                found = saved[key][name]
                same = found.dtype == tensor.dtype and found.shape == tensor.shape and torch.equal(found, tensor)
                assert same, f"{path}: {key}.{name}: {found.dtype} {tuple(found.shape)}, {tensor.dtype} {tuple(tensor.shape)}"
    assert set(os.listdir(os.path.join(directory, "mm", "release"))) == folders, directory
    with open(os.path.join(directory, "mm", "latest_checkpointed_iteration.txt")) as file:
        assert file.read() == "release", directory


def main():
    cases = sorted(os.listdir(sys.argv[1]))
    assert cases
    for name in cases:
        check(os.path.join(sys.argv[1], name))
    print(f"{len(cases)} checkpoints are what torch makes of the models")


if __name__ == "__main__":
    main()
