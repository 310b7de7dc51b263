#!/usr/bin/env python3
"""What HTTP adds to the engine of `danlu serve`, and what a shared beginning saves.

    OMP_NUM_THREADS=1 python3 bench/serve_streams.py BUILD MODEL [--streams 16] [--tokens 32] [--prefix 2000] [--rounds 3]

cost: processor time (all threads, user and system) per new token of so many streams at once, against that of one request with the
same prompts that is answered whole; both less what the same run with one new token takes. Processor time, because it depends less
on what else the machine does. Beside it the share of all threads but the engine's, with one thread of computation.
prefix: time to the first token of a prompt of so many tokens, and of a second one that differs in its last ten; fresh ids a round.
"""
import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import threading
import time


class Server:
    def __init__(self, build, model, more=()):
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        command = [f"{build}/danlu", "serve", "--model", model, "--port", "0", "--temperature", "0", *more]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            said = open(self.log.name).read()
            found = re.search(r"127\.0\.0\.1:(\d+)/v1", said)
            if found:
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                raise SystemExit(said)
            time.sleep(0.1)

    def processor_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def seconds_beside_the_engine(self):
        """Of all threads but the first, which computes."""
        ticks = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            if int(thread) == self.process.pid:
                continue
            fields = open(f"/proc/{self.process.pid}/task/{thread}/stat").read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def whole(self, prompts, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = {"prompt": prompts, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        before = self.processor_seconds()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        made = json.loads(connection.getresponse().read())["usage"]["completion_tokens"]
        return self.processor_seconds() - before, made

    def stream(self, prompt, tokens):
        """(seconds to the first token, tokens)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        begun, first, made = time.monotonic(), None, 0
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - begun
            usage = json.loads(line[6:]).get("usage")
            if usage:
                made = usage["completion_tokens"]
        return first, made

    def streams(self, prompts, tokens):
        made = [0] * len(prompts)

        def ask(i):
            made[i] = self.stream(prompts[i], tokens)[1]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        before = self.processor_seconds()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.processor_seconds() - before, sum(made)

    def end(self):
        self.process.terminate()
        self.process.wait()


def per_token(run, tokens):
    few_s, few = run(1)
    all_s, made = run(tokens)
    return (all_s - few_s) / (made - few)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prefix", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    draws = random.Random(1)
    prompts = [f"The {i}th of many stories begins" for i in range(options.streams)]
    server = Server(options.build, options.model, ["--no-enable_prefix_caching"])
    costs = []
    for _ in range(options.rounds):
        before = server.processor_seconds(), server.seconds_beside_the_engine()
        streamed = per_token(lambda tokens: server.streams(prompts, tokens), options.tokens)
        beside = (server.seconds_beside_the_engine() - before[1]) / (server.processor_seconds() - before[0])
        whole = per_token(lambda tokens: server.whole(prompts, tokens), options.tokens)
        costs.append(streamed / whole)
        print(f"cost: {streamed * 1e3:.2f} ms of a processor a token in streams, {whole * 1e3:.2f} in one request: "
              f"{costs[-1]:.3f}; threads beside the engine's {beside:.4f}", flush=True)
    server.end()
    server = Server(options.build, options.model)
    shares = []
    for _ in range(options.rounds):
        ids = [draws.randrange(1000, 20000) for _ in range(options.prefix)]
        first, _ = server.stream(ids, 1)
        second, _ = server.stream(ids[:-10] + [draws.randrange(1000, 20000) for _ in range(10)], 1)
        shares.append(second / first)
        print(f"prefix: first {first:.3f} s, second {second:.3f} s: {shares[-1]:.4f}", flush=True)
    server.end()
    print(f"median: cost {statistics.median(costs):.3f}, prefix {statistics.median(shares):.4f}")


if __name__ == "__main__":
    main()
