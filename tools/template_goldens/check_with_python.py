#!/usr/bin/env python3
"""Adds to tests/text/golden_templates/*.json what Python's Jinja2 prints where JavaScript differs.

By hand, after `npm run generate`; needs the package jinja2 (3.1). The environment is that of
Hugging Face's apply_chat_template: sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls,
tojson without HTML escaping. Usage: check_with_python.py TOKENIZERS_DIR CHAT_TEMPLATES_DIR
"""
import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

TODAY = datetime.datetime(2026, 11, 21, 12)  # as in generate.mjs
GOLDENS = pathlib.Path(__file__).resolve().parent / "../../tests/text/golden_templates"


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: TODAY.strftime(f)
    return env


def render(source, variables):
    try:
        return {"text": environment().from_string(source).render(**variables)}
    except Exception as error:  # whatever Python says is the expectation
        return {"error": f"{type(error).__name__}: {error}"}


def note(golden, python):
    """Records Python's result beside JavaScript's if they disagree; returns True then."""
    golden.pop("python", None)
    same = golden.get("text") == python.get("text") and ("error" in golden) == ("error" in python)
    if not same:
        golden["python"] = python
    return not same


def main(tokenizers, templates):
    sources = {f"chat_templates/{p.name}": p.read_text() for p in pathlib.Path(templates).glob("*.jinja")}
    for config in pathlib.Path(tokenizers).glob("*/tokenizer_config.json"):
        sources[f"tokenizers/{config.parent.name}"] = json.loads(config.read_text()).get("chat_template")
    packages = pathlib.Path(__file__).resolve().parent / "../../.deps/oracles/node_modules/@lenml"
    for config in packages.glob("tokenizer-*/models/tokenizer_config.json"):
        name = config.parent.parent.name.removeprefix("tokenizer-")
        sources[f"published/{name}"] = json.loads(config.read_text()).get("chat_template")
    conversations = {c["name"]: c for c in json.loads((GOLDENS / "conversations.json").read_text())}
    chat = json.loads((GOLDENS / "chat.json").read_text())
    differing = 0
    for golden in chat:
        for case in golden["cases"]:
            conversation = conversations[case["conversation"]]
            variables = dict(messages=conversation["messages"], tools=conversation.get("tools"), documents=None,
                             add_generation_prompt=case["add_generation_prompt"], bos_token="<s>", eos_token="</s>",
                             functions="[]", datetime="Monday", **conversation.get("arguments", {}))
            differing += note(case, render(sources[golden["template"]], variables))
    snippets = json.loads((GOLDENS / "snippets.json").read_text())
    for snippet in snippets:
        if note(snippet, render(snippet["template"], snippet.get("variables", {}))):
            print(f"snippet differs: {snippet['name']}")
    for name, value in (("chat.json", chat), ("snippets.json", snippets)):
        (GOLDENS / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    print(f"{differing} chat cases and {sum('python' in s for s in snippets)} snippets differ")


if __name__ == "__main__":
    main(*sys.argv[1:])
