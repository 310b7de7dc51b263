#!/usr/bin/env bash
# Times the training step of bench/train_step_bench against a peer program on this machine, one run
# of each in turn, and writes bench/results/train_step_<cpu>_<date>.md: medians, ratios, commands.
#   tools/bench_train.sh --peer PEER.py [--build build] [--rounds 5] [--dtypes "fp32 bf16"]
#                        [--max-load 1] [--wait MINUTES] [-- OPTIONS OF BOTH PROGRAMS]
# PEER.py prints one JSON line with the keys of train_step_bench (bench/README.md). Both programs run
# with OPENBLAS_* unset, so that the library chooses its kernels for this processor by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

peer="" build=build rounds=5 dtypes="fp32 bf16" max_load=1 wait_minutes=0 python=/usr/bin/python3
fail() { echo "bench_train: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --peer | --build | --rounds | --dtypes | --max-load | --wait | --python)
      [ $# -ge 2 ] || fail "$1 needs a value" ;;&
    --peer) peer=$2 ;;
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --dtypes) dtypes=$2 ;;
    --max-load) max_load=$2 ;;
    --wait) wait_minutes=$2 ;;
    --python) python=$2 ;;
    *) fail "unknown option $1 (options of the programs come after --)" ;;
  esac
  shift 2
done
[ -n "$peer" ] || fail "--peer PEER.py is needed: the program to compare with"
[ -f "$peer" ] || fail "--peer $peer: no such file"
ours=$build/train_step_bench
[ -x "$ours" ] || fail "$ours is missing: cmake -DDANLU_BENCH=ON, then build train_step_bench"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds must be a positive number, got '$rounds'"

load() { cut -d' ' -f1 /proc/loadavg; }
busy() { awk -v l="$(load)" -v m="$max_load" 'BEGIN { exit !(l > m) }'; }
deadline=$(($(date +%s) + wait_minutes * 60))
while busy; do
  [ "$(date +%s)" -lt $deadline ] || fail "load $(load) is above --max-load $max_load: figures would be wrong"
  sleep 10
done
load_before=$(load)

for variable in $(env | sed -n 's/^\(OPENBLAS_[A-Z0-9_]*\)=.*/\1/p'); do unset "$variable"; done
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# Processor seconds (user + system) of the run go to the end of its JSON line.
measure() {
  local name=$1 times line
  shift
  times=$(mktemp)
  TIMEFORMAT='%U %S'
  { time line=$("$@") ; } 2>"$times" || { cat "$times" >&2; fail "failed: $*"; }
  awk -v name="$name" -v line="$(tail -n 1 <<<"$line")" 'END {
    sub(/}$/, sprintf(", \"cpu_s\": %.2f}", $1 + $2), line); print name "\t" line }' "$times" |
    tee -a "$lines" >&2
  rm -f "$times"
}
for ((round = 0; round < rounds; ++round)); do
  for dtype in $dtypes; do
    measure "danlu $dtype" "$ours" --dtype "$dtype" "$@"
    measure "peer $dtype" "$python" "$peer" --dtype "$dtype" "$@"
  done
done

processor=$(sed -n '/^model name/ { s/^[^:]*: *//p; q }' /proc/cpuinfo)
cpu=$(printf '%s\n' "$processor" | tr -cs 'A-Za-z0-9\n' '-' | sed 's/-$//')
family=$(awk -F': *' '/^cpu family/ { f = $2 } /^model\t/ { m = $2 } END { print f "-" m }' /proc/cpuinfo)
mkdir -p bench/results
report=bench/results/train_step_${cpu}-${family}_$(date +%Y-%m-%d).md
"$python" - "$lines" "$dtypes" >"$report.part" <<'PYTHON'
import json, statistics, sys
runs = {}
for line in open(sys.argv[1]):
    name, text = line.rstrip("\n").split("\t")
    runs.setdefault(name, []).append(json.loads(text))
print("| dtype | measure | danlu | peer | danlu / peer |\n|---|---|---|---|---|")
for dtype in sys.argv[2].split():
    for key, unit in (("step_s", "s"), ("tokens_per_s", "tokens/s"), ("cpu_s", "processor s, whole run"),
                      ("peak_rss_mib", "MiB, highest")):
        pick = max if key == "peak_rss_mib" else statistics.median
        ours, peer = (pick(r[key] for r in runs[f"{who} {dtype}"]) for who in ("danlu", "peer"))
        print(f"| {dtype} | {key} ({unit}) | {ours:.4g} | {peer:.4g} | {ours / peer:.2f} |")
print("\nEvery run, in order:\n\n```")
for line in open(sys.argv[1]):
    print(line.rstrip("\n"))
print("```")
PYTHON
{
  echo "# Training step, $(date +%Y-%m-%d)"
  echo
  echo "- processor: $processor (family-model $family), $(nproc) CPUs"
  echo "- commit: $(git rev-parse --short HEAD)$([ -z "$(git status --porcelain -- src bench CMakeLists.txt cmake)" ] || echo ' with changes')"
  echo "- compiler: $(c++ --version | sed -n 1p); $("$python" -c 'import torch; print("peer: PyTorch", torch.__version__)' 2>/dev/null || echo 'peer: no PyTorch')"
  echo "- load before: $load_before; rounds: $rounds, one run of each program in turn; medians"
  echo "- commands: \`$(basename "$ours") --dtype … $*\`, \`$(basename "$python") $(basename "$peer") --dtype … $*\`"
  echo
  cat "$report.part"
} >"$report"
rm -f "$report.part"
sed -n '/^| dtype/,/^$/p' "$report"
echo "written: $report"
