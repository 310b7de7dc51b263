#!/usr/bin/env bash
# For the first run on a machine with an Ascend card: what is installed there, whether operators, a small training and
# two ranks give the CPU's numbers, and an archive to send. Installs nothing and writes into OUT alone.
#
#   tools/npu_first_run.sh [BUILD] [OUT]      (after make tests, and CANN's set_env.sh)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
out=${2:-npu-first-run}
danlu=$(realpath "$build")/danlu
export DANLU_LANG=en
failed=0

rm -rf "$out"
mkdir -p "$out/data"
say() { printf '\n== %s\n' "$*"; }
note() {  # note NAME WORDS: a line of the summary
  printf '%-28s %s\n' "$1" "${*:2}" | tee -a "$out/summary.txt"
}
fail() {
  failed=1
  note "$1" "FAILED: ${*:2}"
}
losses() {  # losses RUN: of its steps, one a line
  sed -n 's/^{.*"loss": *\([-0-9.e+]*\).*/\1/p' "$out/$1/logging.jsonl"
}
compare() {  # compare NAME RUN OTHER LIMIT: the largest difference of their losses
  local worst
  worst=$(paste <(losses "$2") <(losses "$3") |
    awk 'NF != 2 { exit 1 } { d = $1 - $2; if (d < 0) d = -d; if (!(d <= w)) w = d } END { if (NR < 10) exit 1; printf "%.3g", w }') ||
    { fail "$1" "the runs have not the same steps (see $out/$2.log, $out/$3.log)"; return; }
  if awk "BEGIN { exit !($worst <= $4) }"; then note "$1" "largest difference of a loss $worst (limit $4)"; else fail "$1" "largest difference of a loss $worst, above $4"; fi
}
train() {  # train RUN WORDS: ten steps; what it says is in RUN.log
  local run=$1
  shift
  "$danlu" "$@" --model "$out/model" --dataset "$out/data/rows.jsonl" --output_dir "$out/$run" --no-version-dir --tuner full --max_length 64 \
    --batch_size 8 --global_batch_size 16 --max_steps 10 --lr 1e-3 --lr_scheduler constant --logging_steps 1 --save_strategy no --val_ratio 0 \
    >"$out/$run.log" 2>&1 || fail "$run" "exit code $?: $(grep -a '^error' "$out/$run.log" | head -1)"
}

say "1/5 what is here"
{
  uname -a
  for command in "npu-smi info" "npu-smi info -t topo"; do echo "\$ $command"; $command 2>&1; done
  for file in /usr/local/Ascend/*/version.cfg /usr/local/Ascend/driver/version.info /usr/local/Ascend/firmware/version.info; do
    [ -e "$file" ] && { echo "# $file"; cat "$file"; }
  done
  env | grep -E '^(ASCEND|HCCL|DANLU|LD_LIBRARY_PATH|TASK_QUEUE|CPU_AFFINITY)' | sort
} >"$out/system.txt" 2>&1
"$danlu" version >"$out/danlu.txt" 2>&1
"$danlu" doctor --only npu_engine >"$out/doctor.txt" 2>&1
cat "$out/doctor.txt"
"$danlu" devices >"$out/devices.txt" 2>&1

say "2/5 operators, each beside the CPU"
operators() {  # operators NAME FILE: with or without kept plans, as DANLU_NPU_KEEP_PLANS says
  DANLU_NPU_ON_CARD=1 "$build/test_npu" --gtest_filter='NpuTable*:NpuFamilies*:NpuWeights*:NpuLogprobs*:NpuDevice*' >"$out/$2" 2>&1
  local code=$?
  grep -aE '^\[  (FAILED|PASSED)|^\[  SKIPPED' "$out/$2" | sort -u
  if [ $code = 0 ]; then note "$1" "all pass"; else fail "$1" "see $out/$2"; fi
}
if [ -x "$build/test_npu" ]; then
  DANLU_NPU_KEEP_PLANS=0 operators operators operators.txt
  DANLU_NPU_KEEP_PLANS=1 operators "operators, kept plans" operators_kept.txt
else
  fail operators "$build/test_npu is not built: make tests"
fi

say "3/5 ten steps of a small model on the card and on the CPU"
awk -v kinds=larger,next,reverse -v part=train -v count=400 -v seed=1 -f tools/demo/tasks.awk >"$out/data/rows.jsonl"
{
  "$danlu" tokenizer train --input "$out/data/rows.jsonl" --vocab-size 600 --chat-template chatml --output "$out/tokenizer" &&
    "$danlu" init --config tools/demo/config.json --tokenizer "$out/tokenizer" --seed 7 --output "$out/model"
} >"$out/model.log" 2>&1 || fail model "see $out/model.log"
train cpu sft --device cpu --dtype fp32
train npu sft --device npu --dtype fp32
compare "training, fp32" cpu npu 1e-3
DANLU_NPU_KEEP_PLANS=1 train kept sft --device npu --dtype fp32
compare "kept plans, fp32" npu kept 1e-6
train npu_bf16 sft --device npu --dtype bf16
compare "training, bf16" cpu npu_bf16 0.1

say "4/5 two cards"
if "$danlu" devices 2>/dev/null | grep -qE 'npu:1\b|npu +1\b'; then
  train two launch --nproc_per_node 2 sft --device npu --dtype fp32
  compare "two cards" cpu two 1e-3
else
  note "two cards" "not run: there is one"
fi

say "5/5 an archive"
cp -r "${ASCEND_PROCESS_LOG_PATH:-$HOME/ascend/log}" "$out/plog" 2>/dev/null
rm -rf "$out/model" "$out/tokenizer" "$out"/*/model.safetensors
tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
cat "$out/summary.txt"
echo "please send $out.tar.gz"
exit $failed
