#!/usr/bin/env bash
# For the first run on a machine with an NVIDIA GPU: what is installed there, whether operators, a small training, an
# answer and two ranks give the CPU's numbers, what a step of a model of 1 B and its answers use of the card, and an
# archive to send. Installs nothing and writes into OUT alone.
#
#   tools/gpu_first_run.sh [BUILD] [OUT]      (after make tests, with a libtorch for CUDA: docs/devices.md)
#
# GPU_TFLOPS, GPU_GB_PER_S: what the card's maker says of bf16 and of its memory, where the script does not know the card.
# DANLU_FIRST_RUN_DEVICE=cpu tries the script itself where no card is, with a small model in place of the large one.
# Exit codes: 0 all is well; 1 something is not; 5 no GPU, or a program that was built without CUDA.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
out=${2:-gpu-first-run}
device=${DANLU_FIRST_RUN_DEVICE:-cuda}
danlu=$(realpath "$build")/danlu
export DANLU_LANG=en
failed=0

say() { printf '\n== %s\n' "$*"; }
note() { # note NAME WORDS: a line of the summary
  printf '%-24s %s\n' "$1" "${*:2}" | tee -a "$out/summary.txt"
}
fail() {
  failed=1
  note "$1" "FAILED: ${*:2}"
}
error_of() { grep -a '^error' "$1" | head -1; }
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
train() { # train RUN WORDS: ten steps; what it says is in RUN.log
  local run=$1
  shift
  "$danlu" "$@" --model "$out/model" --dataset "$out/data/rows.jsonl" --output_dir "$out/$run" --no-version-dir --max_length 64 \
    --batch_size 4 --global_batch_size 16 --max_steps 10 --lr 1e-3 --lr_scheduler constant --logging_steps 1 --save_strategy "${save:-no}" --val_ratio 0 \
    >"$out/$run.log" 2>&1 || fail "$run" "exit code $?: $(error_of "$out/$run.log")"
}
of_card() { # of_card NVIDIA-SMI'S NAME: TFLOP/s of dense bf16 and GB/s of its memory, by the maker's pages; 0: not known
  case $1 in
    *H200*) echo 989 4800 ;;
    *H100*PCIe*) echo 756 2000 ;;
    *H100*NVL*) echo 835 3900 ;;
    *H100*) echo 989 3350 ;;
    *H20*) echo 148 4000 ;;
    *H800*) echo 989 3350 ;;
    *A100*80GB*PCIe*) echo 312 1935 ;;
    *A100*80GB*) echo 312 2039 ;;
    *A100*) echo 312 1555 ;;
    *A800*) echo 312 2039 ;;
    *L40S*) echo 362 864 ;;
    *L40*) echo 181 864 ;;
    *A10) echo 125 600 ;;
    *4090*) echo 165 1008 ;;
    *3090*) echo 71 936 ;;
    *) echo 0 0 ;;
  esac
}
mean_of() { # mean_of RUN FIELD: over its last steps
  sed -n "s/^{.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$out/$1/logging.jsonl" | tail -n 6 | awk '{ s += $1 } END { if (NR) printf "%.6g", s / NR }'
}

rm -rf "$out"
mkdir -p "$out/data" || exit 1

say "1/7 what is here"
{
  uname -a
  lscpu
  for command in nvidia-smi "nvidia-smi -q" "nvidia-smi topo -m" "nvcc --version"; do echo "\$ $command"; $command 2>&1; done
  ldd "$build/libdanlu_engine.so"
  env | grep -E '^(CUDA|NVIDIA|NCCL|DANLU|LD_LIBRARY_PATH|PYTORCH|OMP|CPU_AFFINITY)' | sort
} >"$out/system.txt" 2>&1
"$danlu" version >"$out/danlu.txt" 2>&1 || { echo "gpu_first_run: $danlu does not start: $(cat "$out/danlu.txt")" >&2; exit 1; }
"$danlu" devices >"$out/devices.txt" 2>&1
"$danlu" doctor --only libtorch,cuda >"$out/doctor.txt" 2>&1
cat "$out/doctor.txt"
awk -v kinds=larger,next,reverse -v part=train -v count=4000 -v seed=1 -f tools/demo/tasks.awk >"$out/data/rows.jsonl"
{
  "$danlu" tokenizer train --input "$out/data/rows.jsonl" --vocab-size 600 --chat-template chatml --output "$out/tokenizer" &&
    "$danlu" init --config tools/demo/config.json --tokenizer "$out/tokenizer" --seed 7 --output "$out/model"
} >"$out/model.log" 2>&1 || { echo "gpu_first_run: no model can be made: $(error_of "$out/model.log")" >&2; exit 1; }
if [ "$device" = cuda ]; then
  # Danlu's own word.
  "$danlu" infer --device cuda --model "$out/model" --prompt hi --max_new_tokens 1 >"$out/asked.txt" 2>&1
  if [ $? = 5 ]; then
    note "GPU" "no GPU: $(error_of "$out/asked.txt" | sed 's/^error: *//')"
    sed -n 's/^hint: /  /p' "$out/asked.txt"
    exit 5
  fi
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
  note GPU "${name:-unknown}"
else
  name=
  note GPU "none: the script itself is tried on $device"
fi

