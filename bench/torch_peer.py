"""What the benches of whole steps beside PyTorch share: Danlu's runs, its weights as tensors, and the operators that models have in
common. Import it before numpy and torch: it makes both use one thread."""

import json
import math
import os
import resource
import statistics
import struct
import subprocess
import time

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
import numpy as np
import torch


class Danlu:
    """The program of a build folder, run in `work`."""

    def __init__(self, build, work):
        self.program, self.work = os.path.join(os.path.abspath(build), "danlu"), work

    def __call__(self, *words):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"danlu {' '.join(map(str, words))}: {done.stderr.decode()}")

    def rendered(self, row):
        """`danlu render --json` of a line of rows.jsonl."""
        with open(os.path.join(self.work, "one.jsonl"), "w") as one:
            one.write(row)
        return json.loads(subprocess.run([self.program, "render", "--model", "model", "--input", "one.jsonl", "--json"],
                                         cwd=self.work, stdout=subprocess.PIPE, check=True).stdout)

    def processor_seconds(self, *words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self(*words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def training_seconds(self, steps, rows, lr, *more, command=("sft",), dtype="fp32"):
        """Processor time of a training of rows.jsonl with so many rows a step, and what it has logged of its steps."""
        seconds = self.processor_seconds(
             *command, "--model", "model", "--dataset", "rows.jsonl", "--output_dir", "run", "--no-version-dir",
             "--overwrite_output_dir", "--cache_dir", "cache", "--dtype", dtype, "--max_steps", steps, "--batch_size", rows,
             "--global_batch_size", rows, "--val_ratio", 0, "--save_strategy", "no", "--lr", lr, "--lr_scheduler", "constant",
             "--warmup_ratio", 0, "--logging_steps", 1, "--device", "cpu", "--plot_loss", "false", *more)
        with open(os.path.join(self.work, "run/logging.jsonl")) as log:
            logged = [line for line in map(json.loads, log) if "loss" in line]
        return seconds, logged


def tensors_of(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header, body = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(np.frombuffer(body, np.float32, math.prod(entry["shape"]), entry["data_offsets"][0])
                                   .reshape(entry["shape"]).copy()) for name, entry in header.items()}


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def attended(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return torch.softmax(scores, dim=-1) @ v


def adamw_of(weights, lr):
    """Decays matrices alone, as Danlu does."""
    for weight in weights.values():
        weight.requires_grad_()
    matrices = [w for w in weights.values() if w.dim() > 1]
    vectors = [w for w in weights.values() if w.dim() == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=lr,
                             betas=(0.9, 0.95))


def step_of(weights, adamw, loss_of):
    adamw.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
    adamw.step()
    return loss.item()


def beside(peer_step, logged_of, options):
    """Both by turns on one processor: first losses, the median milliseconds of a step, and PyTorch's by Danlu's. Danlu's are those
    that it logs, of the steps behind the first two. logged_of(steps): runs a training, gives what it has logged of each step."""
    first_loss = peer_step()  # warm
    ours, theirs = [], []
    for _ in range(options.turns):
        logged = logged_of(2 + options.steps)
        ours.append(statistics.median(step["train_speed(s/it)"] for step in logged[2:]))
        for _ in range(options.steps):
            begin = time.perf_counter()
            peer_step()
            theirs.append(time.perf_counter() - begin)
    danlu_ms, torch_ms = (1000 * statistics.median(times) for times in (ours, theirs))
    return {"danlu_loss": logged[0]["loss"], "torch_loss": round(first_loss, 6), "danlu_ms": round(danlu_ms, 1),
            "torch_ms": round(torch_ms, 1), "ratio": round(torch_ms / danlu_ms, 3), "danlu_turns_ms": [round(1000 * s) for s in ours]}
