#!/usr/bin/python3
"""Writes tests/models/goldens/{bert,xlm_roberta}.safetensors: small encoders computed with PyTorch, to hold against ours.

Run with Debian's python3-torch:  /usr/bin/python3 tests/models/make_bert_golden.py
Each text is computed by itself, in float64, by torch.nn.TransformerEncoderLayer (norms after the sums, exact gelu). Sums of
embeddings, first positions, token types and heads follow transformers' modeling_bert.py and modeling_xlm_roberta.py.
"""
import pathlib
import torch
import torch.nn.functional as F

from make_goldens import save_safetensors

LAYERS, HEADS, HIDDEN, INNER, VOCABULARY, ROWS, LABELS = 2, 2, 8, 12, 13, 11, 3
# Texts, and for each token which text of a pair it is of.
TEXTS = [([2, 5, 9, 3, 7, 12, 3], [0, 0, 0, 0, 1, 1, 1]), ([2, 8, 3], [0, 0, 0]), ([2, 4, 4, 10, 3], [0] * 5)]
LAYER_NAMES = {"self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
               "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm"}


def make(body, dense, score, first, types, eps, path):
    def drawn(*shape, mean=0.0):
        # Of numbers that F32 files hold exactly.
        return (mean + 0.3 * torch.randn(shape, dtype=torch.float64)).float().double().requires_grad_()

    torch.manual_seed(21)
    weights = {body + "embeddings.word_embeddings.weight": drawn(VOCABULARY, HIDDEN),
               body + "embeddings.position_embeddings.weight": drawn(ROWS, HIDDEN),
               body + "embeddings.token_type_embeddings.weight": drawn(types, HIDDEN),
               body + "embeddings.LayerNorm.weight": drawn(HIDDEN, mean=1), body + "embeddings.LayerNorm.bias": drawn(HIDDEN),
               dense + ".weight": drawn(HIDDEN, HIDDEN), dense + ".bias": drawn(HIDDEN),
               score + ".weight": drawn(LABELS, HIDDEN), score + ".bias": drawn(LABELS)}
    layers = []
    for number in range(LAYERS):
        layer = torch.nn.TransformerEncoderLayer(HIDDEN, HEADS, INNER, dropout=0.0, activation="gelu", layer_norm_eps=eps,
                                                 batch_first=True, norm_first=False, dtype=torch.float64)
        for name, parameter in layer.named_parameters():
            with torch.no_grad():
                parameter.copy_(drawn(*parameter.shape, mean=1.0 if name.startswith("norm") and "weight" in name else 0.0))
        layers.append(layer)
    hidden, numbers = [], []
    for ids, of_text in TEXTS:
        ids, of_text = torch.tensor(ids), torch.tensor(of_text) if types > 1 else torch.zeros(len(ids), dtype=torch.long)
        x = (F.embedding(ids, weights[body + "embeddings.word_embeddings.weight"]) +
             F.embedding(torch.arange(len(ids)) + first, weights[body + "embeddings.position_embeddings.weight"]) +
             F.embedding(of_text, weights[body + "embeddings.token_type_embeddings.weight"]))
        x = F.layer_norm(x, (HIDDEN,), weights[body + "embeddings.LayerNorm.weight"], weights[body + "embeddings.LayerNorm.bias"], eps)
        for layer in layers:
            x = layer(x[None])[0]
        hidden.append(x)
        read = torch.tanh(F.linear(x[0], weights[dense + ".weight"], weights[dense + ".bias"]))
        numbers.append(F.linear(read, weights[score + ".weight"], weights[score + ".bias"]))
    hidden, numbers = torch.cat(hidden), torch.stack(numbers)
    loss = (numbers * torch.arange(1, 10, dtype=torch.float64).view(3, 3)).sum()
    loss.backward()
    out = {"ids": torch.tensor([id for ids, _ in TEXTS for id in ids]), "types": torch.tensor([t for _, of in TEXTS for t in of]),
           "lengths": torch.tensor([len(ids) for ids, _ in TEXTS]), "hidden": hidden, "numbers": numbers}
    grads = {name: tensor.grad for name, tensor in weights.items()}
    for number, layer in enumerate(layers):
        name = f"{body}encoder.layer.{number}."
        for part in ("weight", "bias"):
            joint = getattr(layer.self_attn, "in_proj_" + part)
            for place, which in enumerate(("query", "key", "value")):
                rows = slice(place * HIDDEN, (place + 1) * HIDDEN)
                weights[f"{name}attention.self.{which}.{part}"] = joint[rows].contiguous()
                grads[f"{name}attention.self.{which}.{part}"] = joint.grad[rows].contiguous()
            for theirs, usual in LAYER_NAMES.items():
                parameter = dict(layer.named_parameters())[f"{theirs}.{part}"]
                weights[f"{name}{usual}.{part}"], grads[f"{name}{usual}.{part}"] = parameter, parameter.grad
    for name, tensor in weights.items():
        out["weight/" + name], out["grad/" + name] = tensor.detach().float(), grads[name]
    save_safetensors(pathlib.Path(__file__).parent / "goldens" / path, out)


def main():
    make("bert.", "bert.pooler.dense", "classifier", 0, 2, 1e-12, "bert.safetensors")
    make("roberta.", "classifier.dense", "classifier.out_proj", 2, 1, 1e-5, "xlm_roberta.safetensors")


if __name__ == "__main__":
    main()
