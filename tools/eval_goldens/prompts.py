#!/usr/bin/env python3
"""Prompts of every benchmark and style, written out by hand from the published rules, without templates.

    tools/eval_goldens/prompts.py DATA > tests/eval/golden_prompts.json

DATA is shared/data/eval unpacked. Only counts and sums are recorded.
"""
import csv
import gzip
import hashlib
import json
import os
import random
import re
import sys

DATA = sys.argv[1]
LETTERS = "ABCDEFG"


def at(*parts):
    return os.path.join(DATA, *parts)


class Sum:
    """SHA-256 over "<bytes>:<text>" of each item's context, continuations and target."""

    def __init__(self):
        self.hash = hashlib.sha256()
        self.items = 0
        self.leaves = 0

    def text(self, text):
        data = text.encode()
        self.hash.update(b"%d:" % len(data) + data)

    def item(self, calls, target):
        self.items += 1
        assert len({context for context, _ in calls}) == 1
        self.text(calls[0][0])
        for _, continuation in calls:
            self.text(continuation)
        self.text(json.dumps(target, ensure_ascii=False, separators=(",", ":")))


def csv_rows(path, columns=None):
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    header = columns or rows.pop(0)
    return [dict(zip(header, row)) for row in rows]


def json_lines(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
    with opened as file:
        return [json.loads(line) for line in file if line.strip()]


def subjects(directory, ending):
    return sorted(name[: -len(ending)] for name in os.listdir(directory) if name.endswith(ending))


def titles(path):
    """Subjects and their titles, in the order of the task file."""
    out, inside = {}, False
    for line in open(path, encoding="utf-8"):
        if line.startswith("subjects:"):
            inside = True
        elif inside and line.startswith("  ") and ": " in line:
            name, title = line.strip().split(": ", 1)
            out[name] = title
        elif inside:
            break
    return out


def choice_calls(context, delimiter, choices):
    return [(context, delimiter + choice) for choice in choices]


def numpy_permutation(seed, count):
    """numpy.random.RandomState(seed).permutation(count), which pandas' sample(random_state=seed) begins with."""
    words = [seed]
    for i in range(1, 624):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + i) & 0xFFFFFFFF)
    rng = random.Random()
    rng.setstate((3, tuple(words) + (624,), None))
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        mask = (1 << i.bit_length()) - 1
        j = rng.getrandbits(32) & mask
        while j > i:
            j = rng.getrandbits(32) & mask
        order[i], order[j] = order[j], order[i]
    return order


# As numpy itself says.
assert numpy_permutation(0, 10) == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]


def conversation(turns):
    """Turns of user and assistant in turn, as the test's template writes them."""
    roles = ("user", "assistant")
    return "<s>" + "".join("[%s|%s]" % (roles[i % 2], turn) for i, turn in enumerate(turns)) + "[assistant|"


def exam(subject, rows, question, language):
    """Conversations about four choices: MindSpeed-LLM's EvalTemplate. `rows` are shots and the one that is asked."""
    if language == "zh":
        head, end = f"以下是中国关于{subject}考试的单项选择题，请选出其中的正确答案。", "\n答案："
    else:
        head, end = f"The following are multiple choice questions (with answers) about {subject}.", "\nAnswer: "
    turns = []
    for row in rows:
        turns.append(row[question] + "".join("\n%s. %s" % (c, row[c]) for c in "ABCD") + end)
        turns.append(row[[name for name in row if name.lower() == "answer"][0]])
    turns[0] = head + "\n\n" + turns[0]
    return conversation(turns[:-1])


