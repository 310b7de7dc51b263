"""bench/decode_peer.py: llama.cpp's seconds a step of decoding, the peer of decode_bench.

  decode_peer.py LIBRARIES FILE.gguf [--sequences 1] [--tokens 16] [--past 64] [--threads 1]
  decode_peer.py LIBRARIES FROM.gguf --quantize q8_0|q4_0|q4_k_m TO.gguf

LIBRARIES: the folder of libllama that tools/gguf_peer installs
(node_modules/@node-llama-cpp/linux-x64/bins/linux-x64). Every sequence is given `past` tokens, then
one at a time; prints one JSON line. Structures are passed as their bytes: of the context's
parameters the places of n_ctx, n_batch, n_ubatch, n_seq_max (0 to 3), n_threads and n_threads_batch
(7, 8) are known, and checked against the defaults that the library gives.
"""
import argparse
import ctypes
import glob
import json
import os
import time

QUANTIZED = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15}  # enum llama_ftype


class Bytes(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


def library(folder):
    for name in ("libggml-base.so", "libggml.v*.so", "libllama.v*.so"):
        loaded = ctypes.CDLL(glob.glob(os.path.join(folder, name))[0], ctypes.RTLD_GLOBAL)
        if name.startswith("libggml.v"):
            load = loaded.ggml_backend_load_all_from_path
            load.argtypes = [ctypes.c_char_p]
            load(folder.encode())
    for name in ("llama_model_default_params", "llama_context_default_params",
                 "llama_model_quantize_default_params"):
        getattr(loaded, name).restype = Bytes
    loaded.llama_model_load_from_file.restype = ctypes.c_void_p
    loaded.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Bytes]
    loaded.llama_init_from_model.restype = ctypes.c_void_p
    loaded.llama_init_from_model.argtypes = [ctypes.c_void_p, Bytes]
    loaded.llama_batch_init.restype = Batch
    loaded.llama_batch_init.argtypes = [ctypes.c_int32] * 3
    loaded.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    loaded.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    loaded.llama_get_logits.argtypes = [ctypes.c_void_p]
    loaded.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p,
                                            ctypes.POINTER(Bytes)]
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    loaded.silent = callback(lambda level, text, data: None)
    loaded.llama_log_set(loaded.silent, None)
    return loaded


def integers(parameters):
    return ctypes.cast(ctypes.byref(parameters), ctypes.POINTER(ctypes.c_int32))


def decode(llama, options):
    model = llama.llama_model_load_from_file(options.file.encode(),
                                             llama.llama_model_default_params())
    parameters = llama.llama_context_default_params()
    places = integers(parameters)
    assert list(places[0:4]) == [512, 2048, 512, 1] and list(places[7:9]) == [4, 4]
    room = options.past + options.tokens + 3
    places[0] = options.sequences * ((room + 255) // 256 * 256)
    places[3] = options.sequences
    places[7] = places[8] = options.threads
    context = llama.llama_init_from_model(model, parameters)
    assert context, "no context"
    batch = llama.llama_batch_init(max(options.past, options.sequences), 0, 1)

    def fill(items):
        batch.n_tokens = len(items)
        for i, (token, position, sequence, wanted) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted

    for sequence in range(options.sequences):
        fill([(7 + i, i, sequence, 0) for i in range(options.past)])
        assert llama.llama_decode(context, batch) == 0
    seconds = []
    for step in range(options.tokens + 2):
        fill([(100 + step, options.past + step, s, 1) for s in range(options.sequences)])
        start = time.perf_counter()
        assert llama.llama_decode(context, batch) == 0
        llama.llama_get_logits(context)[0]  # waits for the result
        seconds.append(time.perf_counter() - start)
    counted = sorted(seconds[2:])
    print(json.dumps({"program": "llama.cpp", "file": os.path.basename(options.file),
                      "sequences": options.sequences, "threads": options.threads,
                      "step_s": round(counted[len(counted) // 2], 5),
                      "step_least_s": round(counted[0], 5)}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("libraries")
    parser.add_argument("file")
    parser.add_argument("--quantize", nargs=2, metavar=("TYPE", "TO"))
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    llama = library(options.libraries)
    if not options.quantize:
        return decode(llama, options)
    parameters = llama.llama_model_quantize_default_params()
    integers(parameters)[1] = QUANTIZED[options.quantize[0]]
    assert llama.llama_model_quantize(options.file.encode(), options.quantize[1].encode(),
                                      ctypes.byref(parameters)) == 0


main()
