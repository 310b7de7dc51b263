#!/usr/bin/env python3
"""Many streams of `danlu serve` held at once for minutes, whose clients leave and come back at random.

    python3 bench/serve_soak.py BUILD MODEL [--streams 1000] [--minutes 20] [--tokens 100] [--seed 1]

Every client asks, reads its stream to the end or leaves within it (one in three), and asks again. Each minute: streams that are open, those
that ended and were left, resident memory. Lost: streams that ended without their last line, or with another number of tokens. At the end memory against
what it was after the first quarter, and what the server still counts as running.
"""
import argparse
import asyncio
import http.client
import json
import random
import re
import time

from serve_streams import Server


class Counts:
    def __init__(self):
        self.open = self.ended = self.left = self.lost = self.most_open = 0


def resident_kb(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


def still_running(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    return sum(float(value) for value in re.findall(r"\nvllm:num_requests_(?:running|waiting)\{.*\} (\S+)", metrics))


async def one_stream(server, tokens, rng, counts):
    wanted = rng.randint(1, tokens)
    leaves_after = rng.randint(0, wanted) if rng.random() < 1 / 3 else None
    body = json.dumps({"prompt": f"Once {rng.randint(0, 999)}", "max_tokens": wanted, "stream": True, "ignore_eos": True,
                       "stream_options": {"include_usage": True}}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
    try:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        seen, made, is_done = 0, None, False
        async for line in reader:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                is_done = True
                continue
            if seen == 0:
                counts.open += 1
                counts.most_open = max(counts.most_open, counts.open)
            seen += 1
            usage = json.loads(line[6:]).get("usage")
            made = usage["completion_tokens"] if usage else made
            if leaves_after is not None and seen > leaves_after:
                counts.left += 1
                return seen
        counts.ended += 1
        counts.lost += not is_done or made != wanted
        return seen
    finally:
        writer.close()


async def client(server, args, number, end, counts):
    rng = random.Random(args.seed * 100003 + number)
    await asyncio.sleep(rng.random() * 10)
    while time.monotonic() < end:
        seen = await one_stream(server, args.tokens, rng, counts)
        counts.open -= seen > 0


async def report(server, begun, end, counts, memory):
    while time.monotonic() < end:
        await asyncio.sleep(min(60, max(0.1, end - time.monotonic())))
        memory.append(resident_kb(server))
        print(json.dumps({"minutes": round((time.monotonic() - begun) / 60, 1), "open": counts.open, "ended": counts.ended,
                          "left": counts.left, "lost": counts.lost, "rss_mb": round(memory[-1] / 1024, 1)}), flush=True)


async def soak(server, args):
    counts, memory, begun = Counts(), [], time.monotonic()
    end = begun + 60 * args.minutes
    await asyncio.gather(report(server, begun, end, counts, memory),
                         *(client(server, args, number, end, counts) for number in range(args.streams)))
    return counts, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    server = Server(args.build, args.model, ["--max_num_seqs", str(args.streams), "--max_queue", str(args.streams)])
    counts, memory = asyncio.run(soak(server, args))
    time.sleep(2)
    early = memory[len(memory) // 4]
    print(json.dumps({"most_open": counts.most_open, "ended": counts.ended, "left": counts.left, "lost": counts.lost,
                      "rss_mb_after_a_quarter": round(early / 1024, 1), "rss_mb_at_the_end": round(memory[-1] / 1024, 1),
                      "growth": round(memory[-1] / early - 1, 4), "still_running": still_running(server)}))
    server.end()


if __name__ == "__main__":
    main()