def mmlu(style, shots):
    total = Sum()
    for subject in subjects(at("mmlu/data/test"), "_test.csv"):
        total.leaves += 1
        columns = ["question", "A", "B", "C", "D", "answer"]
        test = csv_rows(at("mmlu/data/test", subject + "_test.csv"), columns)
        dev = csv_rows(at("mmlu/data/dev", subject + "_dev.csv"), columns)[:shots]
        title = subject.replace("_", " ")
        drawn = [dev[i] for i in numpy_permutation(1234, len(dev))] if style.startswith("chat") else []

        def body(row, strips=False):
            question = row["question"].strip() if strips else row["question"]
            return question + "".join("\n%s. %s" % (c, row[c]) for c in "ABCD") + "\nAnswer:"

        for row in test:
            gold = "ABCD".index(row["answer"])
            if style.startswith("chat"):
                total.item([(exam(subject, drawn + [row], "question", style[5:]), "")], row["answer"])
            elif style == "one message":
                text = f"The following are multiple choice questions (with answers) about  {title}.\n"
                text += "\n".join(body(s) + " " + s["answer"] for s in dev)
                total.item([(conversation([text + "\n\n" + body(row)]), "")], row["answer"])
            elif style == "lm-eval":
                text = f"The following are multiple choice questions (with answers) about {title}.\n\n"
                text += "".join(body(s, True) + " " + s["answer"] + "\n\n" for s in dev)
                total.item(choice_calls(text + body(row, True), " ", "ABCD"), gold)
            elif style == "mindspeed":
                text = f"The following are multiple choice questions (with answers) about  {title}.\n"
                text += "\n".join(body(s) + " " + s["answer"] for s in dev)
                total.item([(text + "\n\n" + body(row), "")], row["answer"])
            else:
                text = f"The following are multiple choice questions (with answers) about  {title}.\n\n"
                end = "\n" if style == "opencompass" else "\n\n"
                text += "".join(body(s) + " " + s["answer"] + end for s in dev)
                total.item(choice_calls(text + body(row), " ", "ABCD"), gold)
    return total


def chinese(benchmark, style, shots):
    total = Sum()
    is_cmmlu = benchmark == "cmmlu"
    for subject, title in titles("src/eval/tasks/%s.yaml" % benchmark).items():
        total.leaves += 1
        split = "test" if is_cmmlu else "val"
        name = subject + ".csv" if is_cmmlu else "%s_%s.csv"
        test = csv_rows(at(benchmark, split, name if is_cmmlu else name % (subject, split)))
        dev = csv_rows(at(benchmark, "dev", name if is_cmmlu else name % (subject, "dev")))[:shots]
        question, answer = ("Question", "Answer") if is_cmmlu else ("question", "answer")
        options = lambda row: "".join("\n%s. %s" % (c, row[c]) for c in "ABCD")
        for row in test:
            gold = "ABCD".index(row[answer])
            if style.startswith("chat"):
                # C-Eval's heading has the file's name in both languages.
                named = title if is_cmmlu and style == "chat zh" else subject
                drawn = [dev[i] for i in numpy_permutation(1234, len(dev))]
                total.item([(exam(named, drawn + [row], question, style[5:]), "")], row[answer])
                continue
            if style.startswith("alternative"):
                plain = subject.replace("_", " ")
                head = f"以下是关于{title}的单项选择题，请直接给出正确答案的选项。\n题目："
                if style == "alternative en":
                    head = f"There is a single choice question about {plain}. "
                    head += "Answer the question by replying A, B, C or D. \nQuestion: "
                text = "".join(head + s[question] + options(s) + "\n答案是: " + s[answer] + "\n" for s in dev)
                total.item([(text + head + row[question] + options(row) + "\n答案是: ", "")], row[answer])
                continue
            if style == "lm-eval":
                text = (
                    f"以下是关于{title}的单项选择题，请直接给出正确答案的选项。\n\n"
                    if is_cmmlu
                    else f"以下是中国关于{title}的单项选择题，请选出其中的正确答案。\n\n"
                )
                for shot in dev:
                    text += shot[question].strip() + options(shot) + "\n答案： " + shot[answer] + "\n\n"
                text += row[question].strip() + options(row) + "\n答案："
                total.item(choice_calls(text, " ", "ABCD"), gold)
            elif style == "mindspeed" and is_cmmlu:
                text = f"以下是中国关于{title}考试的单项选择题，请选出其中的正确答案。\n"
                for shot in dev:
                    text += shot[question] + options(shot) + "\n答案： " + shot[answer] + "\n"
                text += "\n\n" + row[question] + options(row) + "\n答案： "
                total.item([(text, "")], row[answer])
            elif style == "mindspeed":
                text = "请从下列选择题中选择正确的选项。"
                for shot in dev:
                    text += "\n\n问：" + shot[question] + options(shot) + "\n答：" + shot[answer]
                text += "\n\n问：" + row[question] + options(row) + "\n答："
                total.item([(text, "")], row[answer])
            elif is_cmmlu:
                head = f"以下是关于{title}的单项选择题，请直接给出正确答案的选项。\n题目："
                text = "".join(
                    head + shot[question] + options(shot) + "\n答案是: " + shot[answer] + "\n" for shot in dev
                )
                total.item(choice_calls(text + head + row[question] + options(row) + "\n答案是:", " ", "ABCD"), gold)
            else:
                head = f"以下是中国关于{title}考试的单项选择题，请选出其中的正确答案。\n"
                text = "".join(
                    head + shot[question] + options(shot) + "\n答案: \n" + shot[answer] + "\n" for shot in dev
                )
                total.item(choice_calls(text + head + row[question] + options(row) + "\n答案: ", "\n", "ABCD"), gold)
    return total


