"""What training from preferences, QLoRA and rollouts cost beside what they are built on: ratios of Danlu to itself, by turns.

usage: preferences.py BUILD WORK [--turns 3] [--steps 4] [--only dpo,qlora,rollout]
Needs a python3. WORK is a folder for the models and the runs.

dpo: a step of DPO with adapters (its reference is the model without them) and a step of SFT of the same tokens, 50 M parameters, bf16:
time and peak memory, DPO's by SFT's.
qlora: a step with adapters on a base in NF4 and one in bf16, the shape of a model of 0.5 B parameters, 1024 tokens, layers recomputed: time and peak
memory, NF4's by bf16's.
rollout: `danlu rollout` (8 answers to each of 8 prompts, 64 tokens) and `danlu infer` of the same 64 prompts at a time, 50 M parameters,
bf16: processor time less that of one token, infer's by rollout's.
Times of steps are those that Danlu logs, the median of steps behind the first two. All run on one processor.
"""

import argparse
import json
import os
import statistics

from torch_peer import Danlu

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("build")
arguments.add_argument("work")
arguments.add_argument("--turns", type=int, default=3)
arguments.add_argument("--steps", type=int, default=4)
arguments.add_argument("--only", default="dpo,qlora,rollout")
options = arguments.parse_args()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the children inherit it

WORDS = [f"{kind}{i}" for i in range(8) for kind in ("fox", "dog", "hare", "owl", "elk", "bee", "cat", "hen")]
SMALL = {"model_type": "qwen2", "vocab_size": 16000, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12,
         "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True}
HALF_BILLION = {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True}


def work_of(name, shape):
    """A Danlu in a folder with a model of the shape."""
    folder = os.path.join(options.work, name)
    danlu = Danlu(options.build, folder)
    if os.path.exists(os.path.join(folder, "model/config.json")):
        return danlu
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "texts.txt"), "w") as texts:
        texts.writelines(" ".join(WORDS[i:] + WORDS[:i]) + "\n" for i in range(64))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**shape, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}, file)
    danlu("tokenizer", "train", "--input", "texts.txt", "--vocab_size", 320, "--chat_template", "chatml", "--output", "tokenizer",
          "--special_tokens", "<|endoftext|>")
    danlu("init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model")
    return danlu


def answer(row, words):
    turned = WORDS[row % len(WORDS):] + WORDS[:row % len(WORDS)]
    return " ".join((turned * (words // len(WORDS) + 1))[:words])


def conversation(row, words):
    return [{"role": "user", "content": f"{WORDS[row % 64]}?"}, {"role": "assistant", "content": answer(row, words)}]


def write(danlu, name, rows):
    with open(os.path.join(danlu.work, name), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def step_of(danlu, rows, *more, command=("sft",)):
    """Seconds and GiB of a step, and its tokens."""
    logged = danlu.training_seconds(2 + options.steps, rows, 1e-5, "--max_length", 4096, "--tuner_type", "lora", "--no_shuffle", *more,
                                    command=command, dtype="bf16")[1]
    seconds = statistics.median(step["train_speed(s/it)"] for step in logged[2:])
    return seconds, max(step["memory(GiB)"] for step in logged), round(logged[-1]["tokens_per_second"] * logged[-1]["train_speed(s/it)"])


def ratios(what, first, second):
    """Of first() by second(), by turns."""
    pairs = [(first(), second()) for _ in range(options.turns)]
    time_ratio, memory_ratio = (statistics.median(a[i] / b[i] for a, b in pairs) for i in (0, 1))
    print(json.dumps({"row": what, "time": round(time_ratio, 3), "memory": round(memory_ratio, 3),
                      "seconds": [round(pairs[-1][i][0], 3) for i in (0, 1)], "GiB": [round(pairs[-1][i][1], 3) for i in (0, 1)],
                      "tokens": [pairs[-1][i][2] for i in (0, 1)]}), flush=True)


def measure_dpo():
    danlu = work_of("small", SMALL)
    pairs = [(conversation(4 * i, 100), conversation(4 * i + 1, 100)) for i in range(4)]

    def dpo():
        write(danlu, "rows.jsonl", ({"messages": chosen, "rejected_response": rejected[1]["content"]} for chosen, rejected in pairs))
        return step_of(danlu, 4, command=("rlhf", "--rlhf_type", "dpo"))

    def sft():
        write(danlu, "rows.jsonl", ({"messages": [chosen[0], answers[1]]} for chosen, rejected in pairs for answers in (chosen, rejected)))
        return step_of(danlu, 8)

    ratios("dpo", dpo, sft)


def measure_qlora():
    danlu = work_of("half_billion", HALF_BILLION)
    write(danlu, "rows.jsonl", ({"messages": conversation(7 * i, 120)} for i in range(4)))
    recomputed = ["--gradient_checkpointing", "true"]
    ratios("qlora", lambda: step_of(danlu, 4, *recomputed, "--load_in_4bit"), lambda: step_of(danlu, 4, *recomputed))


def measure_rollout():
    danlu = work_of("small", SMALL)
    prompts = [{"messages": conversation(8 * i, 1)[:1], "solution": "1"} for i in range(8)]
    write(danlu, "prompts.jsonl", prompts)
    write(danlu, "all_prompts.jsonl", [prompt for prompt in prompts for _ in range(8)])
    common = ["--model", "model", "--overwrite", "--device", "cpu", "--batch_size", 64, "--temperature", 1, "--top_k", 0, "--top_p", 1,
              "--dtype", "bf16"]
    draws = lambda tokens: danlu.processor_seconds("rollout", "--dataset", "prompts.jsonl", "--reward_funcs", "accuracy", "--output", "drawn.jsonl",
                                                   "--num_generations", 8, "--max_new_tokens", tokens, *common)
    infers = lambda tokens: danlu.processor_seconds("infer", "--dataset", "all_prompts.jsonl", "--output", "said.jsonl", "--max_new_tokens",
                                                    tokens, *common)
    turns = [(infers(64) - infers(1)) / (draws(64) - draws(1)) for _ in range(options.turns)]
    print(json.dumps({"row": "rollout", "speed": round(statistics.median(turns), 3), "turns": [round(t, 3) for t in turns]}), flush=True)


for row in options.only.split(","):
    {"dpo": measure_dpo, "qlora": measure_qlora, "rollout": measure_rollout}[row]()
