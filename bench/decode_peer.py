#!/usr/bin/env python3
"""bench/decode_peer.py: the peer of decode_bench: llama.cpp goes on with the same ids of the same GGUF file, greedily.

  decode_peer.py LIBRARIES FILE.gguf --prompts '[[1, 2], …]' [--tokens 16] [--threads 1]
  decode_peer.py LIBRARIES FROM.gguf --quantize q8_0|q4_0|q4_k_m TO.gguf

LIBRARIES: the folder of libllama that tools/gguf_peer installs (node_modules/@node-llama-cpp/linux-x64/bins/linux-x64). Prints one
JSON line with the keys of decode_bench: seconds a token of all sequences (median, without the first two; choosing the tokens is not
timed), and the ids of each. --follow '[[1, 2, …], …]': how far below llama.cpp's largest logit each of these ids lies at its place
behind the prompt of its sequence, at most, in standard deviations of that place's logits. Needs numpy.
Structures are passed as their bytes: of the context's parameters the places of n_ctx, n_batch, n_ubatch, n_seq_max (0 to 3),
n_threads and n_threads_batch (7, 8) are known, and checked against the defaults that the library gives.
"""
import argparse
import ctypes
import glob
import json
import math
import os
import statistics
import time

BACKENDS = {"avx512": "skylakex", "avx2": "haswell", "plain": "x64"}  # by DANLU_CPU; else what llama.cpp takes to be the best
QUANTIZED = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15}  # enum llama_ftype


class Bytes(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def library(folder):
    for name in ("libggml-base.so", "libggml.v*.so", "libllama.v*.so"):
        loaded = ctypes.CDLL(glob.glob(os.path.join(folder, name))[0], ctypes.RTLD_GLOBAL)
        if name.startswith("libggml.v"):
            kind = BACKENDS.get(os.environ.get("DANLU_CPU", ""))
            load = loaded.ggml_backend_load if kind else loaded.ggml_backend_load_all_from_path
            load.argtypes = [ctypes.c_char_p]
            load((os.path.join(folder, f"libggml-cpu-{kind}.so") if kind else folder).encode())
    for name in ("llama_model_default_params", "llama_context_default_params", "llama_model_quantize_default_params"):
        getattr(loaded, name).restype = Bytes
    for name, result, arguments in (("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Bytes]),
                                    ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Bytes]),
                                    ("llama_batch_init", Batch, [ctypes.c_int32] * 3),
                                    ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
                                    ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
                                    ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
                                    ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
                                    ("llama_get_memory", ctypes.c_void_p, [ctypes.c_void_p]),
                                    ("llama_memory_clear", None, [ctypes.c_void_p, ctypes.c_bool]),
                                    ("llama_model_quantize", ctypes.c_uint32,
                                     [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Bytes)])):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)
    loaded.llama_log_set(loaded.silent, None)
    return loaded


def integers(parameters):
    return ctypes.cast(ctypes.byref(parameters), ctypes.POINTER(ctypes.c_int32))


def decode(llama, options):
    import numpy
    prompts = json.loads(options.prompts)
    model = llama.llama_model_load_from_file(options.file.encode(), llama.llama_model_default_params())
    if not model:
        raise SystemExit(f"decode_peer: llama.cpp does not open {options.file}")
    parameters = llama.llama_context_default_params()
    places = integers(parameters)
    assert list(places[0:4]) == [512, 2048, 512, 1] and list(places[7:9]) == [4, 4]
    longest = max(len(ids) for ids in prompts)
    places[0] = len(prompts) * ((longest + options.tokens + 3 + 255) // 256 * 256)
    places[3] = len(prompts)
    places[7] = places[8] = options.threads
    context = llama.llama_init_from_model(model, parameters)
    assert context, "no context"
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def logits(place):
        return numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, place), (vocab,))  # waits for the result

    batch = llama.llama_batch_init(max(longest, len(prompts)), 0, 1)

    def run(items):
        batch.n_tokens = len(items)
        for i, (token, position, sequence, wanted) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        assert llama.llama_decode(context, batch) == 0

    def read_prompts():
        """What llama.cpp says behind each."""
        rows = []
        for sequence, ids in enumerate(prompts):
            run([(token, i, sequence, i + 1 == len(ids)) for i, token in enumerate(ids)])
            rows.append(logits(len(ids) - 1).copy())
        return rows

    def read_tokens(tokens, step):
        run([(token, len(prompts[s]) + step, s, 1) for s, token in enumerate(tokens)])
        return [logits(s) for s in range(len(prompts))]

    rows, seconds, steps = read_prompts(), [], []
    for step in range(options.tokens + 2):
        steps.append([int(row.argmax()) for row in rows])
        begin = time.perf_counter()
        rows = read_tokens(steps[-1], step)
        seconds.append(time.perf_counter() - begin)
    token_s = statistics.median(seconds[2:])
    result = {"program": "llama.cpp", "sequences": len(prompts), "token_s": round(token_s, 5),
              "tokens_per_s": round(len(prompts) / token_s, 2), "ids": list(zip(*steps))}
    if options.follow:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        result["below"] = below(json.loads(options.follow), read_prompts, read_tokens)
    print(json.dumps(result))


def below(ids, read_prompts, read_tokens):
    rows, worst = read_prompts(), 0.0
    for step, tokens in enumerate(zip(*ids, strict=True)):
        for row, token in zip(rows, tokens, strict=True):
            deviations = float((row.max() - row[token]) / row.std())
            if not math.isfinite(deviations):
                raise SystemExit("decode_peer: llama.cpp's logits are no numbers")
            worst = max(worst, deviations)
        rows = read_tokens(tokens, step)
    return round(worst, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries")
    parser.add_argument("file")
    parser.add_argument("--quantize", nargs=2, metavar=("TYPE", "TO"))
    parser.add_argument("--prompts", default="[[1]]")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--follow")
    options = parser.parse_args()
    llama = library(options.libraries)
    if not options.quantize:
        return decode(llama, options)
    parameters = llama.llama_model_quantize_default_params()
    integers(parameters)[1] = QUANTIZED[options.quantize[0]]
    if llama.llama_model_quantize(options.file.encode(), options.quantize[1].encode(), ctypes.byref(parameters)) != 0:
        raise SystemExit(f"decode_peer: llama.cpp does not quantise {options.file}")


if __name__ == "__main__":
    main()