CHINESE_SETS = """gaokao-biology gaokao-chemistry gaokao-chinese gaokao-geography gaokao-history
gaokao-mathcloze gaokao-mathqa gaokao-physics jec-qa-ca jec-qa-kd logiqa-zh""".split()
SEVERAL = "gaokao-physics jec-qa-ca jec-qa-kd".split()
FIVE = "aqua-rat lsat-ar lsat-lr lsat-rc".split()


GAOKAO = dict(zip("chinese english geography history biology chemistry physics mathqa".split(), "语文 英语 地理 历史 生物 化学 物理 数学".split()))


def agieval_heading(name):
    if name.startswith("gaokao-") and name != "gaokao-mathcloze":
        return "以下是一道中国高考%s选择题，请选择正确的答案。" % GAOKAO[name[7:]]
    special = {
        "gaokao-mathcloze": "高考数学填空题，请填入", "logiqa-zh": "公务员考试题，请选择",
        "jec-qa-kd": "司法考试基础知识题，请选择", "jec-qa-ca": "司法考试案例分析题，请选择",
    }
    if name in special:
        return "以下是一道中国%s正确的答案。" % special[name]
    what = {
        "lsat-ar": "LSAT Analytical Reasoning", "lsat-lr": "LSAT Logical Reasoning", "lsat-rc": "LSAT Reading Comprehension",
        "logiqa-en": "Logic Reasoning", "sat-math": "SAT Math", "sat-en": "SAT English",
        "sat-en-without-passage": "SAT English", "aqua-rat": "AQUA-RAT", "math": "Math",
    }[name]
    return f"The following is a {what} question. Please select the correct answer."