say "2/7 symbols"
missing=$(ldd -r "$build/libdanlu_engine.so" 2>&1 | grep -cE 'undefined symbol|not found')
if [ "$missing" = 0 ]; then note symbols "all are there"; else fail symbols "$missing are not: ldd -r $build/libdanlu_engine.so"; fi

say "3/7 operators, each beside the CPU"
if [ -x "$build/test_ops" ]; then
  DANLU_TEST_DEVICE=$device "$build/test_ops" --gtest_filter='AtenTable*' >"$out/operators.txt" 2>&1
  code=$?
  grep -aE '^\[  (FAILED|PASSED)|^\[  SKIPPED' "$out/operators.txt" | sort -u
  if [ $code = 0 ]; then note operators "all pass"; else fail operators "see $out/operators.txt"; fi
else
  fail operators "$build/test_ops is not built: make tests"
fi

say "4/7 ten steps and an answer of a small model on the card and on the CPU"
train cpu sft --device cpu --tuner full --dtype fp32
save=steps train card sft --device "$device" --tuner full --dtype fp32
compare "training, fp32" cpu card 1e-3
train card_bf16 sft --device "$device" --tuner full --dtype bf16
compare "training, bf16" cpu card_bf16 0.1
train cpu_lora sft --device cpu --tuner lora --dtype fp32
train card_lora sft --device "$device" --tuner lora --dtype fp32
compare "LoRA, fp32" cpu_lora card_lora 1e-3
for where in cpu "$device"; do
  "$danlu" infer --device "$where" --dtype fp32 --model "$out/card/last" --prompt 'next 17' --do_sample false --min_new_tokens 24 --max_new_tokens 24 \
    >"$out/answer_$where.txt" 2>"$out/answer_$where.log" || fail "answer on $where" "exit code $?: $(error_of "$out/answer_$where.log")"
done
if cmp -s "$out/answer_cpu.txt" "$out/answer_$device.txt"; then note answer "the same as the CPU's"; else fail answer "another than the CPU's: $out/answer_*.txt"; fi

say "5/7 two cards"
if [ "$device" != cuda ] || [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -gt 1 ]; then
  train two launch --nproc_per_node 2 sft --device "$device" --tuner full --dtype fp32
  compare "two cards" cpu two 1e-3
else
  note "two cards" "not run: there is one"
fi

say "6/7 speed"
shape='"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000'
length=4096
if [ "$device" != cuda ]; then
  shape='"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 640'
  length=256
fi
echo "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,
  \"max_position_embeddings\": $length, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", $shape}" >"$out/large.json"
read -r tflops gb_per_s < <(of_card "$name")
tflops=${GPU_TFLOPS:-$tflops} gb_per_s=${GPU_GB_PER_S:-$gb_per_s}
peak=()
[ "$tflops" = 0 ] || peak=(--device_tflops "$tflops")
if ! "$danlu" init --config "$out/large.json" --tokenizer "$out/tokenizer" --seed 7 --output "$out/large" >"$out/large.log" 2>&1; then
  fail "large model" "see $out/large.log"
else
  "$danlu" sft --device "$device" --tuner full --dtype bf16 --model "$out/large" --dataset "$out/data/rows.jsonl" --output_dir "$out/speed" --no-version-dir \
    --packing --max_length $length --batch_size 1 --global_batch_size 2 --max_steps 10 --lr 1e-5 --lr_scheduler constant --logging_steps 1 \
    --save_strategy no --val_ratio 0 "${peak[@]}" >"$out/speed.log" 2>&1
  code=$?
  if [ $code = 6 ]; then
    note "a step of 1 B" "not run: $(error_of "$out/speed.log")"
  elif [ $code != 0 ]; then
    fail "a step of 1 B" "exit code $code: $(error_of "$out/speed.log")"
  else
    note "a step of 1 B" "bf16, $length tokens a pass: $(mean_of speed tokens_per_second) tokens/s, MFU $(mean_of speed mfu) of $([ "$tflops" = 0 ] && echo 'products as measured' || echo "$tflops TFLOP/s")"
    note "memory" "$(grep -ao 'memory: the first step took.*' "$out/speed.log" | head -1)"
  fi
  if "$danlu" infer --device "$device" --dtype bf16 --model "$out/large" --prompt 'next 17' --do_sample false --min_new_tokens 256 --max_new_tokens 256 \
    >"$out/decode.txt" 2>"$out/decode.log"; then
    speed=$(sed -n 's/.* \([0-9.]*\) \(new \)\{0,1\}tokens\/s.*/\1/p' "$out/decode.log" | tail -1)
    bytes=$(cat "$out"/large/*.safetensors | wc -c)
    note "answers of 1 B" "bf16, one at a time: ${speed:-?} tokens/s, $(awk "BEGIN { b = ${speed:-0} * $bytes / 1e9; printf \"%.0f GB/s of weights\", b
      if ($gb_per_s > 0) printf \", %.2f of the card's %s GB/s\", b / $gb_per_s, \"$gb_per_s\" }")"
  else
    fail "answers of 1 B" "exit code $?: $(error_of "$out/decode.log")"
  fi
fi

say "7/7 an archive"
find "$out" -name '*.safetensors' -delete
tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
cat "$out/summary.txt"
echo "please send $out.tar.gz"
exit $failed
