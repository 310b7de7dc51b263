# For tools/gpu_first_run.sh and tools/npu_first_run.sh, which source it: a first run on a card beside the CPU.
# shellcheck shell=bash

is_empty() { [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; }

# begin NAME [BUILD] [OUT]: folder OUT, empty but for data; of what is there only an earlier first run is replaced.
# Sets build, out, danlu and failed; $device is the card.
begin() {
  build=${2:-build}
  out=${3:-$1-first-run}
  danlu=$(realpath "$build")/danlu
  failed=0
  export DANLU_LANG=en
  if [ -e "$out" ] && [ ! -f "$out/.danlu-first-run" ] && ! is_empty "$out"; then
    stop "$out is there and no earlier first run: name another folder, or remove it"
  fi
  rm -rf "$out"
  mkdir -p "$out/data" && touch "$out/.danlu-first-run" || exit 1
}

say() { printf '\n== %s\n' "$*"; }
note() { # note NAME WORDS: a line of the summary
  printf '%-28s %s\n' "$1" "${*:2}" | tee -a "$out/summary.txt"
}
fail() {
  failed=1
  note "$1" "FAILED: ${*:2}"
}
stop() { # stop WORDS: what makes the rest useless
  echo "$(basename "$0" .sh): $*" >&2
  exit 1
}
error_of() { grep -a '^error' "$1" | head -1; }

# system VARIABLES COMMAND…: what the commands say of the machine, and the variables of these beginnings.
system() {
  local command
  uname -a
  for command in "${@:2}"; do echo "\$ $command"; $command 2>&1; done
  env | grep -E "^($1|DANLU|LD_LIBRARY_PATH|OMP|CPU_AFFINITY)" | sort
}

# ask_danlu CHECKS: what danlu itself says, and of the machine by these checks of doctor.
ask_danlu() {
  "$danlu" version >"$out/danlu.txt" 2>&1 || stop "$danlu does not start: $(cat "$out/danlu.txt")"
  "$danlu" devices >"$out/devices.txt" 2>&1
  "$danlu" doctor --only "$1" >"$out/doctor.txt" 2>&1
  cat "$out/doctor.txt"
}

# make_model ROWS: so many rows of the demo's tasks, a tokenizer and a small model.
make_model() {
  awk -v kinds=larger,next,reverse -v part=train -v count="$1" -v seed=1 -f tools/demo/tasks.awk >"$out/data/rows.jsonl"
  {
    "$danlu" tokenizer train --input "$out/data/rows.jsonl" --vocab-size 600 --chat-template chatml --output "$out/tokenizer" &&
      "$danlu" init --config tools/demo/config.json --tokenizer "$out/tokenizer" --seed 7 --output "$out/model"
  } >"$out/model.log" 2>&1 || stop "no model can be made: $(error_of "$out/model.log")"
}

# find_card WORD: ends with 5 where danlu itself finds no card ($device), for which people say WORD.
find_card() {
  "$danlu" infer --device "$device" --model "$out/model" --prompt hi --max_new_tokens 1 >"$out/asked.txt" 2>&1
  [ $? = 5 ] || return 0
  note "$1" "no $1: $(error_of "$out/asked.txt" | sed 's/^error: *//')"
  sed -n 's/^hint: /  /p' "$out/asked.txt"
  exit 5
}

# operators NAME LOG PROGRAM GTEST_FILTER: tests of single operators on the card.
operators() {
  local code
  [ -x "$build/$3" ] || { fail "$1" "$build/$3 is not built: make tests"; return; }
  "$build/$3" --gtest_filter="$4" >"$out/$2" 2>&1
  code=$?
  grep -aE '^\[  (FAILED|PASSED)|^\[  SKIPPED' "$out/$2" | sort -u
  if [ $code = 0 ]; then note "$1" "all pass"; else fail "$1" "see $out/$2"; fi
}

# train RUN WORDS: ten steps of the small model; what it says is in RUN.log. $save: its save_strategy.
train() {
  local run=$1
  shift
  "$danlu" "$@" --model "$out/model" --dataset "$out/data/rows.jsonl" --output_dir "$out/$run" --no-version-dir --max_length 64 \
    --batch_size 4 --global_batch_size 16 --max_steps 10 --lr 1e-3 --lr_scheduler constant --logging_steps 1 --save_strategy "${save:-no}" --val_ratio 0 \
    >"$out/$run.log" 2>&1 || fail "$run" "exit code $?: $(error_of "$out/$run.log")"
}
losses() { # losses RUN: of its steps, one a line
  sed -n 's/^{.*"loss": *\([-0-9.e+]*\).*/\1/p' "$out/$1/logging.jsonl"
}
compare() { # compare NAME RUN OTHER LIMIT: the largest difference of their losses
  local worst
  worst=$(paste <(losses "$2") <(losses "$3") |
    awk 'NF != 2 { exit 1 } { d = $1 - $2; if (d < 0) d = -d; if (!(d <= w)) w = d } END { if (NR < 10) exit 1; printf "%.3g", w }') ||
    { fail "$1" "the runs have not the same steps (see $out/$2.log, $out/$3.log)"; return; }
  if awk "BEGIN { exit !($worst <= $4) }"; then note "$1" "largest difference of a loss $worst (limit $4)"; else fail "$1" "largest difference of a loss $worst, above $4"; fi
}

# answers RUN: what the model of this run answers, on both.
answers() {
  local where
  for where in cpu "$device"; do
    "$danlu" infer --device "$where" --dtype fp32 --model "$out/$1/last" --prompt 'next 17' --do_sample false --min_new_tokens 24 --max_new_tokens 24 \
      >"$out/answer_$where.txt" 2>"$out/answer_$where.log" || fail "answer on $where" "exit code $?: $(error_of "$out/answer_$where.log")"
  done
  if cmp -s "$out/answer_cpu.txt" "$out/answer_$device.txt"; then note answer "the same as the CPU's"; else fail answer "another than the CPU's: $out/answer_*.txt"; fi
}

# two_cards COUNT: two processes, where there are so many cards.
two_cards() {
  if [ "$1" -lt 2 ]; then note "two cards" "not run: there is one"; return; fi
  train two launch --nproc_per_node 2 sft --device "$device" --tuner full --dtype fp32
  compare "two cards" cpu two 1e-3
}

# finish: an archive without weights, the summary, and the exit code.
finish() {
  find "$out" -name '*.safetensors' -delete
  tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
  cat "$out/summary.txt"
  echo "please send $out.tar.gz"
  exit "$failed"
}