def agieval(style, _):
    total = Sum()
    for name in subjects(at("agieval/data/v1"), ".jsonl"):
        total.leaves += 1
        is_cloze = name in ("math", "gaokao-mathcloze")
        is_chinese = name in CHINESE_SETS
        for row in json_lines(at("agieval/data/v1", name + ".jsonl")):
            passage, options, label = row["passage"] or "", row["options"] or [], row["label"]
            gold = [i for i in range(len(options)) if LETTERS[i] in label] if options else None
            if style == "lm-eval":
                if is_cloze and is_chinese:
                    text = passage + "问题：" + row["question"] + "\n答案："
                elif is_cloze:
                    text = passage + "Q: " + row["question"] + "\nA: The answer is"
                elif is_chinese:
                    count = 4 if len(options) == 1 else len(options)
                    text = passage + "问题：" + row["question"] + " 选项：" + " ".join(options)
                    text += "\n答案：从A到%s, 我们应选择" % LETTERS[count - 1]
                else:
                    count = 5 if len(options) == 1 else len(options)
                    text = passage + "Q: " + row["question"] + " Answer Choices: " + " ".join(options)
                    text += "\nA: Among A through %s, the answer is" % LETTERS[count - 1]
                if is_cloze:
                    total.item([(text, "")], row["answer"])
                else:
                    total.item(choice_calls(text, " ", options), gold)
            elif style == "alternative":
                text = agieval_heading(name) + "\n" + passage + row["question"] + "\n"
                if options:
                    text += "\n".join(options).strip() + "\n"
                text += "答案是： " if is_chinese or name == "gaokao-english" else "The answer is "
                if is_cloze:
                    target = row["answer"].replace("$", "")
                else:
                    target = label if isinstance(label, str) else ("" if name in SEVERAL else ",").join(label)
                total.item([(text, "")], target)
            elif style == "mindspeed":
                asks_chinese = is_chinese or name == "gaokao-english"
                text = "以下是考试中各个问题的答案。\n问题 1." if is_chinese else (
                    "Here are the answers for the problems in the exam.\nProblem 1.")
                text += "   " + (row["passage"] + "\n" if row["passage"] else "") + row["question"] + "\n"
                text += "\n从以下选项中选择:\n" if asks_chinese else "\nChoose from the following options:\n"
                text += "\n" + "\n".join(options) + "\n" + ("\n答案：" if asks_chinese else "\nAnswer:")
                if is_cloze:
                    target = row["answer"].replace("$", "")
                else:
                    target = label if isinstance(label, str) else ",".join(label)
                total.item([(text, "")], target)
            else:
                text = passage + row["question"]
                if is_cloze:
                    total.item([(text + ("答案是：" if is_chinese else "The answer is "), "")], row["answer"])
                    continue
                text += "\n" + "\n".join(options) + "\n"
                if name in SEVERAL:
                    total.item([(text + "答案是： ", "")], "".join(label))
                    continue
                letters = "ABCDE" if name in FIVE else "ABCD"
                gold = [i for i in gold if i < len(letters)]
                if is_chinese or name == "gaokao-english":
                    total.item(choice_calls(text + "答案是：", "", letters), gold)
                else:
                    total.item(choice_calls(text + "The answer is", " ", letters), gold)
    return total


def bbh(style, _):
    total = Sum()
    for name in subjects(at("bbh/bbh"), ".json"):
        total.leaves += 1
        examples = json.load(open(at("bbh/bbh", name + ".json"), encoding="utf-8"))["examples"]
        text = open(at("bbh/cot-prompts", name + ".txt"), encoding="utf-8").read().split("-----\n", 1)[1]
        head, *blocks = text.rstrip("\n").split("\n\nQ: ")
        shots = []
        for block in blocks[:3]:
            question, answer = block.split("\nA:", 1)
            shots.append((question, re.sub("^ ?(Let's think step by step\\.)?\n*", "", answer)))
        options = any(re.match(r"\([A-Z]\)$", example["target"]) for example in examples)
        for example in examples:
            target = example["target"]
            think = "\nA: Let's think step by step."
            if style == "chat":
                turns = []
                for question, work in shots:
                    result = work.split("the answer is ")[-1].removesuffix(".").strip()
                    turns += [question + "\nAnswer: ", re.sub(r"^\(([A-Z])\)$", r"\1", result)]
                turns[0] = head + " Question: " + turns[0]
                prompt = conversation(turns + [example["input"] + "\nAnswer: "])
                if options:
                    target = [target.lstrip("(").rstrip(")")]
                    for line in example["input"].split("\n")[1:]:
                        if line.startswith(example["target"] + " "):
                            target.append(line[len(example["target"]) + 1:].strip())
            elif style == "lm-eval":
                prompt = head + "\n\n" + "".join("Q: " + q + think + "\n" + a + "\n\n" for q, a in shots)
                prompt += "Q: " + example["input"] + think + "\n"
            elif style == "opencompass":
                prompt = "Follow the given examples and answer the question.\n" + head
                prompt += "\n\n" + "".join("Q: " + q + think + "\n" + a + "\n\n" for q, a in shots)
                prompt += "Q: " + example["input"] + think
                if options:
                    target = target.replace("(", "").replace(")", "")
            else:
                short = lambda a: a.split("the answer is ")[-1].removesuffix(".")
                prompt = head + "\n\n" + "".join("Q: " + q + "\nA: " + short(a) + "\n\n" for q, a in shots)
                prompt += "Q: " + example["input"] + "\nA:"
            total.item([(prompt, "")], target)
    return total


