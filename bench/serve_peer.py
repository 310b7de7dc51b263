#!/usr/bin/env python3
"""`danlu serve` beside llama.cpp's server on the same GGUF file, over HTTP, by turns.

    python3 bench/serve_peer.py BUILD FILE.gguf --peer LLAMA_SERVER [--streams 1,4,16] [--tokens 64] [--prompt 64] [--rounds 3]

A run is so many clients at once, each with two requests after one another, or as many as make 40: a prompt of fresh random ids (no two
alike), streamed. Both servers get the same ids, as many threads and room for as many sequences. Prints a line of JSON for each number of streams: tokens a
second of both and their ratio (ours by the peer's), the 99th percentile of the seconds to a first token of both, and their ratio.
Ids lie below --vocabulary; llama.cpp counts a prompt's ids as we do.
"""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import threading
import time


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


class Server:
    def __init__(self, command, environment=None):
        self.port = free_port()
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(environment or {})})
        while True:
            if self.process.poll() is not None:
                raise SystemExit(open(self.log.name).read())
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)

    def stream(self, prompt, tokens):
        """Seconds to the first token, and how many came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        begun, first, made = time.monotonic(), None, 0
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - begun
            made = (json.loads(line[6:]).get("usage") or {}).get("completion_tokens", made)
        return first, made

    def load(self, prompts, tokens):
        """prompts[i]: those of client i. Tokens a second, and all seconds to first tokens."""
        firsts, made, failed = [], [], []

        def ask(own):
            try:
                for prompt in own:
                    first, count = self.stream(prompt, tokens)
                    firsts.append(first)
                    made.append(count)
            except Exception as error:
                failed.append(error)

        clients = [threading.Thread(target=ask, args=(own,)) for own in prompts]
        begun = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if failed:
            raise SystemExit(f"port {self.port}: {failed[0]}")
        return sum(made) / (time.monotonic() - begun), firsts

    def end(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("file")
    parser.add_argument("--peer", required=True, help="llama-server")
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vocabulary", type=int, default=300)
    options = parser.parse_args()
    counts = [int(count) for count in options.streams.split(",")]
    most, length = max(counts), options.prompt + options.tokens + 8
    draws = random.Random(1)
    ours = Server([f"{options.build}/danlu", "serve", "--model", options.file, "--max_num_seqs", str(most), "--max_model_len",
                   str(length)], {"OMP_NUM_THREADS": str(options.threads)})
    peer = Server([options.peer, "--model", options.file, "--parallel", str(most), "--ctx-size", str(most * length), "--threads",
                   str(options.threads), "--no-webui"])
    for count in counts:
        rates, firsts = {ours: [], peer: []}, {ours: [], peer: []}
        each = max(2, -(-40 // count))  # a percentile wants many
        for turn in range(options.rounds + 1):  # the first warms up
            prompts = [[[draws.randrange(10, options.vocabulary) for _ in range(options.prompt)] for _ in range(each)] for _ in range(count)]
            for server in (ours, peer):
                rate, waits = server.load(prompts, options.tokens)
                if turn:
                    rates[server].append(rate)
                    firsts[server] += waits
        late = {server: statistics.quantiles(waits, n=100, method="inclusive")[98] for server, waits in firsts.items()}
        print(json.dumps({"streams": count, "danlu": round(statistics.median(rates[ours]), 2),
                          "peer": round(statistics.median(rates[peer]), 2),
                          "ratio": round(statistics.median(a / b for a, b in zip(rates[ours], rates[peer])), 3),
                          "first_token_p99_s": [round(late[ours], 3), round(late[peer], 3)],
                          "first_token_ratio": round(late[ours] / late[peer], 3)}), flush=True)
    ours.end()
    peer.end()


if __name__ == "__main__":
    main()
