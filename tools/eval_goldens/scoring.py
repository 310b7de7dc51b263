#!/usr/bin/env python3
"""Writes tests/eval/goldens/scoring.json: answers, what filters make of them, and verdicts.

By hand, when cases are added: Python's `re`, and the filters and the comparison of mathematical
answers of lm-evaluation-harness itself (its modules are loaded from a checkout, with stand-ins for
what they import), say what is expected. Usage: scoring.py HARNESS_CHECKOUT
"""
import importlib.util
import json
import pathlib
import re
import string
import sys
import types

HARNESS = pathlib.Path(sys.argv[1])
OUT = pathlib.Path(__file__).resolve().parent / "../../tests/eval/goldens/scoring.json"


class Anything:
    """Base class and decorator in one."""

    def __init__(self, *a, **k):
        pass


def stand_in(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


stand_in("numpy")
stand_in("lm_eval")
stand_in("lm_eval.api")
stand_in("lm_eval.api.filter", Filter=Anything)
stand_in("lm_eval.api.registry", register_filter=lambda name: lambda cls: cls)


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, HARNESS / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


extraction = load("lm_eval/filters/extraction.py")
transformation = load("lm_eval/filters/transformation.py")
selection = load("lm_eval/filters/selection.py")
agieval = load("lm_eval/tasks/agieval/utils.py")

CLASSES = {
    "regex": extraction.RegexFilter,
    "multi_choice_regex": extraction.MultiChoiceRegexFilter,
    "remove_whitespace": extraction.WhitespaceFilter,
    "lowercase": transformation.LowercaseFilter,
    "uppercase": transformation.UppercaseFilter,
    "map": transformation.MapFilter,
    "majority_vote": selection.MajorityVoteFilter,
}

STRICT = [["regex", {"regex_pattern": r"#### (\-?[0-9\.\,]+)"}]]
FLEXIBLE = [["regex", {"group_select": -1, "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)"}]]
COT = [["regex", {"regex_pattern": r"The answer is (\-?[0-9\.\,]+)."}]]
BBH = [["regex", {"regex_pattern": r"(?<=the answer is )(.*)(?=.)"}]]
PARENTHESES = [["multi_choice_regex", {"regex_pattern": r"(\([A-Z]\))", "group_select": 0, "ignore_case": True,
                                      "ignore_punctuation": True}]]
LAST_CHOICE = [["multi_choice_regex", {"regex_pattern": r"(\([A-Z]\))", "group_select": -1}]]
IGNORING = [["multi_choice_regex", {"regex_pattern": r"answer is (\([A-Z]\))", "regexes_to_ignore": ["^The ", r"\d"]}]]

NUMBERS = [
    "Natalia sold 48/2 = 24 clips in May.\n#### 72", "#### 72.", "#### -3", "#### 1,234", "####72", "#### $72",
    "The answer is 18.", "The answer is 18", "The answer is $18.50.", "so 5 + 6 = 11", "no number here", "", "####  7",
    "#### 12 apples and #### 13", "A: 7", "costs $1,000.00 in total.", "between 3 and 4", "-5", "- 5", "3.", "..", "$",
    "١٢ or 12", "The answer is 1,080,000. Q: next", "#### 5\n\nQuestion: what? #### 6", "75% of 20 is 15%", "#### .5", "1 2 3",
    "The answer is 3.14159.", "第1题的答案是２５", "#### 十二", "a" * 3000 + " #### 9", "#### 9" + ".,." * 50, "\u2028#### 8", "7,",
]
CLAUSES = [
    "So the answer is (B).", "So the answer is (B)", "the answer is True.", "The answer is True.", "the answer is valid. ",
    "the answer is 24.\n", "the answer is .", "the answer is ", "the answer is x", "so the answer is No.\nQ: so the answer is Yes.",
    "the answer is a the answer is b.", "the answer is ] ] >.", "the answer is (C) because …", "", "the answer is 是。", "the answer is\n(A).",
    "the answer is apple banana cherry.", "the answer is  (A) .", "the answer is é.",
]
CHOICES = ["apple", "A pear.", "the Fig", "42 (approx.)"]
NAMED = [
    "(B)", "The answer is (C).", "I think it is a pear", "I think: B", "answer:  D", "APPLE!", "the fig", "the Fig", "42 (approx.)", "42 approx",
    "E", ": E", "(A) or (B)", "", "apple and the Fig", "The 7answer is (D)", "The fig", "a  pear", "：B", ":\tC", ":\nA", "(Z)",
]
TEXTS = ["  Straße ", "ÉCOLE", "\u3000全角", "yes", "Yes", "\tno", "", "ǆ"]


def python_filter(steps, answers, choices=None):
    state = [list(answers)]
    for name, arguments in steps:
        state = [list(x) for x in CLASSES[name](**arguments).apply(state, [{"choices": choices}])]
    return state[0]


filters = []


def add_filter(steps, answers, choices=None):
    filters.append({"steps": steps, "choices": choices or [],
                    "cases": [[a, python_filter(steps, [a], choices)[0]] for a in answers]})


for steps in (STRICT, FLEXIBLE, COT):
    add_filter(steps, NUMBERS)
add_filter(BBH, CLAUSES)
for steps in (PARENTHESES, LAST_CHOICE, IGNORING):
    add_filter(steps, NAMED, CHOICES)
add_filter([["lowercase", {}]], TEXTS)
add_filter([["uppercase", {}]], TEXTS)
add_filter([["remove_whitespace", {}]], TEXTS)
add_filter([["map", {"mapping_dict": {"yes": "1", "no": "0"}, "default_value": "?"}]], ["yes", "no", "No", ""])
add_filter([["lowercase", {}], ["remove_whitespace", {}], ["map", {"mapping_dict": {"yes": "1", "no": "0"}}]][:2], TEXTS)

votes = [["b", "a", "a", "b", "c"], ["x"], ["", "", "z"], ["z", "y", "x"], ["y", "x", "x", "y"]]
votes = [[v, python_filter([["majority_vote", {}]], v)[0]] for v in votes]


def exact(answer, target, regexes_to_ignore=(), ignore_case=False, ignore_punctuation=False, ignore_numbers=False):
    sides = [answer, target]
    for pattern in regexes_to_ignore:
        sides = [re.sub(pattern, "", s) for s in sides]
    if ignore_case:
        sides = [s.lower() for s in sides]
    if ignore_punctuation:
        sides = [s.translate(str.maketrans("", "", string.punctuation)) for s in sides]
    if ignore_numbers:
        sides = [s.translate(str.maketrans("", "", string.digits)) for s in sides]
    return sides[0] == sides[1]


GSM = {"regexes_to_ignore": [",", r"\$", "(?s).*#### ", r"\.$"], "ignore_case": True, "ignore_punctuation": False}
matches = [{"arguments": options, "cases": [[a, t, exact(a, t, **options)] for a, t in cases]} for options, cases in [
    (GSM, [["72", "So 24+48\n#### 72"], ["$1,234.", "x\ny\n#### 1234"], ["1234.0", "#### 1234"], ["72.\n", "#### 72"], ["[invalid]", "#### 72"],
           ["a#### b#### 7", "7"], ["", "#### "], ["18..", "#### 18."], ["-5", "#### -5"], ["#### 5", "5"], ["５", "5"]]),
    ({}, [["(B)", "(B)"], ["(b)", "(B)"], ["(B) ", "(B)"], ["True", "true"], ["", ""]]),
    ({"ignore_case": True, "ignore_punctuation": True}, [["(b).", "B"], ["it's", "ITS"], ["“B”", "B"], ["答案：B", "答案:b"], ["ẞ", "ß"]]),
    ({"ignore_numbers": True}, [["a1b2", "ab"], ["１", ""], ["12", "34"]]),
    ({"regexes_to_ignore": [r"\s+", r"(?i)answer:"]}, [["Answer: 4 2", "42"], ["ANSWER:\u300042", "4\u20032"], ["answer :42", "42"]]),
]]

PAIRS = [
    (r"\frac{1}{2}", "0.5"), ("1/2", "0.5"), (r"\frac12", r"\frac{1}{2}"), (r"\dfrac12", r"\tfrac{1}{2}"), (r"\frac1{72}", r"\frac{1}{72}"),
    (r"\frac{72}1", r"\frac{72}{1}"), (r"\sqrt2", r"\sqrt{2}"), (r"\sqrt 2", r"\sqrt{2}"), (r"2\sqrt3+1", r"2\sqrt{3} + 1"), ("x=5", "5"), ("k = 5", "5"),
    ("abc=5", "5"), (r"5\text{ cm}", "5"), (r"5 \text{ cm}", "5"), (r"5\text{cm}", "5"), (r"50\%", "50"), ("50%", "50"), (r"\$5", "5"), (r"90^\circ", "90"),
    (r"90^{\circ}", "90"), (r"\left(1, 2\right)", "(1,2)"), (".5", "0.5"), ("-.5", "-0.5"), (r"{.5}", "{0.5}"), ("0.50", "0.5"), ("3/4", r"\frac{3}{4}"),
    ("-3/4", r"\frac{-3}{4}"), ("3/04", r"\frac{3}{04}"), ("a/b", r"\frac{a}{b}"), ("1/2/3", "1/2/3"), (r"10\,000", "10000"), (r"10\!,\!000", "10,000"),
    ("5", "5.0"), ("", ""), ("", "0"), (r"\frac", r"\frac"), (r"\sqrt", r"\sqrt"), (r"\frac1", r"\frac1"), (r"5\text{ a}\text{ b}", "5"), (r"x \in [1,2]", r"x\in[1,2]"),
    (r"\\frac12", r"\frac{1}{2}"), ("1\n2", "12"), (r"\pi", "π"), (r"\frac{\frac12}3", r"\frac{\frac{1}{2}}3"), ("0.5 ", "1/2"), (r"\text{ cm}", ""), ("½", r"\frac12"),
    (r"\frac½3", r"\frac{½}{3}"),
]


def normal(text):
    try:
        return agieval._strip_string(text)
    except Exception:
        return None


def same(a, b):
    a_, b_ = normal(a), normal(b)
    return a == b if a_ is None or b_ is None else a_ == b_


EXPLAINED = [
    r"so \boxed{5}.", r"\boxed{x = 5}", r"\boxed{\frac{1}{2}} or \boxed{3}", r"\boxed{5", r"\boxed 5", r"\fbox{5}", "it is $5$.", "it is $x=5$ and $y = 6$",
    "$a$\nthen $b$", "x = 5.", "x = y = 5", "there are 12 apples", "there are 12apples and 3.5 pears", "costs $12", "none", "", r"x=5\nand", r"\boxed{}", "$$", "$ $",
    r"\boxed{\text{a {b} c}}", "5 = $", "١٢", "a5", "3.14.15", r"\boxed{5}}{", "= ", "=",
]


def final(text):
    try:
        return agieval.parse_math_answer(text)
    except Exception:
        return None


GOLDEN = {
    "filters": filters,
    "votes": votes,
    "exact_match": matches,
    "math_normal": [[t, normal(t)] for pair in PAIRS for t in pair],
    "math_equal": [[a, b, same(a, b)] for a, b in PAIRS],
    "math_final": [[t, final(t)] for t in EXPLAINED],
    "find_all": [[p, t, [list(m.span()) for m in re.finditer(p, t)]] for p, t in [
        ("a*", "baac"), (r"\b", "ab cd"), ("x*|b", "abc"), (r"(?s)a.", "a\na"), ("a.", "a\na"), (r"(?i)É", "é"), (r"\d+", "1٣五"), (r"\w+", "aé_ 中"), ("$", "a\n"),
        (r"\Z", "a\n"), ("(?m)^", "a\nb\n"), (r"\v", "\n\v"), (r"[\u4e00-\u9fff]+", "ab中文c"), ("(?P<n>a)(?P=n)", "aaaa"), ("(?<!x)a", "xaa"), ("a{,2}", "aaa"), ("|a", "aab"),
        (r"[^]a]+", "]ab"), ("^|b*", "bb"), ("(a)|b", "ab"),
    ]],
}


def in_bytes(cases):
    for case in cases:
        text = case[1]
        case[2] = [[len(text[:b].encode()), len(text[:e].encode())] for b, e in case[2]]


in_bytes(GOLDEN["find_all"])
lines = [f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in values) + "\n]" for key, values in GOLDEN.items()]
OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