def boolq(style, _):
    total = Sum()
    total.leaves = 1
    for row in json_lines(at("boolq/dev.jsonl")):
        text = row["passage"] + "\nQuestion: " + row["question"] + "?"
        gold = int(row["answer"])
        if style == "lm-eval":
            total.item(choice_calls(text + "\nAnswer:", " ", ["no", "yes"]), gold)
        elif style == "mindspeed":
            total.item(choice_calls(text + "\nAnswer:", "", ["Yes", "No"]), 1 - gold)
        elif style == "chat":
            total.item(choice_calls(conversation([text + "\nAnswer:"]), "", ["Yes", "No"]), 1 - gold)
        elif style == "alternative":
            # Not every copy of the authors' file has titles.
            text = row["title"] + " -- " if "title" in row else ""
            text += row["passage"] + "\nQuestion: " + row["question"] + "\nA. Yes\nB. No\nAnswer:"
            total.item([(text, "")], "A" if row["answer"] else "B")
        else:
            total.item(choice_calls(text, "\n", ["No", "Yes"]), gold)
    return total


def humaneval(style, _):
    total = Sum()
    total.leaves = 1
    for row in json_lines(at("humaneval/HumanEval.jsonl.gz")):
        prompt = row["prompt"]
        if style == "mindspeed":
            prompt = (
                "The definition and function description of the python function are as follows. "
                "Please complete the implementation of the python function.\n" + prompt
            )
        elif style == "opencompass":
            prompt = "Complete the following python code:\n" + prompt
        elif style == "instruct":
            # The last newline of the question is white space: nothing is put before what the answer begins with.
            prompt = (
                "Write a solution to the following problem and make sure that it passes the tests:\n"
                "```python\n" + prompt + "\n```\nHere is the completed function:\n```python\n" + prompt + "\n"
            )
        total.item([(prompt, "")], row["test"] + "\ncheck(" + row["entry_point"] + ")")
    return total


def gsm8k(style, shots):
    total = Sum()
    total.leaves = 1
    train = json_lines(at("gsm8k/train.jsonl"))
    rng = random.Random(1234)
    for row in json_lines(at("gsm8k/test.jsonl")):
        if style == "lm-eval":
            text = "".join(
                "Question: " + s["question"] + "\nAnswer: " + s["answer"] + "\n\n" for s in rng.sample(train, shots)
            )
            total.item([(text + "Question: " + row["question"] + "\nAnswer:", "")], row["answer"])
            continue
        number = row["answer"].split("#### ")[-1]
        text = ""
        for shot in train[:shots]:
            work, result = re.sub("<<.*?>>", "", shot["answer"]).split("\n#### ")
            if style in ("mindspeed", "chat"):
                text += "Q: " + shot["question"] + "\n\nA:" + work + " The answer is " + result + ".\n\n"
            else:
                text += "Question: " + shot["question"] + "\nLet's think step by step\nAnswer:\n"
                text += work + "\nThe answer is " + result + "\n"
        if style == "chat":
            total.item([(conversation([text + row["question"]]), "")], number)
        elif style == "mindspeed":
            total.item([(text + row["question"], "")], number)
        else:
            text += "Question: " + row["question"] + "\nLet's think step by step\nAnswer:"
            total.item([(text, "")], number.replace(",", ""))
    return total


