"""Writes divergence_golden.json: divergences of two heads and their gradients.

As TRL's GKDTrainer.generalized_jsd_loss has them, token by token; `top` as ms-swift's
TeacherOutput.to_topk. Needs PyTorch 1.13 or newer: python3 make_divergence_golden.py
"""
import json
import pathlib

import torch
import torch.nn.functional as F

TOKENS, WIDTH, VOCAB = 4, 3, 9


def divergence(student, teacher, beta, temperature, top):
    if top:
        teacher, ids = torch.topk(teacher, k=top, dim=-1)
        student = torch.gather(student, -1, ids)
    own = F.log_softmax(student / temperature, dim=-1)
    other = F.log_softmax(teacher / temperature, dim=-1)
    kl = lambda a, b: F.kl_div(a, b, reduction="none", log_target=True).sum(-1)
    if beta == 0:
        return kl(own, other)
    if beta == 1:
        return kl(other, own)
    b = torch.tensor(beta, dtype=own.dtype)
    mixed = torch.logsumexp(
        torch.stack([own + torch.log(1 - b), other + torch.log(b)]), dim=0)
    return b * kl(mixed, other) + (1 - b) * kl(mixed, own)


def main():
    torch.manual_seed(5)
    hidden = torch.randn(TOKENS, WIDTH, dtype=torch.float64)
    weight = torch.randn(VOCAB, WIDTH, dtype=torch.float64)
    teacher = 2 * torch.randn(TOKENS, VOCAB, dtype=torch.float64)
    by = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    cases = []
    for beta in (0.0, 0.3, 0.5, 1.0):
        for temperature, top in ((1.0, 0), (0.7, 0), (0.9, 4)):
            h = hidden.clone().requires_grad_(True)
            w = weight.clone().requires_grad_(True)
            found = divergence(h @ w.t(), teacher, beta, temperature, top)
            (found * by).sum().backward()
            cases.append({"beta": beta, "temperature": temperature, "top": top,
                          "divergences": found.tolist(),
                          "d_hidden": h.grad.flatten().tolist(),
                          "d_weight": w.grad.flatten().tolist()})
    golden = {"tokens": TOKENS, "width": WIDTH, "vocab": VOCAB,
              "hidden": hidden.flatten().tolist(), "weight": weight.flatten().tolist(),
              "teacher": teacher.flatten().tolist(), "by": by.tolist(), "cases": cases}
    path = pathlib.Path(__file__).with_name("divergence_golden.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


main()
