#!/usr/bin/python3
"""Writes tests/models/goldens/{qwen3_next,qwen3_5,qwen3_5_moe}: small models of linear attention computed with PyTorch.

Run with Debian's python3-torch:  /usr/bin/python3 tests/models/make_hybrid_goldens.py
What it states independently of src/: the gated delta rule token by token, in float64; the convolution as
torch.nn.functional.conv1d; attention dense and masked; experts as a loop over all of them.
"""
import json, math, pathlib
import torch
import torch.nn.functional as F
from make_goldens import OUT, rope_plain, rotate, save_safetensors


def rms(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + w)


def delta_rule(q, k, v, g, beta):
    """q, k [B,T,H,K]; v [B,T,H,V]; g, beta [B,T,H]. The state is moved by each token in turn."""
    q, k = (x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q = q / math.sqrt(q.shape[-1])
    state, outs = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        missed = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], missed * beta[:, t, :, None])
        outs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outs, 1)


def linear_attention(x, w, p, c):
    b, t, _ = x.shape
    groups, heads, kd, vd = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"], c["linear_value_head_dim"]
    each = heads // groups
    if p + "in_proj_qkvz.weight" in w:
        q, k, v, z = (x @ w[p + "in_proj_qkvz.weight"].T).view(b, t, groups, -1).split([kd, kd, each * vd, each * vd], -1)
        steps, a = (x @ w[p + "in_proj_ba.weight"].T).view(b, t, groups, 2 * each).split([each, each], -1)
        mixed = torch.cat([y.reshape(b, t, -1) for y in (q, k, v)], -1)
        z, steps, a = z.reshape(b, t, heads, vd), steps.reshape(b, t, heads), a.reshape(b, t, heads)
    else:
        mixed, z = x @ w[p + "in_proj_qkv.weight"].T, (x @ w[p + "in_proj_z.weight"].T).view(b, t, heads, vd)
        steps, a = x @ w[p + "in_proj_b.weight"].T, x @ w[p + "in_proj_a.weight"].T
    kernel = w[p + "conv1d.weight"]
    mixed = F.silu(F.conv1d(mixed.transpose(1, 2), kernel, padding=kernel.shape[-1] - 1, groups=kernel.shape[0])[..., :t]).transpose(1, 2)
    q, k, v = mixed.split([groups * kd, groups * kd, heads * vd], -1)
    q, k = (y.reshape(b, t, groups, kd).repeat_interleave(each, 2) for y in (q, k))
    g = -w[p + "A_log"].exp() * F.softplus(a + w[p + "dt_bias"])
    seen = delta_rule(q, k, v.reshape(b, t, heads, vd), g, steps.sigmoid())
    seen = seen * torch.rsqrt(seen.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[p + "norm.weight"] * F.silu(z)
    return seen.reshape(b, t, -1) @ w[p + "out_proj.weight"].T


def full_attention(x, w, p, c, allowed):
    b, t, _ = x.shape
    heads, kv, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q, gate = (x @ w[p + "q_proj.weight"].T).view(b, t, heads, 2 * d).chunk(2, -1)
    k, v = ((x @ w[p + n + "_proj.weight"].T).view(b, t, kv, d) for n in "kv")
    q, k = rms(q, w[p + "q_norm.weight"], c["rms_norm_eps"]), rms(k, w[p + "k_norm.weight"], c["rms_norm_eps"])
    turned = d // 4
    theta = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
    angle = torch.arange(t)[:, None] * torch.tensor(rope_plain(turned, theta), dtype=x.dtype)[None]
    cos, sin = (torch.cat((y, y), -1)[None, :, None] for y in (angle.cos(), angle.sin()))
    q, k = (torch.cat((rotate(y[..., :turned], cos, sin), y[..., turned:]), -1).transpose(1, 2) for y in (q, k))
    k, v = k.repeat_interleave(heads // kv, 1), v.transpose(1, 2).repeat_interleave(heads // kv, 1)
    weights = (q @ k.transpose(2, 3) / math.sqrt(d)).masked_fill(~allowed, -1e30).softmax(-1)
    return ((weights @ v).transpose(1, 2).reshape(b, t, -1) * gate.reshape(b, t, -1).sigmoid()) @ w[p + "o_proj.weight"].T


def mlp(x, gate, up, down):
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def feed_forward(x, w, p, c):
    if p + "gate.weight" not in w:
        return mlp(x, *(w[p + n + "_proj.weight"] for n in ("gate", "up", "down")))
    weights, chosen = (x @ w[p + "gate.weight"].T).softmax(-1).topk(c["num_experts_per_tok"], -1)
    weights = weights / weights.sum(-1, keepdim=True)
    total = torch.sigmoid(x @ w[p + "shared_expert_gate.weight"].T) * mlp(
        x, *(w[p + f"shared_expert.{n}_proj.weight"] for n in ("gate", "up", "down")))
    for e in range(c["num_experts"]):
        if p + "experts.gate_up_proj" in w:
            gate, up = w[p + "experts.gate_up_proj"][e].chunk(2, 0)
            down = w[p + "experts.down_proj"][e]
        else:
            gate, up, down = (w[p + f"experts.{e}.{n}_proj.weight"] for n in ("gate", "up", "down"))
        total = total + (weights * (chosen == e)).sum(-1, keepdim=True) * mlp(x, gate, up, down)
    return total


def forward(ids, mask, w, c):
    t, eps = ids.shape[1], c["rms_norm_eps"]
    allowed = torch.ones(t, t, dtype=torch.bool).tril()[None, None] & (mask[:, None, None, :] == 1)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms(x, w[p + "input_layernorm.weight"], eps)
        is_linear = p + "linear_attn.A_log" in w
        x = x + (linear_attention(h, w, p + "linear_attn.", c) if is_linear else full_attention(h, w, p + "self_attn.", c, allowed))
        x = x + feed_forward(rms(x, w[p + "post_attention_layernorm.weight"], eps), w, p + "mlp.", c)
    return rms(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def shapes_of(c):
    h, vocab, d = c["hidden_size"], c["vocab_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    values, keys = (c[f"linear_num_{n}_heads"] * c[f"linear_{n}_head_dim"] for n in ("value", "key"))
    lin_heads = c["linear_num_value_heads"]
    shapes = {"model.embed_tokens.weight": (vocab, h), "model.norm.weight": (h,), "lm_head.weight": (vocab, h)}

    def add_mlp(p, width):
        shapes.update({p + "gate_proj.weight": (width, h), p + "up_proj.weight": (width, h), p + "down_proj.weight": (h, width)})

    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = (h,)
        if c["layer_types"][i] == "linear_attention":
            a = p + "linear_attn."
            shapes.update({a + "A_log": (lin_heads,), a + "dt_bias": (lin_heads,), a + "norm.weight": (c["linear_value_head_dim"],),
                           a + "conv1d.weight": (2 * keys + values, 1, c["linear_conv_kernel_dim"]), a + "out_proj.weight": (h, values)})
            if c["model_type"] == "qwen3_next":
                shapes.update({a + "in_proj_qkvz.weight": (2 * keys + 2 * values, h), a + "in_proj_ba.weight": (2 * lin_heads, h)})
            else:
                shapes.update({a + "in_proj_qkv.weight": (2 * keys + values, h), a + "in_proj_z.weight": (values, h),
                               a + "in_proj_b.weight": (lin_heads, h), a + "in_proj_a.weight": (lin_heads, h)})
        else:
            a = p + "self_attn."
            shapes.update({a + "q_proj.weight": (2 * heads * d, h), a + "k_proj.weight": (kv * d, h), a + "v_proj.weight": (kv * d, h),
                           a + "o_proj.weight": (h, heads * d), a + "q_norm.weight": (d,), a + "k_norm.weight": (d,)})
        if "num_experts" not in c or i in c.get("mlp_only_layers", []):
            add_mlp(p + "mlp.", c["intermediate_size"])
            continue
        n, width = c["num_experts"], c["moe_intermediate_size"]
        shapes.update({p + "mlp.gate.weight": (n, h), p + "mlp.shared_expert_gate.weight": (1, h)})
        add_mlp(p + "mlp.shared_expert.", c["shared_expert_intermediate_size"])
        if c["model_type"] == "qwen3_next":
            for e in range(n):
                add_mlp(p + f"mlp.experts.{e}.", width)
        else:
            shapes.update({p + "mlp.experts.gate_up_proj": (n, 2 * width, h), p + "mlp.experts.down_proj": (n, h, width)})
    return shapes


def write_model(name, config, seed):
    torch.manual_seed(seed)
    w = {}
    for n, s in shapes_of(config).items():
        value = 0.2 * torch.randn(s)
        if n.endswith("linear_attn.norm.weight"):
            value = 1 + value
        if n.endswith("conv1d.weight"):
            value = 3 * value
        if n.endswith("A_log"):
            value = torch.log(0.05 + 4 * torch.rand(s))
        w[n] = value
    exact = {n: x.double().requires_grad_(True) for n, x in w.items()}
    vocab = config["vocab_size"]
    ids = torch.randint(3, vocab, (2, 70))
    mask = torch.ones_like(ids)
    mask[1, 41:] = 0
    ids[1, 41:] = 0
    labels = ids.clone()
    labels[mask == 0] = -100
    labels[0, 4] = -100
    logits = forward(ids, mask, exact, config)
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, vocab), labels[:, 1:].reshape(-1), ignore_index=-100)
    loss.backward()
    golden = {"input_ids": ids, "attention_mask": mask, "labels": labels, "logits": logits, "loss": loss.reshape(1)}
    golden.update({"grad." + n: p.grad for n, p in exact.items()})
    golden = {n: x.detach().float() if x.is_floating_point() else x for n, x in golden.items()}
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_safetensors(folder / "model.safetensors", w)
    save_safetensors(folder / "golden.safetensors", golden)


def main():
    torch.set_num_threads(1)
    common = {"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
              "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 8, "max_position_embeddings": 128, "vocab_size": 53, "linear_conv_kernel_dim": 4,
              "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5}
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
                                "mrope_section": [1, 0, 0], "mrope_interleaved": True}}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 12}
    two = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    # With this seed the same lines in float32 are within 1e-5 of float64's; others lose up to 6e-4 where a norm meets a
    # small sum.
    write_model("qwen3_next", {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "intermediate_size": 28,
                               "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "norm_topk_prob": True, "torch_dtype": "float32",
                               "num_hidden_layers": 3, "mlp_only_layers": [2],
                               "layer_types": ["linear_attention", "full_attention", "linear_attention"], **experts, **common}, 19)
    write_model("qwen3_5", {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "intermediate_size": 28,
                            "dtype": "float32", **two, **rope, **common}, 12)
    write_model("qwen3_5_moe", {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "dtype": "float32",
                                **two, **rope, **experts, **common}, 13)


if __name__ == "__main__":
    main()