def hellaswag(style, _):
    total = Sum()
    total.leaves = 1

    def clean(text):
        text = text.strip().replace(" [title]", ". ")
        return re.sub("\\[.*?\\]", "", text).replace("  ", " ")

    for row in json_lines(at("hellaswag/rubriks_hellaswag.jsonl")):
        query = clean(row["activity_label"] + ": " + row["ctx_a"] + " " + row["ctx_b"].capitalize())
        endings = [clean(ending) for ending in row["endings"]]
        gold = int(row["label"])
        if style == "lm-eval":
            total.item(choice_calls(query, " ", endings), gold)
        elif style == "opencompass":
            total.item(choice_calls(query.split(": ", 2)[-1], "\n", endings), gold)
        else:
            text = row["ctx"] + "\nQuestion: Which ending makes the most sense?\n"
            text += "".join("%s. %s\n" % pair for pair in zip("ABCD", row["endings"]))
            text += "You may choose from 'A', 'B', 'C', 'D'.\nAnswer:"
            total.item([(text, "")], "ABCD"[gold])
    return total


def main():
    out = []
    three = ("lm-eval", "mindspeed", "opencompass")
    cases = [("mmlu", s, n, lambda s, n: mmlu(s, n)) for s, n in zip(three, (5, 5, 5))]
    cases += [("mmlu", "lm-eval", 0, lambda s, n: mmlu(s, n))]
    cases += [("mmlu_ppl", "mindspeed", 5, lambda s, n: mmlu("ppl", n))]
    for name in ("cmmlu", "ceval"):
        cases += [(name, s, 5, lambda s, n, b=name: chinese(b, s, n)) for s in three]
    cases += [("agieval", s, 0, agieval) for s in three]
    cases += [("bbh", s, 3, bbh) for s in three]
    cases += [("bbh_fewshot", "lm-eval", 3, lambda s, n: bbh("answers", n))]
    cases += [("boolq", s, 0, boolq) for s in three]
    cases += [("humaneval", s, 0, humaneval) for s in three]
    cases += [("humaneval_instruct", "lm-eval", 0, lambda s, n: humaneval("instruct", n))]
    cases += [("gsm8k", s, n, gsm8k) for s, n in zip(three, (5, 3, 4))]
    cases += [("hellaswag", s, 0, hellaswag) for s in three]
    # What they are called here: the style, and what else a command line says.
    chat, alternative = {"style": "mindspeed-chat", "chat": True}, {"style": "mindspeed-alternative"}
    asked = {
        "chat": chat, "chat en": chat, "chat zh": chat | {"language": "zh"}, "one message": {"style": "mindspeed", "chat": True},
        "alternative": alternative, "alternative en": alternative, "alternative zh": alternative | {"language": "zh"},
    }
    cases += [("mmlu", s, 5, mmlu) for s in ("chat en", "chat zh", "one message")]
    for name, styles in (("cmmlu", ("chat en", "chat zh", "alternative en", "alternative zh")), ("ceval", ("chat en", "chat zh"))):
        cases += [(name, s, 5, lambda s, n, b=name: chinese(b, s, n)) for s in styles]
    cases += [("bbh", "chat", 3, bbh), ("gsm8k", "chat", 3, gsm8k)]
    cases += [("boolq", "chat", 0, boolq), ("boolq", "alternative", 0, boolq), ("agieval", "alternative", 0, agieval)]
    for name, style, shots, made in cases:
        total = made(style, shots)
        out.append({"name": name} | asked.get(style, {"style": style}) | {
            "num_fewshot": shots, "leaves": total.leaves, "items": total.items, "sha256": total.hash.hexdigest()})
        print(out[-1], file=sys.stderr)
    print("[\n" + ",\n".join("  " + json.dumps(case) for case in out) + "\n]")


main()
