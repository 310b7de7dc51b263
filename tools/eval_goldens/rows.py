"""Rows of the benchmarks' own files as lm-evaluation-harness' tasks ask them (lm_eval/tasks/…)."""
import csv
import dataclasses
import gzip
import json
import re
import typing


@dataclasses.dataclass
class Row:
    raw: typing.Any  # as it lies in the file: two rows are the same if these are
    text: str  # the question as the prompt has it
    answer: str  # what stands behind it where the row is an example
    choices: list = dataclasses.field(default_factory=list)
    right: list = dataclasses.field(default_factory=list)


def csv_rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def json_lines(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
    with opened as file:
        return [json.loads(line) for line in file if line.strip()]


def lettered(raw, question, options, letter, ask):
    lines = [question.strip()] + [f"{name}. {option}" for name, option in zip("ABCD", options)]
    return Row(raw, "\n".join(lines + [ask]), letter, list("ABCD"), ["ABCD".index(letter)])


def mmlu(root, subject, split):
    path = root / "mmlu/data" / split / f"{subject}_{split}.csv"
    return [lettered(r, r[0], r[1:5], r[5], "Answer:") for r in csv_rows(path)]


def chinese(path, first):
    """CMMLU and C-Eval: a number, the question at `first`, four options, a letter (and more)."""
    rows = csv_rows(path)[1:]
    return [lettered(r, r[first], r[first + 1 : first + 5], r[first + 5], "答案：") for r in rows]


def cmmlu(root, subject, split):
    return chinese(root / "cmmlu" / split / f"{subject}.csv", 1)


def ceval(root, subject, split):
    return chinese(root / "ceval" / split / f"{subject}_{split}.csv", 1)


def agieval(root, subset):
    """The zero-shot question of AGIEval's own loader, which is what hails/agieval-* hold as `query`."""
    out = []
    for raw in json_lines(root / "agieval/data/v1" / f"{subset}.jsonl"):
        labels = raw["label"] if isinstance(raw["label"], list) else [raw["label"]]
        last = "ABCDEFG"[len(raw["options"]) - 1]
        options = " ".join(raw["options"])
        text = f"{raw['passage'] or ''}Q: {raw['question']} Answer Choices: {options}\n"
        text += f"A: Among A through {last}, the answer is"
        right = ["ABCDEFG".index(label) for label in labels]
        out.append(Row(raw, text, raw["options"][right[0]], raw["options"], right))
    return out


def boolq(root):
    out = []
    for raw in json_lines(root / "boolq/dev.jsonl"):
        text = f"{raw['passage']}\nQuestion: {raw['question']}?\nAnswer:"
        label = int(raw["answer"])
        out.append(Row(raw, text, ["no", "yes"][label], ["no", "yes"], [label]))
    return out


def hellaswag(root):
    def clean(text):
        text = text.strip().replace(" [title]", ". ")
        return re.sub(r"\[.*?\]", "", text).replace("  ", " ")

    out = []
    for raw in json_lines(root / "hellaswag/rubriks_hellaswag.jsonl"):
        text = f"{raw['activity_label']}: {raw['ctx_a']} {raw['ctx_b'].capitalize()}"
        choices = [clean(ending) for ending in raw["endings"]]
        label = int(raw["label"])
        out.append(Row(raw, clean(text), choices[label], choices, [label]))
    return out


def gsm8k(root, split):
    rows = json_lines(root / "gsm8k" / f"{split}.jsonl")
    return [Row(raw, f"Question: {raw['question']}\nAnswer:", raw["answer"]) for raw in rows]


BBH_ASK = "\nA: Let's think step by step.\n"


def bbh(root, task):
    examples = json.loads((root / "bbh/bbh" / f"{task}.json").read_text(encoding="utf-8"))["examples"]
    return [Row(raw, f"Q: {raw['input']}{BBH_ASK}", raw["target"]) for raw in examples]


def bbh_shots(root, task):
    """(description, shots) of cot-prompts/TASK.txt: behind the canary's line, split at empty lines."""
    text = (root / "bbh/cot-prompts" / f"{task}.txt").read_text(encoding="utf-8")
    description, *shots = text.split("-----\n", 1)[1].strip().split("\n\n")
    rows = []
    for shot in shots:
        question, answer = shot.split(BBH_ASK, 1)
        rows.append(Row(shot, question + BBH_ASK, answer))
    return description + "\n\n", rows


def humaneval(root):
    return [Row(raw, raw["prompt"], "") for raw in json_lines(root / "humaneval/HumanEval.jsonl.gz")]
