"""How lm-evaluation-harness asks and scores, as far as the goldens need it; written from its rules.

Each function names the place in its source (commit 4e7e0d47f) that decides.
"""
import math
import random
import re

SEED = 1234  # fewshot_random_seed


class Shots:
    """lm_eval/api/samplers.py: the examples in front of each question of a task."""

    def __init__(self, pool, count, how, drops_question):
        self.pool, self.count, self.how = pool, count, how
        self.drops_question = drops_question
        self.random = random.Random(SEED)  # Task.set_fewshot_seed; goes on from question to question

    def of(self, question):
        if self.count == 0:
            return []
        if self.how == "first":
            return self.pool[: self.count]
        if not self.drops_question:
            return self.random.sample(self.pool, self.count)
        drawn = self.random.sample(self.pool, self.count + 1)
        return [row for row in drawn if row.raw != question.raw][: self.count]


def turns(system, shots, question, answer_delimiter, shot_delimiter):
    """ConfigurableTask.fewshot_context and build_qa_turn: (role, text, what follows it in plain text)."""
    out = [("system", system, "")] if system else []
    for shot in shots:
        out.append(("user", shot.text, answer_delimiter))
        out.append(("assistant", shot.answer, shot_delimiter))
    out.append(("user", question.text, ""))
    return out


def system_text(instruction, description, shot_delimiter):
    """lm_eval/api/utils.py maybe_delimit."""
    if not instruction or not description:
        return instruction or description
    bare = not (instruction[-1].isspace() or description[0].isspace())
    return instruction + (shot_delimiter if bare else "") + description


def plain(parts):
    return "".join(text + behind for _, text, behind in parts)


def as_messages(parts, multiturn):
    """Message.to_dict, or multiturn_to_singleturn: all but the system's text is one message."""
    if multiturn:
        return [{"role": role, "content": text} for role, text, _ in parts]
    system = [{"role": role, "content": text} for role, text, _ in parts if role == "system"]
    return system + [{"role": "user", "content": plain(p for p in parts if p[0] != "system")}]


class Asked:
    """What lm_eval/models/huggingface.py and api/model.py make of calls, with one model."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer

    def encode(self, text):
        """HFLM.tok_encode: no second BOS where a template wrote one."""
        return self.tokenizer.encode(text, add_bos=not text.startswith(self.tokenizer.bos_text))

    def split_pair(self, context, continuation):
        """TemplateLM._encode_pair (the context is never empty here)."""
        kept = context.rstrip()
        whole = self.encode(kept + context[len(kept) :] + continuation)
        begin = len(self.encode(kept))
        return whole[:begin], whole[begin:]

    def likelihood(self, context, continuation):
        """HFLM._loglikelihood_tokens: the last token is not read, what is too long loses its left."""
        before, after = self.split_pair(context, continuation)
        ids = before + after
        kept = ids[-(self.model.window + 1) :]
        out = self._of_last(kept, len(after))
        out["num_cut_tokens"] = len(ids) - len(kept)
        return out

    def _of_last(self, ids, count):
        rows = self.model.log_probabilities(tuple(ids[:-1]))[-count:]
        wanted = ids[-count:]
        chosen = [float(row[i]) for row, i in zip(rows, wanted)]
        greedy = all(int(row.argmax()) == i for row, i in zip(rows, wanted))
        return {"log_likelihood": math.fsum(chosen), "is_greedy": greedy, "num_tokens": count}

    def rolling(self, text):
        """lm_eval/utils.py get_rolling_token_windows with context_len 1, made disjoint.

        The text is encoded without special ids, as `add_bos_token=False` has it: BOS stands before the
        first window and is not predicted.
        """
        ids = self.tokenizer.encode(text, add_bos=False)
        window = self.model.window
        first = min(window, len(ids))
        log_likelihood = self._of_last([self.tokenizer.bos] + ids[:first], first)["log_likelihood"]
        done = first
        while done < len(ids):
            count = min(window, len(ids) - done)
            end = done + count
            # get_rolling_token_windows: of a last window that is not full the left side is filled.
            log_likelihood += self._of_last(ids[end - window - 1 : end], count)["log_likelihood"]
            done = end
        return {"log_likelihood": log_likelihood, "num_tokens": len(ids)}

    def generated(self, context, until, max_tokens):
        """HFLM.generate_until, greedy: MultiTokenEOSCriteria, then postprocess_generated_text."""
        ids = self.encode(context)[-(self.model.window - max_tokens) :]
        stops = until + [self.tokenizer.eos_text]
        seen = {stop: len(self.tokenizer.encode(stop, add_bos=False)) + 2 for stop in stops}
        new = []
        margin = math.inf
        while len(new) < max_tokens:
            best = self.model.log_probabilities(tuple(ids + new))[-1].topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            new.append(int(best.indices[0]))
            if new[-1] == self.tokenizer.eos:
                break
            tails = {n: self.tokenizer.decode(new[-n:], skip_special=False) for n in seen.values()}
            if any(stop in tails[n] for stop, n in seen.items()):
                break
        text = self.tokenizer.decode(new)
        for stop in stops:
            text = text.split(stop)[0]
        return text, new, margin


def choice_scores(log_likelihoods, choices, right):
    """ConfigurableTask.process_results of multiple_choice; the first of equals wins."""
    lengths = [len(choice) for choice in choices]
    normed = [value / length for value, length in zip(log_likelihoods, lengths)]
    pick = log_likelihoods.index(max(log_likelihoods))
    pick_normed = normed.index(max(normed))
    return {"acc": float(pick in right), "acc_norm": float(pick_normed in right)}


def regex_filter(text, pattern, group_select):
    """lm_eval/filters/extraction.py RegexFilter, then take_first."""
    found = re.findall(pattern, text)
    if not found:
        return "[invalid]"
    match = found[group_select]
    if isinstance(match, tuple):
        match = next((group for group in match if group), "[invalid]")
    return match.strip()


def exact_match(answer, right, ignored=(), ignore_case=False):
    """lm_eval/api/metrics.py exact_match."""
    for pattern in ignored:
        answer, right = re.sub(pattern, "", answer), re.sub(pattern, "", right)
    if ignore_case:
        answer, right = answer.lower(), right.lower()
    return float(answer == right)


def mean_and_error(values):
    """lm_eval/api/metrics.py mean and mean_stderr."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, spread / math.sqrt(len(values))


def perplexities(log_likelihoods, texts):
    """weighted_perplexity and bits_per_byte over all texts; words are what white space separates."""
    words = sum(len(re.split(r"\s+", text)) for text in texts)
    size = sum(len(text.encode("utf-8")) for text in texts)
    total = sum(log_likelihoods)
    return {
        "word_perplexity": math.exp(-total / words),
        "byte_perplexity": math.exp(-total / size),
        "bits_per_byte": -total / size / math.log(2),
    }
