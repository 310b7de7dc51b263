"""PyTorch's side of megatron_torch_test.cpp: a Megatron checkpoint made again from the Hugging Face tensors.

usage: check_megatron.py DIRECTORY   with cases 0/, 1/, …: case.json, model/, state/, megatron/

Follows what Megatron-core does with its modules: fused matrices are reshaped, cut and joined as whole tensors.
"""

import argparse
import collections
import json
import os
import sys

import torch

from hf_tensors import read_safetensors

CORE, TRANSFORMER_ENGINE, LEGACY = range(3)
SEQUENTIAL, GROUPED, TE_GROUPED = range(3)
CONFIG_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

INTERNLM2 = {"embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "lm_head": "output"}
CHATGLM = {"model.embed_tokens": "transformer.embedding.word_embeddings", "model.layers": "transformer.encoder.layers",
           "self_attn.o_proj": "self_attention.dense", "mlp.gate_up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h",
           "model.norm": "transformer.encoder.final_layernorm", "lm_head": "transformer.output_layer"}
QWEN = {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "self_attn.o_proj": "attn.c_proj",
        "self_attn.W_pack": "attn.c_attn", "mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1", "mlp.down_proj": "mlp.c_proj",
        "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "model.norm": "transformer.ln_f"}
BLOOM = {"model.embed_tokens": "transformer.word_embeddings", "model.layers": "transformer.h", "self_attn.o_proj": "self_attention.dense",
         "mlp.down_proj": "mlp.dense_4h_to_h", "model.norm": "transformer.ln_f"}
GPT2 = {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "self_attn.o_proj": "attn.c_proj",
        "self_attn.W_pack": "attn.c_attn", "mlp.down_proj": "mlp.c_proj", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2",
        "model.norm": "transformer.ln_f"}
RENAMED = {"gpt2": GPT2, "internlm2": INTERNLM2, "chatglm": CHATGLM, "qwen": QWEN, "bloom": BLOOM}
# Behind attention, before the MLP, behind it.
GEMMA2 = ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
NORMS = {"gemma2": GEMMA2, "gemma3_text": GEMMA2, "glm4": ("post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")}


class Model:
    """The tensors of a model (or one kind of state of them), by the names most families share."""

    def __init__(self, case, tensors, prefix=""):
        self.case, self.config, self.tensors, self.prefix = case, case["config"], tensors, prefix
        self.family = self.config["model_type"]
        self.heads = self.config["num_attention_heads"]
        self.groups = self.config.get("multi_query_group_num", self.config.get("num_key_value_heads", self.heads))
        self.head_dim = self.config.get("kv_channels", self.config.get("head_dim", self.config["hidden_size"] // self.heads))

    def get(self, name):
        for ours, theirs in RENAMED.get(self.family, {}).items():
            name = name.replace(ours, theirs)
        return self.tensors.get(self.prefix + name)

    def layer(self, index, name):
        return self.get(f"model.layers.{index}.{name}")

    def qkv(self, index, kind):
        if self.family in ("baichuan", "qwen", "gpt2"):
            packed = self.layer(index, f"self_attn.W_pack.{kind}")
            return None if packed is None else packed.chunk(3)
        if self.family in ("internlm2", "bloom"):
            packed = self.layer(index, ("attention.wqkv" if self.family == "internlm2" else "self_attention.query_key_value") + f".{kind}")
            if packed is None:
                return None
            per_group = self.heads // self.groups
            packed = packed.reshape(self.groups, per_group + 2, self.head_dim, *packed.shape[1:])
            parts = packed.split([per_group, 1, 1], dim=1)
            return [part.flatten(0, 2) for part in parts]
        joined = {"phi3": "self_attn.qkv_proj", "chatglm": "self_attention.query_key_value"}.get(self.family)
        if joined:
            packed = self.layer(index, f"{joined}.{kind}")
            sizes = [heads * self.head_dim for heads in (self.heads, self.groups, self.groups)]
            return None if packed is None else packed.split(sizes)
        parts = [self.layer(index, f"self_attn.{x}_proj.{kind}") for x in "qkv"]
        return None if parts[0] is None else parts

    def gate_and_up(self, index, kind):
        joined = self.layer(index, f"mlp.gate_up_proj.{kind}")
        if joined is not None:
            return joined.chunk(2)
        gate = self.layer(index, f"mlp.gate_proj.{kind}")
        return None if gate is None else (gate, self.layer(index, f"mlp.up_proj.{kind}"))

    def ungated(self, index, kind):
        name = {"bloom": "dense_h_to_4h", "gpt2": "c_fc"}.get(self.family)
        return name and self.layer(index, f"mlp.{name}.{kind}")

    def is_sparse(self, index):
        if self.family == "qwen2_moe" or self.family == "qwen3_moe":
            step = self.config.get("decoder_sparse_step", 1)
            return index not in self.config.get("mlp_only_layers", []) and (index + 1) % step == 0
        return self.family == "mixtral"

    def num_experts(self):
        return self.config["num_local_experts" if self.family == "mixtral" else "num_experts"]

    def expert(self, index, number):
        names = ("w1", "w3", "w2") if self.family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        block = "block_sparse_moe" if self.family == "mixtral" else "mlp"
        return [self.layer(index, f"{block}.experts.{number}.{name}.weight") for name in names]


def slots_of_chunks(case, num_layers):
    """[stage][chunk] -> layers, None for a slot without one."""
    noop, pp = case["noop_layers"], case["pp"]
    slots, next_layer = [], 0
    for slot in range(num_layers + len(noop)):
        slots.append(None if slot in noop else next_layer)
        next_layer += slot not in noop
    if case["layer_list"]:
        ends = torch.tensor(case["layer_list"]).cumsum(0).tolist()
        return [[slots[end - count:end]] for end, count in zip(ends, case["layer_list"])]
    per_chunk = case["layers_per_chunk"] or len(slots) // pp
    # Chunk number c of all the model's goes to stage c mod pp.
    runs = [slots[i:i + per_chunk] for i in range(0, len(slots), per_chunk)]
    return [runs[stage::pp] for stage in range(pp)]


class Rank:
    """State dicts of one rank; tensors are added as the modules would register them."""

    def __init__(self, model, tp, pp, ep):
        self.m, self.case, self.tp, self.pp, self.ep = model, model.case, tp, pp, ep
        self.names = {"o": "self_attention.linear_proj", "qkv": "self_attention.linear_qkv", "fc1": "mlp.linear_fc1",
                      "fc2": "mlp.linear_fc2", "norm1": "input_layernorm", "norm2": "pre_mlp_layernorm"}
        if self.case["dialect"] == LEGACY:
            self.names = {"o": "self_attention.dense", "qkv": "self_attention.query_key_value", "fc1": "mlp.dense_h_to_4h",
                          "fc2": "mlp.dense_4h_to_h", "norm1": "input_norm", "norm2": "post_attention_norm"}
        self.experts, self.shared = set(), set()

    def rows(self, tensor):
        return tensor.chunk(self.case["tp"], 0)[self.tp]

    def columns(self, tensor):
        return tensor.chunk(self.case["tp"], 1)[self.tp]

    def gated(self, gate, up):
        return torch.cat([self.rows(gate), self.rows(up)])

    def chunks(self):
        stages = slots_of_chunks(self.case, self.m.config["num_hidden_layers"])
        result = []
        for number, slots in enumerate(stages[self.pp]):
            first = self.pp == 0 and number == 0
            last = self.pp == self.case["pp"] - 1 and number == len(stages[self.pp]) - 1
            result.append(self.chunk(slots, first, last))
        return result

    def chunk(self, slots, first, last):
        legacy = self.case["dialect"] == LEGACY
        root = "language_model." if legacy else ""
        out = collections.OrderedDict()
        tied = self.m.config.get("tie_word_embeddings", False)
        if first:
            out[root + "embedding.word_embeddings.weight"] = self.vocabulary("model.embed_tokens.weight")
            self.note_shared(root + "embedding.word_embeddings.weight")
            places = self.m.get("transformer.wpe.weight")
            if places is not None:
                out[root + "embedding.position_embeddings.weight"] = places
            for kind in ("weight", "bias"):
                norm = self.m.get(f"transformer.word_embeddings_layernorm.{kind}")
                if norm is not None:
                    out[root + f"embedding.word_embeddings.norm.{kind}"] = norm
        for local, layer in enumerate(slots):
            if layer is None:
                continue
            for name, tensor in self.layer(layer, local, legacy):
                out[name] = tensor
        if last:
            for kind in ("weight", "bias"):
                norm = self.m.get(f"model.norm.{kind}")
                if norm is not None:
                    out[root + ("encoder.final_norm" if legacy else "decoder.final_layernorm") + f".{kind}"] = norm
            if not tied:
                out[root + "output_layer.weight"] = self.vocabulary("lm_head.weight")
            elif not first:
                name = "word_embeddings_for_head.weight" if legacy else "output_layer.weight"
                out[name] = self.vocabulary("model.embed_tokens.weight")
                self.note_shared(name)
        return out

    def note_shared(self, name):
        if self.m.config.get("tie_word_embeddings", False) and self.case["pp"] > 1:
            self.shared.add(name)

    def vocabulary(self, name):
        weight = self.m.get(name)
        unit = self.case["vocab_divisor"] * self.case["tp"]
        missing = -weight.shape[0] % unit
        return self.rows(torch.cat([weight, weight[-1:].expand(missing, -1)]))

    def layer(self, layer, local, legacy):
        prefix = f"language_model.encoder.layers.{local}." if legacy else f"decoder.layers.{local}."
        for name, tensor in self.layer_parts(layer):
            if tensor is not None:
                if ".experts." in name:
                    self.experts.add(prefix + name)
                yield prefix + name, tensor

    def layer_parts(self, i):
        m, n, legacy = self.m, self.names, self.case["dialect"] == LEGACY
        engine, sparse = self.case["dialect"] == TRANSFORMER_ENGINE, m.is_sparse(i)
        behind = NORMS.get(m.family, (None, "post_attention_layernorm", None))
        norm1, norm2 = m.layer(i, "input_layernorm.weight"), m.layer(i, f"{behind[1]}.weight")
        bias1, bias2 = m.layer(i, "input_layernorm.bias"), m.layer(i, f"{behind[1]}.bias")
        proj = [(n["o"] + ".weight", self.columns(m.layer(i, "self_attn.o_proj.weight"))), (n["o"] + ".bias", m.layer(i, "self_attn.o_proj.bias"))]
        if not engine:
            yield n["norm1"] + ".weight", norm1
            yield n["norm1"] + ".bias", bias1
        if not legacy:
            yield from proj
        if engine:
            yield n["qkv"] + ".layer_norm_weight", norm1
            yield n["qkv"] + ".layer_norm_bias", bias1
        for kind in ("weight", "bias"):
            parts = m.qkv(i, kind)
            if parts is not None:
                by_group = [part.reshape(m.groups, -1, *part.shape[1:]) for part in parts]
                yield f"{n['qkv']}.{kind}", self.rows(torch.cat(by_group, 1).flatten(0, 1))
        if legacy:
            yield from proj
        yield "self_attention.q_layernorm.weight", m.layer(i, "self_attn.q_norm.weight")
        yield "self_attention.k_layernorm.weight", m.layer(i, "self_attn.k_norm.weight")
        if not engine or sparse:
            yield n["norm2"] + ".weight", norm2
            yield n["norm2"] + ".bias", bias2
        if sparse:
            yield from self.moe(i)
            return
        if engine:
            yield n["fc1"] + ".layer_norm_weight", norm2
            yield n["fc1"] + ".layer_norm_bias", bias2
        for kind in ("weight", "bias"):
            if m.gate_and_up(i, kind) is not None:
                yield f"{n['fc1']}.{kind}", self.gated(*m.gate_and_up(i, kind))
            if m.ungated(i, kind) is not None:
                yield f"{n['fc1']}.{kind}", self.rows(m.ungated(i, kind))
        yield n["fc2"] + ".weight", self.columns(m.layer(i, "mlp.down_proj.weight"))
        yield n["fc2"] + ".bias", m.layer(i, "mlp.down_proj.bias")
        if behind[0]:
            yield "post_attn_norm.weight", m.layer(i, f"{behind[0]}.weight")
            yield "post_mlp_layernorm.weight", m.layer(i, f"{behind[2]}.weight")

    def moe(self, i):
        m, form, extended = self.m, self.case["experts"], self.case["tp_extends_ep"]
        yield "mlp.router.weight", m.layer(i, ("block_sparse_moe" if m.family == "mixtral" else "mlp") + ".gate.weight")
        numbers = torch.arange(m.num_experts()).chunk(self.case["ep"])[self.ep]
        if extended:
            numbers = numbers.chunk(self.case["tp"])[self.tp]
        fc1, fc2 = [], []
        for number in numbers.tolist():
            gate, up, down = m.expert(i, number)
            fc1.append(torch.cat([gate, up]) if extended else self.gated(gate, up))
            fc2.append(down if extended else self.columns(down))
        if form == GROUPED:
            # Multiplied from the right, expert by expert, after view(E, h, -1) and view(E, -1, h).
            hidden = m.config["hidden_size"]
            yield "mlp.experts.weight1", torch.stack([w.t() for w in fc1]).reshape(hidden, -1)
            yield "mlp.experts.weight2", torch.stack([w.t() for w in fc2]).reshape(-1, hidden)
        elif form == TE_GROUPED:
            yield from ((f"mlp.experts.linear_fc1.weight{j}", w) for j, w in enumerate(fc1))
            yield from ((f"mlp.experts.linear_fc2.weight{j}", w) for j, w in enumerate(fc2))
        else:
            for j, (up, down) in enumerate(zip(fc1, fc2)):
                yield f"mlp.experts.local_experts.{j}.linear_fc1.weight", up
                yield f"mlp.experts.local_experts.{j}.linear_fc2.weight", down
        if m.layer(i, "mlp.shared_expert.gate_proj.weight") is not None:
            shared = [m.layer(i, f"mlp.shared_expert.{name}_proj.weight") for name in ("gate", "up", "down")]
            yield "mlp.shared_experts.linear_fc1.weight", self.gated(*shared[:2])
            yield "mlp.shared_experts.linear_fc2.weight", self.columns(shared[2])
            yield "mlp.shared_expert_gate.weight", m.layer(i, "mlp.shared_expert_gate.weight")


def same(where, tensor, expected):
    assert type(tensor) is torch.Tensor, (where, type(tensor))
    assert tensor.dtype == expected.dtype and tensor.shape == expected.shape, (where, tensor.dtype, tensor.shape, expected.dtype, expected.shape)
    assert torch.equal(tensor, expected), where


def flattened(state, prefix=""):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def check_model(where, root, chunks, legacy):
    keys = ["model"] if len(chunks) == 1 else [f"model{i}" for i in range(len(chunks))]
    assert [key for key in root if key.startswith("model")] == keys, (where, list(root))
    for key, expected in zip(keys, chunks):
        state = dict(flattened(root[key])) if legacy else root[key]
        if not legacy:
            assert type(state) is collections.OrderedDict
        assert list(state) == list(expected), (where, set(state) ^ set(expected), list(state), list(expected))
        for name in expected:
            same(f"{where} {key} {name}", state[name], expected[name])
        if legacy and expected:
            # Megatron's parts load their own dicts, the encoder with names below it.
            for part, inner in root[key].get("language_model", {}).items():
                assert all("." in name for name in inner) if part == "encoder" else part in ("embedding", "output_layer"), (part, inner)


def check_arguments(where, root, case):
    args, config = root["args"], case["config"]
    assert type(args) is argparse.Namespace and root["checkpoint_version"] == 3.0 and type(root["checkpoint_version"]) is float
    assert root["iteration"] == (case["iteration"] or 0)
    unit = case["vocab_divisor"] * case["tp"]
    halves = 2 if config["model_type"] == "qwen" else 1  # whose config counts both
    expected = {
        "num_layers": config["num_hidden_layers"] + len(case["noop_layers"]), "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"], "tensor_model_parallel_size": case["tp"],
        "pipeline_model_parallel_size": case["pp"], "expert_model_parallel_size": case["ep"] * (case["tp"] if case["counts_tensor_ranks"] else 1), "ffn_hidden_size": config["intermediate_size"] // halves,
        "padded_vocab_size": -(-config["vocab_size"] // unit) * unit, "num_layers_per_virtual_pipeline_stage": case["layers_per_chunk"] or None,
        "noop_layers": set(case["noop_layers"]) or None, "num_layer_list": ",".join(map(str, case["layer_list"])) or None,
        "untie_embeddings_and_output_weights": not config["tie_word_embeddings"],
        "params_dtype": CONFIG_DTYPES[config["torch_dtype"]], "moe_tp_extend_ep": case["tp_extends_ep"] and not case["counts_tensor_ranks"], "swiglu": not config["model_type"].startswith(("gemma", "bloom", "gpt2")),
        "normalization": "LayerNorm" if config["model_type"] in ("bloom", "gpt2") else "RMSNorm",
        "position_embedding_type": "learned_absolute" if config["model_type"] == "gpt2" else args.position_embedding_type}
    for key, value in expected.items():
        assert getattr(args, key) == value, (where, key, getattr(args, key), value)


def optimizers(rank, chunks):
    """Names of parameters of each optimizer of the rank, by chunk."""
    if (rank.case["ep"] == 1 and not rank.case["counts_tensor_ranks"]) or not rank.experts:
        return [[list(chunk) for chunk in chunks]]
    return [[[name for name in chunk if (name in rank.experts) == experts] for chunk in chunks] for experts in (False, True)]


def groups_of(chunks, names):
    groups = collections.OrderedDict()
    for number, chunk in enumerate(names):
        for name in chunk:
            no_decay = name.endswith(".bias") or chunks[number][name].dim() == 1
            groups.setdefault(no_decay, []).append((number, name))
    return groups


def check_settings(where, saved, no_decay, is_expert):
    assert saved["wd_mult"] == (0.0 if no_decay else 1.0) and saved["lr_mult"] == 1.0 and saved["step"] == 42, (where, saved)
    assert saved["is_expert_parallel"] is is_expert and saved["betas"] == (0.9, 0.95) and saved["eps"] == 1e-8, (where, saved)


def check_plain(where, saved, groups, states, fp32, is_expert):
    inner = saved if fp32 else saved["optimizer"]
    assert len(inner["param_groups"]) == len(groups)
    next_id = 0
    for number, ((no_decay, members), group) in enumerate(zip(groups.items(), inner["param_groups"])):
        check_settings(where, group, no_decay, is_expert)
        assert group["params"] == list(range(next_id, next_id + len(members))), (where, group["params"])
        for position, (chunk, name) in enumerate(members):
            at = f"{where} {name}"
            assert set(inner["state"][next_id]) == {"exp_avg", "exp_avg_sq"}
            same(at, inner["state"][next_id]["exp_avg"], states["exp_avg."][chunk][name])
            same(at, inner["state"][next_id]["exp_avg_sq"], states["exp_avg_sq."][chunk][name])
            if not fp32:
                same(at, saved["fp32_from_fp16_params"][number][position], states["master."][chunk][name])
            next_id += 1
    assert len(inner["state"]) == next_id


def flat_buffer(tensors, names, shared):
    """Last parameter first, each from a multiple of 64 on; a shared embedding begins and ends a bucket."""
    buckets = [torch.zeros(0)]
    for name in reversed(names):
        bucket = buckets[-1]
        bucket = torch.cat([bucket, torch.zeros(-len(bucket) % 64)])
        if name in shared and len(bucket):
            buckets[-1] = bucket
            bucket = torch.zeros(0)
            buckets.append(bucket)
        buckets[-1] = torch.cat([bucket, tensors[name].flatten()])
        if name in shared:
            buckets.append(torch.zeros(0))
    return torch.cat(buckets)


def check_flat(where, saved, names, states, shared, dtype):
    assert saved["buckets_coalesced"] is True
    filled = [(number, chunk) for number, chunk in enumerate(names) if chunk]
    assert len(saved) == 1 + len(filled), (where, list(saved))
    for index, (number, chunk) in enumerate(filled):
        buffers = saved[index][(dtype, torch.float32)]
        for key, kind in (("param", "master."), ("exp_avg", "exp_avg."), ("exp_avg_sq", "exp_avg_sq.")):
            expected = flat_buffer(states[kind][number], chunk, shared)
            assert buffers["numel_unpadded"] == len(expected), (where, buffers["numel_unpadded"], len(expected))
            same(f"{where} {index} {key}", buffers[key], expected)


def check_optimizer(where, directory, root, case, rank, chunks, state_tensors):
    options = case["optimizer"]
    kinds = ["exp_avg.", "exp_avg_sq."] + ([] if options["fp32"] else ["master."])
    states = {kind: Rank(Model(case, state_tensors, kind), rank.tp, rank.pp, rank.ep).chunks() for kind in kinds}
    members = optimizers(rank, chunks)
    chained = len(members) > 1
    saved = root["optimizer"] if chained else [root["optimizer"]]
    assert len(saved) == len(members) and root["opt_param_scheduler"]["num_steps"] == 672 and root["args"].consumed_train_samples == 672
    path = os.path.join(directory, "distrib_optim.pt")
    # Expert ranks are data parallel ranks of everything but experts: the first of them writes it.
    writes = [rank.ep == 0 or (chained and number == 1) for number in range(len(members))]
    assert os.path.exists(path) == (options["distributed"] and any(writes)), where
    buffers = torch.load(path, weights_only=False) if os.path.exists(path) else None
    for number, names in enumerate(members):
        groups = groups_of(chunks, names)
        if not options["distributed"]:
            check_plain(where, saved[number], groups, states, options["fp32"], number == 1)
            continue
        assert list(saved[number]["optimizer"]) == ["param_groups"]
        for (no_decay, _), group in zip(groups.items(), saved[number]["optimizer"]["param_groups"]):
            assert "params" not in group
            check_settings(where, group, no_decay, number == 1)
        if buffers is None:
            continue
        mine = buffers[number] if chained else buffers
        if not writes[number]:
            assert mine is None
        else:
            check_flat(where, mine, names, states, rank.shared, CONFIG_DTYPES[case["config"]["torch_dtype"]])


def check_case(directory):
    with open(os.path.join(directory, "case.json")) as file:
        case = json.load(file)
    model = Model(case, read_safetensors(os.path.join(directory, "model", "model.safetensors")))
    state = read_safetensors(os.path.join(directory, "state", "model.safetensors")) if case["optimizer"] else None
    root = os.path.join(directory, "megatron")
    with open(os.path.join(root, "latest_checkpointed_iteration.txt")) as file:
        assert file.read() == str(case["iteration"] or "release")
    iteration = os.path.join(root, "release" if case["iteration"] is None else f"iter_{case['iteration']:07d}")
    folders = set()
    for tp in range(case["tp"]):
        for pp in range(case["pp"]):
            for ep in range(case["ep"]):
                expert = f"_{ep * case['tp'] + tp:03d}" if case["counts_tensor_ranks"] else f"_{ep:03d}" if case["ep"] > 1 else ""
                folder = f"mp_rank_{tp:02d}" + (f"_{pp:03d}" if case["pp"] > 1 else "") + expert
                folders.add(folder)
                where = f"{directory}: {folder}"
                file = torch.load(os.path.join(iteration, folder, "model_optim_rng.pt"), weights_only=False)
                rank = Rank(model, tp, pp, ep)
                chunks = rank.chunks()
                check_arguments(where, file, case)
                check_model(where, file, chunks, case["dialect"] == LEGACY)
                assert ("optimizer" in file) == bool(case["optimizer"])
                if case["optimizer"]:
                    check_optimizer(where, os.path.join(iteration, folder), file, case, rank, chunks, state)
    assert set(os.listdir(iteration)) == folders


cases = sorted(os.listdir(sys.argv[1]), key=int)
for number in cases:
    check_case(os.path.join(sys.argv[1], number))
assert cases
