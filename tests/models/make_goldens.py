#!/usr/bin/python3
"""Writes tests/models/goldens: small models computed with PyTorch, dense and padded, to hold against ours.

Run with Debian's python3-torch:  /usr/bin/python3 tests/models/make_goldens.py
What it states independently of src/: rotary scalings (Hugging Face's rope_utils formulas, in float64), ALiBi as
Baichuan-13B builds it (slope * key position under a causal mask), sliding windows as a dense mask, NormHead.
"""
import json, math, pathlib, struct
import torch

OUT = pathlib.Path(__file__).parent / "goldens"


def save_safetensors(path, tensors):
    kinds = {torch.float32: "F32", torch.int64: "I64", torch.float64: "F64"}
    header, blobs, at = {}, [], 0
    for name, tensor in sorted(tensors.items()):
        data = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# --- rotary frequencies -----------------------------------------------------------------------
def rope_plain(dim, theta):
    return [1.0 / theta ** (2 * j / dim) for j in range(dim // 2)]


def rope_llama3(dim, theta, factor, low, high, original):
    result = []
    for f in rope_plain(dim, theta):
        wavelen = 2 * math.pi / f
        if wavelen < original / high:
            result.append(f)
        elif wavelen > original / low:
            result.append(f / factor)
        else:
            smooth = (original / wavelen - low) / (high - low)
            result.append((1 - smooth) / factor * f + smooth * f)
    return result


def rope_yarn(dim, theta, factor, original, beta_fast=32, beta_slow=1):
    def correction(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(correction(beta_fast)), 0), min(math.ceil(correction(beta_slow)), dim - 1)
    if low == high:
        high += 0.001
    result = []
    for j, f in enumerate(rope_plain(dim, theta)):
        ramp = min(max((j - low) / (high - low), 0), 1)
        keep = 1 - ramp
        result.append(f / factor * (1 - keep) + f * keep)
    return result


def rope_dynamic(dim, theta, factor, original, length):
    base = theta * (factor * max(length, original) / original - (factor - 1)) ** (dim / (dim - 2))
    return rope_plain(dim, base)


def write_rope():
    cases = [
        dict(name="plain", rope_scaling=None, theta=10000.0, dim=16, max=128, frequencies=rope_plain(16, 10000.0)),
        dict(name="linear", rope_scaling={"type": "linear", "factor": 2.5}, theta=10000.0, dim=16, max=128,
             frequencies=[f / 2.5 for f in rope_plain(16, 10000.0)]),
        dict(name="llama3", theta=500000.0, dim=64, max=131072,
             rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192},
             frequencies=rope_llama3(64, 500000.0, 8.0, 1.0, 4.0, 8192)),
        dict(name="llama3_2", theta=500000.0, dim=64, max=131072,
             rope_scaling={"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192},
             frequencies=rope_llama3(64, 500000.0, 32.0, 1.0, 4.0, 8192)),
        dict(name="yarn", theta=1000000.0, dim=128, max=32768,
             rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
             frequencies=rope_yarn(128, 1000000.0, 4.0, 32768), attention_factor=0.1 * math.log(4.0) + 1),
        dict(name="yarn_betas", theta=10000.0, dim=64, max=4096,
             rope_scaling={"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096, "beta_fast": 16,
                           "beta_slow": 2, "attention_factor": 1.5},
             frequencies=rope_yarn(64, 10000.0, 16.0, 4096, 16, 2), attention_factor=1.5),
        dict(name="dynamic_short", rope_scaling={"type": "dynamic", "factor": 2.0}, theta=10000.0, dim=16, max=128,
             length=100, frequencies=rope_dynamic(16, 10000.0, 2.0, 128, 100)),
        dict(name="dynamic_long", rope_scaling={"type": "dynamic", "factor": 2.0}, theta=10000.0, dim=16, max=128,
             length=300, frequencies=rope_dynamic(16, 10000.0, 2.0, 128, 300)),
    ]
    (OUT / "rope.json").write_text(json.dumps(cases, indent=1) + "\n")


# --- small models, dense ----------------------------------------------------------------------
def alibi_slopes(n):
    def power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power(n)
    p = 2 ** math.floor(math.log2(n))
    return power(p) + alibi_slopes(2 * p)[0::2][: n - p]


def rms(x, w, eps):
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def forward(ids, mask, w, c, hidden_out=None):
    """Logits [B,T,V] the dense way: every pair of positions scored, then masked."""
    b, t = ids.shape
    heads, kv, d = c["heads"], c["kv"], c["dim"]
    x = w["model.embed_tokens.weight"][ids]
    where = torch.arange(t)
    allowed = (where[None, :] <= where[:, None])
    if c.get("window"):
        allowed &= where[None, :] > where[:, None] - c["window"]
    allowed = allowed[None, None] & (mask[:, None, None, :] == 1)
    bias = torch.zeros(1, heads, 1, t)
    if c.get("alibi"):
        bias = torch.tensor(alibi_slopes(heads)).view(1, heads, 1, 1) * where.view(1, 1, 1, t)
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        h = rms(x, w[p + "input_layernorm.weight"], c["eps"])
        if p + "self_attn.W_pack.weight" in w:
            q, k, v = (h @ w[p + "self_attn.W_pack.weight"].T).chunk(3, -1)
        else:
            q, k, v = (h @ w[p + f"self_attn.{n}_proj.weight"].T for n in "qkv")
        q, k, v = (y.view(b, t, -1, d).transpose(1, 2) for y in (q, k, v))
        if not c.get("alibi"):
            angle = where[:, None].float() * torch.tensor(rope_plain(d, c["theta"]))[None]
            cos, sin = torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(d) + bias
        weights = scores.masked_fill(~allowed, -1e30).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(b, t, -1) @ w[p + "self_attn.o_proj.weight"].T
        h = rms(x, w[p + "post_attention_layernorm.weight"], c["eps"])
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    x = rms(x, w["model.norm.weight"], c["eps"])
    head = w["lm_head.weight"]
    if c.get("norm_head"):
        head = torch.nn.functional.normalize(head)
    return x @ head.T


def write_model(name, config, c, seed):
    torch.manual_seed(seed)
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        if config["model_type"] == "baichuan":
            shapes[p + "self_attn.W_pack.weight"] = (3 * hidden, hidden)
        else:
            shapes[p + "self_attn.q_proj.weight"] = (c["heads"] * c["dim"], hidden)
            shapes[p + "self_attn.k_proj.weight"] = shapes[p + "self_attn.v_proj.weight"] = (c["kv"] * c["dim"], hidden)
        shapes[p + "self_attn.o_proj.weight"] = (hidden, c["heads"] * c["dim"])
        shapes[p + "mlp.gate_proj.weight"] = shapes[p + "mlp.up_proj.weight"] = (ffn, hidden)
        shapes[p + "mlp.down_proj.weight"] = (hidden, ffn)
        shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = (hidden,)
    w = {n: (1 + 0.2 * torch.randn(s) if len(s) == 1 else 0.2 * torch.randn(s)).requires_grad_(True) for n, s in shapes.items()}
    ids = torch.randint(3, vocab, (2, 13))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    ids[1, 9:] = 0
    labels = ids.clone()
    labels[mask == 0] = -100
    labels[0, 4] = -100
    logits = forward(ids, mask, w, c)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocab), labels[:, 1:].reshape(-1), ignore_index=-100)
    if c.get("z_loss"):
        kept = (labels[:, 1:] != -100)
        loss = loss + c["z_loss"] * (logits[:, :-1].amax(-1)[kept] ** 2).mean()
    loss.backward()
    golden = {"input_ids": ids, "attention_mask": mask, "labels": labels, "logits": logits, "loss": loss.reshape(1)}
    golden.update({"grad." + n: p.grad for n, p in w.items()})
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_safetensors(folder / "model.safetensors", w)
    save_safetensors(folder / "golden.safetensors", golden)


def main():
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    write_rope()
    common = {"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
              "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 2}
    write_model("baichuan_alibi",
                {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "hidden_size": 24, "intermediate_size": 28,
                 "num_attention_heads": 6, "model_max_length": 64, "vocab_size": 53, "z_loss_weight": 0.01, **common},
                dict(heads=6, kv=6, dim=4, layers=2, eps=1e-6, alibi=True, norm_head=True, z_loss=0.01), 1)
    write_model("mistral_window",
                {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 24, "intermediate_size": 28,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64,
                 "sliding_window": 4, "rope_theta": 10000.0, "vocab_size": 53, **common},
                dict(heads=4, kv=2, dim=6, layers=2, eps=1e-6, window=4, theta=10000.0), 2)


if __name__ == "__main__":
    main()
