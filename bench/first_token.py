#!/usr/bin/env python3
"""The first token of one stream: `danlu serve` over HTTP beside llama.cpp's library, which reads the same ids of the same GGUF file.

    python3 bench/first_token.py BUILD FILE.gguf LIBRARIES [--prompt 64] [--prompts 60] [--threads 1] [--vocabulary 1900]

LIBRARIES as for decode_peer.py. Each prompt is of fresh random ids and goes to one after the other: to the server as a request whose
stream ends at its first token, to the library as one batch. The library has neither a request to read nor a token to write as text, so
the comparison favours it. Prints a line of JSON: seconds to the first token, median and 99th percentile, and the processor time that
all threads took for it (the server's clock has steps of 10 ms: a mean), of both, and ratios (ours by the peer's).
"""
import argparse
import json
import os
import random
import statistics
import time

from decode_peer import integers, library
from serve_streams import Server


class Library:
    def __init__(self, folder, file, size, threads):
        self.llama = library(folder)
        model = self.llama.llama_model_load_from_file(file.encode(), self.llama.llama_model_default_params())
        parameters = self.llama.llama_context_default_params()
        places = integers(parameters)
        assert list(places[0:4]) == [512, 2048, 512, 1] and list(places[7:9]) == [4, 4]
        places[0] = (size + 255) // 256 * 256
        places[7] = places[8] = threads
        self.context = self.llama.llama_init_from_model(model, parameters)
        self.batch = self.llama.llama_batch_init(size, 0, 1)

    def first(self, ids):
        """Seconds, and seconds of processors."""
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i] = token, i, 1
            self.batch.seq_id[i][0], self.batch.logits[i] = 0, int(i + 1 == len(ids))
        begun, used = time.monotonic(), time.process_time()
        assert self.llama.llama_decode(self.context, self.batch) == 0
        self.llama.llama_get_logits_ith(self.context, len(ids) - 1)[0]  # waits for the result
        return time.monotonic() - begun, time.process_time() - used


def figures(rows):
    seconds = [row[0] for row in rows]
    return {"median_s": round(statistics.median(seconds), 4),
            "p99_s": round(statistics.quantiles(seconds, n=100, method="inclusive")[98], 4),
            "processor_s": round(statistics.mean(row[1] for row in rows), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("file")
    parser.add_argument("libraries")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=1900)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    ours = Server(options.build, options.file, ("--max_num_seqs", "1", "--max_model_len", str(options.prompt + 64)))
    peer = Library(options.libraries, options.file, options.prompt, options.threads)
    draws = random.Random(1)
    of_ours, of_peer = [], []
    for turn in range(options.prompts + 2):  # two warm up
        ids = [draws.randrange(10, options.vocabulary) for _ in range(options.prompt)]
        used = ours.processor_seconds()
        seconds, _ = ours.stream(ids, 1)
        row = seconds, ours.processor_seconds() - used
        other = peer.first(ids)
        if turn >= 2:
            of_ours.append(row)
            of_peer.append(other)
    ours.process.terminate()
    found, beside = figures(of_ours), figures(of_peer)
    print(json.dumps({"prompt": options.prompt, "threads": options.threads, "danlu": found, "llama.cpp": beside,
                      "ratios": {key: round(found[key] / beside[key], 3) for key in found}}))


if __name__ == "__main__":
    main()
