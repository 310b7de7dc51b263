#!/usr/bin/env python3
"""Writes tests/eval/golden_scores.json: what a small real model answers to real benchmarks. See README.md."""
import argparse
import hashlib
import json
import pathlib

import jinja2
import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment

import harness_rules as rules
import rows
from llama_tokenizer import LlamaTokenizer
from small_llama import SmallLlama

GOLDEN = pathlib.Path(__file__).resolve().parent / "../../tests/eval/golden_scores.json"
ENGLISH = "The following are multiple choice questions (with answers) about {}.\n\n"
CMMLU = "以下是关于{}的单项选择题，请直接给出正确答案的选项。\n\n"
CEVAL = "以下是中国关于{}的单项选择题，请选出其中的正确答案。\n\n"
TURNS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"chatml": TURNS, "chatml_with_bos": "{{ bos_token }}" + TURNS}

# A task of the user's own, for perplexity: our sentences, in the order of the numbers.
SENTENCES = [
    "Once upon a time there was a little boat with a red sail.",
    "It went up and down the river, past the mill and the old bridge, and it never asked for more.",
    "\n\n",
    "One day the wind said: \"Come with me to the sea!\"",
    "But the sea was big, and the boat had only 2 oars and 1 very small anchor.",
    "Lily and Tom saw it  from the garden; they waved, laughed and ran along the bank.",
    "“Naïve little boat,” said the café's cat – 小船 – and went to sleep.",
    "\tThe boat was sad and happy and then it was not sad any more.\n",
]
ORDERS = [[(i * i + 3 * i // 2) % 8 for i in range(66)], [0, 3, 7]]
TEXTS_TASK = """task: own_texts
dataset_path: json
dataset_kwargs:
  data_files:
    test: own_texts.jsonl
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
    aggregation: weighted_perplexity
    higher_is_better: false
  - metric: byte_perplexity
    aggregation: weighted_perplexity
    higher_is_better: false
  - metric: bits_per_byte
    aggregation: bits_per_byte
    higher_is_better: false
"""
# Another, whose texts meet their stops and whose answers are sometimes right.
STORIES = [
    ("Once upon a time, there was", "High"),
    ("The boat was sad, because it had no", "friends"),
    ("\"Come with me!\" said the wind.\nThe end.", "moon"),
    ("小船", "park"),
]
STORY_STOPS, STORY_PATTERN = ["\n", " very"], r"(\w+)\."
STORIES_TASK = """task: own_stories
dataset_path: json
dataset_kwargs:
  data_files:
    test: own_stories.jsonl
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["\\n", " very"]
  max_gen_toks: 64
  do_sample: false
filter_list:
  - name: last-word
    filter:
      - function: regex
        regex_pattern: '(\\w+)\\.'
        group_select: -1
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
"""


def json_lines(values):
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def sha256(text):
    """The first half of it, which names a text as surely."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def rendered(template, messages):
    """apply_chat_template of Hugging Face, up to where the answer begins."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = lambda text: (_ for _ in ()).throw(jinja2.TemplateError(text))
    return env.from_string(TEMPLATES[template]).render(
        messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


class Case:
    """One run of lm_eval: its flags, and how contexts are made."""

    def __init__(self, name, task, flags, limit, data=None, **how):
        self.name, self.limit = name, limit
        self.head = {"name": name, "task": task, "arguments": ["--tasks", task, "--limit", str(limit)] + flags}
        if data:
            self.head["data"] = data
        self.shots = how.get("shots", rules.Shots([], 0, "first", False))
        self.description = how.get("description", "")
        self.delimiter = how.get("delimiter", " ")
        self.template, self.multiturn = how.get("template"), how.get("multiturn", False)
        self.instruction = how.get("instruction", "")
        if self.template:
            self.head["chat_template"] = self.template

    def context(self, row):
        system = rules.system_text(self.instruction, self.description, "\n\n")
        parts = rules.turns(system, self.shots.of(row), row, self.delimiter, "\n\n")
        if not self.template:
            return rules.plain(parts)
        return rendered(self.template, rules.as_messages(parts, self.multiturn))


def choice_golden(asked, case, questions, metrics):
    items = []
    for doc_id, row in enumerate(questions[: case.limit]):
        context = case.context(row)
        # construct_requests: a chat template's text needs no delimiter in front of the choice.
        continuations = [("" if case.template else case.delimiter) + choice for choice in row.choices]
        answers = [asked.likelihood(context, text) for text in continuations]
        for answer, text in zip(answers, continuations):
            answer["continuation"] = sha256(text)
        scores = rules.choice_scores([a["log_likelihood"] for a in answers], row.choices, row.right)
        scores = {metric: scores[metric] for metric in metrics}
        items.append({"doc_id": doc_id, "context": sha256(context), "answers": answers, "scores": scores})
    return dict(case.head, items=items, results=results_of([item["scores"] for item in items], "none"))


def results_of(scores, filter_name):
    out = {}
    for metric in scores[0]:
        mean, error = rules.mean_and_error([score[metric] for score in scores])
        out[f"{metric},{filter_name}"], out[f"{metric}_stderr,{filter_name}"] = mean, error
    return out


def generation_golden(asked, case, questions, until, max_tokens, filters, score):
    """filters: name -> text and row to filtered answer; score: filtered answer and row to scores, or None."""
    items = []
    for doc_id, row in enumerate(questions[: case.limit]):
        context = case.context(row)
        text, ids, margin = asked.generated(context, until, max_tokens)
        item = {"doc_id": doc_id, "context": sha256(context), "text": sha256(text), "ids": ids}
        item.update(smallest_margin=margin, filters={})
        for name, apply in filters.items():
            filtered = apply(text, row)
            item["filters"][name] = {"filtered": sha256(filtered)}
            if score:
                item["filters"][name]["scores"] = score(filtered, row)
        items.append(item)
    results = {}
    for name in filters if score else []:
        results.update(results_of([item["filters"][name]["scores"] for item in items], name))
    return dict(case.head, items=items, results=results)


def multiple_choice(asked, root):
    def first(pool, count):
        return rules.Shots(pool, count, "first", False)

    both, acc = ["acc", "acc_norm"], ["acc"]
    for subject in ["abstract_algebra", "high_school_european_history"]:
        description = ENGLISH.format(subject.replace("_", " "))
        test, dev = rows.mmlu(root, subject, "test"), rows.mmlu(root, subject, "dev")
        for count in [0, 5]:
            case = Case(f"mmlu_{subject}_{count}_shot", f"mmlu_{subject}", ["--num_fewshot", str(count)], 8, "mmlu",
                        description=description, shots=first(dev, count))
            yield choice_golden(asked, case, test, acc)
    case = Case("cmmlu", "cmmlu_agronomy", [], 8, "cmmlu", description=CMMLU.format("农学"))
    yield choice_golden(asked, case, rows.cmmlu(root, "agronomy", "test"), both)
    dev = rows.ceval(root, "advanced_mathematics", "dev")
    case = Case("ceval", "ceval-valid_advanced_mathematics", ["--num_fewshot", "5"], 8, "ceval",
                description=CEVAL.format("高等数学"), shots=first(dev, 5))
    yield choice_golden(asked, case, rows.ceval(root, "advanced_mathematics", "val"), both)
    case = Case("agieval", "agieval_aqua_rat", [], 8, "agieval")
    yield choice_golden(asked, case, rows.agieval(root, "aqua-rat"), both)
    case = Case("boolq", "boolq", [], 8, "boolq")
    yield choice_golden(asked, case, rows.boolq(root), acc)


def hellaswag(asked, root):
    """Of the rows that there are some are made the test split, some the training split.

    Task.fewshot_docs takes shots from the training split; fewshot_split and test_split are both unset, hence
    equal, and so ConfigurableTask.fewshot_context has one more drawn and the question itself dropped.
    """
    every = rows.hellaswag(root)
    for name, count, train in [("0_shot", 0, (20, 1000)), ("3_shot", 3, (20, 1000)), ("3_shot_of_12", 3, (0, 12)),
                               ("7_shot_of_40", 7, (0, 40))]:
        shots = rules.Shots(every[slice(*train)], count, "random", True)
        case = Case(f"hellaswag_{name}", "hellaswag", ["--num_fewshot", str(count)], 8, shots=shots)
        case.head["made_data"] = {"from": "hellaswag/rubriks_hellaswag.jsonl",
                                  "lines": {"hellaswag_train.jsonl": train, "hellaswag_val.jsonl": (0, 20)}}
        yield choice_golden(asked, case, every[:20], ["acc", "acc_norm"])


def chat(asked, root):
    """MMLU with two examples behind a chat template, as turns and not; and with a system text."""
    subject = "abstract_algebra"
    test, dev = rows.mmlu(root, subject, "test"), rows.mmlu(root, subject, "dev")
    system = "Answer with one letter."
    for name, template, multiturn, instruction in [
        ("mmlu_chat_multiturn", "chatml", True, ""),
        ("mmlu_chat_one_turn", "chatml", False, ""),
        ("mmlu_chat_with_bos", "chatml_with_bos", True, ""),
        ("mmlu_chat_system", "chatml_with_bos", False, system),
        ("mmlu_plain_system", None, False, system),
    ]:
        flags = ["--num_fewshot", "2"]
        if template:
            flags += ["--apply_chat_template", "--fewshot_as_multiturn", "true" if multiturn else "false"]
        if instruction:
            flags += ["--system_instruction", instruction]
        case = Case(name, f"mmlu_{subject}", flags, 4, "mmlu", template=template, multiturn=multiturn,
                    instruction=instruction, description=ENGLISH.format("abstract algebra"),
                    shots=rules.Shots(dev, 2, "first", False))
        yield choice_golden(asked, case, test, ["acc"])


def gsm8k(asked, root):
    strict, flexible = r"#### (\-?[0-9\.\,]+)", r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
    ignored = [",", r"\$", "(?s).*#### ", r"\.$"]
    filters = {
        "strict-match": lambda text, row: rules.regex_filter(text, strict, 0),
        "flexible-extract": lambda text, row: rules.regex_filter(text, flexible, -1),
    }
    case = Case("gsm8k", "gsm8k", ["--num_fewshot", "2", "--gen_kwargs", "max_gen_toks=48"], 4, "gsm8k",
                shots=rules.Shots(rows.gsm8k(root, "train"), 2, "random", False))
    return generation_golden(
        asked, case, rows.gsm8k(root, "test"), ["Question:", "</s>", "<|im_end|>"], 48, filters,
        lambda text, row: {"exact_match": rules.exact_match(text, row.answer, ignored, ignore_case=True)})


def bbh(asked, root):
    description, shots = rows.bbh_shots(root, "boolean_expressions")
    pattern = r"(?<=the answer is )(.*)(?=.)"
    case = Case("bbh", "bbh_cot_fewshot_boolean_expressions", ["--gen_kwargs", "max_gen_toks=32"], 3, "bbh",
                description=description, delimiter="", shots=rules.Shots(shots, 3, "first", False))
    return generation_golden(
        asked, case, rows.bbh(root, "boolean_expressions"), ["</s>", "Q", "\n\n"], 32,
        {"get-answer": lambda text, row: rules.regex_filter(text, pattern, 0)},
        lambda text, row: {"exact_match": rules.exact_match(text, row.answer)})


def humaneval(asked, root):
    """Its code is not run here: only what would be run is recorded."""
    case = Case("humaneval", "humaneval", ["--gen_kwargs", "max_gen_toks=32", "--predict_only"], 3, "humaneval")
    until = ["\nclass", "\ndef", "\n#", "\nif", "\nprint"]
    filters = {"create_test": lambda text, row: row.text + text}
    return generation_golden(asked, case, rows.humaneval(root), until, 32, filters, None)


def stories(asked):
    questions = [rows.Row(story, *story) for story in STORIES]
    case = Case("own_stories", "own_stories", ["--include_path", "own_stories.yaml"], len(STORIES))
    case.head["files"] = {
        "own_stories.yaml": STORIES_TASK,
        "own_stories.jsonl": json_lines({"prompt": prompt, "answer": answer} for prompt, answer in STORIES),
    }
    return generation_golden(
        asked, case, questions, STORY_STOPS, 64,
        {"last-word": lambda text, row: rules.regex_filter(text, STORY_PATTERN, -1)},
        lambda text, row: {"exact_match": rules.exact_match(text, row.answer, ignore_case=True)})


def rolling(asked):
    texts = [" ".join(SENTENCES[i] for i in order) for order in ORDERS]
    case = Case("own_texts", "own_texts", ["--include_path", "own_texts.yaml"], len(texts))
    case.head["files"] = {"own_texts.yaml": TEXTS_TASK, "own_texts.jsonl": json_lines({"text": text} for text in texts)}
    items = [{"doc_id": i, "text": sha256(text), **asked.rolling(text)} for i, text in enumerate(texts)]
    values = rules.perplexities([item["log_likelihood"] for item in items], texts)
    return dict(case.head, items=items, results={f"{name},none": value for name, value in values.items()})


def greatest_difference(golden, other):
    """Relative, over all log-likelihoods; and everything else that is not the same."""
    worst, unlike = 0.0, []

    def compare(a, b, where):
        nonlocal worst
        if isinstance(a, dict):
            for key in a:
                compare(a[key], b[key], f"{where}/{key}")
        elif isinstance(a, list) and len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b)):
                compare(x, y, f"{where}/{i}")
        elif isinstance(a, float) and a and where.endswith("log_likelihood"):
            worst = max(worst, abs(a - b) / abs(a))
        elif a != b and not isinstance(a, float):
            unlike.append(where)

    compare(golden, other, "")
    return worst, unlike


def make(model_dir, root, dtype):
    asked = rules.Asked(SmallLlama(model_dir, dtype), LlamaTokenizer(model_dir))
    cases = [*multiple_choice(asked, root), *hellaswag(asked, root), *chat(asked, root)]
    generated = [gsm8k(asked, root), bbh(asked, root), humaneval(asked, root), stories(asked)]
    return {
        "made_by": "tools/eval_goldens/generate.py",
        "arithmetic": "float32 weights, computed in float64",
        "chat_templates": TEMPLATES,
        "multiple_choice": cases,
        "generation": generated,
        "rolling": [rolling(asked)],
    }


def as_text(golden):
    """Indented, but what fits on a line stands on one."""

    def write(value, indent):
        line = json.dumps(value, ensure_ascii=False)
        if not isinstance(value, (dict, list)) or len(line) + indent <= 178:
            return line
        space, end = "\n" + " " * (indent + 1), "\n" + " " * indent
        if isinstance(value, dict):
            inner = [f"{json.dumps(key)}: {write(item, indent + 1)}" for key, item in value.items()]
            return "{" + ",".join(space + part for part in inner) + end + "}"
        return "[" + ",".join(space + write(item, indent + 1) for item in value) + end + "]"

    return write(golden, 0) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="directory of stories260K as Hugging Face has it")
    parser.add_argument("data", type=pathlib.Path, help="directory with mmlu/, cmmlu/, ...")
    parser.add_argument("--check", action="store_true", help="write nothing: compare a float32 run with the golden")
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    if parsed.check:
        worst, unlike = greatest_difference(json.loads(GOLDEN.read_text(encoding="utf-8")),
                                            json.loads(as_text(make(parsed.model, parsed.data, torch.float32))))
        print(f"float32: log-likelihoods within {worst:.1e} relative; unlike: {unlike or 'nothing'}")
        return
    GOLDEN.write_text(as_text(make(parsed.model, parsed.data, torch.float64)), encoding="utf-8")


if __name__ == "__main__":
    main()
