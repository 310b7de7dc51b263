"""Times `danlu convert` against `cp` of the same bytes on the same disk, and its peak memory.

usage: convert.py BUILD WORK [--rounds 3] [--layers 20] [--keep]
WORK is a folder on the disk to measure; it takes about three times the model. Both programs end with
their bytes on the disk: convert syncs each file, cp is followed by sync. Runs alternate; medians are printed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("build")
arguments.add_argument("work")
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--layers", type=int, default=20)
arguments.add_argument("--json", action="store_true", help="print one JSON line instead of the table")
arguments.add_argument("--keep", action="store_true", help="leave the model for the next time")
options = arguments.parse_args()
danlu = os.path.join(options.build, "danlu")
source, megatron, out = (os.path.join(options.work, name) for name in (f"hf_{options.layers}", "megatron", "out"))


def run(words):
    """Wall seconds and peak resident memory in MB of a command."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.execvp(words[0], words)
        finally:
            os._exit(127)  # never back into this program, which goes on in the parent
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"failed: {' '.join(words)}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    os.sync()


def size_gb(path):
    return sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(path) for name in names) / 1e9


here = os.path.dirname(os.path.abspath(__file__))
if not os.path.exists(source):
    fresh(source + ".part")
    subprocess.run([sys.executable, os.path.join(here, "large_model.py"), source + ".part", "--layers", str(options.layers)],
                   check=True)
    os.rename(source + ".part", source)
fresh(megatron)
run([danlu, "convert", source, megatron, "--to", "mcore", "--tp", "2", "--pp", "2", "--no-check"])
split = ["--to", "mcore", "--tp", "2", "--pp", "2", "--no-check"]
cases = {
    "cp of the Hugging Face directory": lambda: ["sh", "-c", f"cp -r '{source}' '{out}' && sync"],
    "Hugging Face -> Megatron TP2 PP2": lambda: [danlu, "convert", source, out, *split],
    "Megatron TP2 PP2 -> Hugging Face": lambda: [danlu, "convert", megatron, out, "--to", "hf", "--no-check"],
    "Hugging Face -> Megatron TP2 PP2, checked":
        lambda: [danlu, "convert", source, out, "--to", "mcore", "--tp", "2", "--pp", "2", "--check"],
}
seconds, memory = {case: [] for case in cases}, {case: [] for case in cases}
for _ in range(options.rounds):
    for case, words in cases.items():
        fresh(out)
        wall, peak = run(words())
        seconds[case].append(wall)
        memory[case].append(peak)
gigabytes = size_gb(source)
baseline = statistics.median(seconds["cp of the Hugging Face directory"])
if options.json:
    print(json.dumps({"gb": gigabytes, "cases": {
        case: {"median_s": statistics.median(walls), "min_s": min(walls), "max_s": max(walls), "peak_mib": max(memory[case])}
        for case, walls in seconds.items()}}))
    fresh(out)
    fresh(megatron)
    if not options.keep:
        fresh(source)
    sys.exit(0)
print(f"{gigabytes:.2f} GB, {options.rounds} rounds, medians (least, most)\n")
print("| what | seconds | GB/s | speed over cp | peak memory, MB |\n|---|---|---|---|---|")
for case, walls in seconds.items():
    median = statistics.median(walls)
    print(f"| {case} | {median:.1f} ({min(walls):.1f}, {max(walls):.1f}) | {gigabytes / median:.2f} "
          f"| {baseline / median:.2f} | {max(memory[case]):.0f} |")
fresh(out)
fresh(megatron)
if not options.keep:
    fresh(source)
