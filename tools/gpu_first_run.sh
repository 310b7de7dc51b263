#!/usr/bin/env bash
# For the first run on a machine with an NVIDIA GPU: what is installed there, whether operators, a small training, an
# answer and two ranks give the CPU's numbers, what a step of a model of 1 B and its answers use of the card, what
# PyTorch takes for that step where a Python has one for the card, and an archive to send. Installs nothing, writes into
# OUT alone, and is made for ten minutes of a card.
#
#   tools/gpu_first_run.sh [BUILD] [OUT]      (after make tests, with a libtorch for CUDA: docs/devices.md)
#
# GPU_TFLOPS, GPU_GB_PER_S: what the card's maker says of bf16 and of its memory, where the script does not know the card.
# DANLU_BENCH_PYTHON: the Python with PyTorch (python3).
# DANLU_FIRST_RUN_DEVICE=cpu tries the script itself where no card is, with a small model in place of the large one.
# Exit codes: 0 all is well; 1 something is not; 5 no GPU, or a program that was built without CUDA.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/first_run.sh
device=${DANLU_FIRST_RUN_DEVICE:-cuda}

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

begin gpu "$@"
say "1/7 what is here"
system 'CUDA|NVIDIA|NCCL|PYTORCH' lscpu nvidia-smi "nvidia-smi -q" "nvidia-smi topo -m" "nvcc --version" "ldd $build/libdanlu_engine.so" >"$out/system.txt" 2>&1
ask_danlu libtorch,cuda
make_model 4000
name='' cards=2
if [ "$device" = cuda ]; then
  find_card GPU
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
  cards=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  note GPU "${name:-unknown}"
else
  note GPU "none: the script itself is tried on $device"
fi

say "2/7 symbols"
missing=$(ldd -r "$build/libdanlu_engine.so" 2>&1 | grep -cE 'undefined symbol|not found')
if [ "$missing" = 0 ]; then note symbols "all are there"; else fail symbols "$missing are not: ldd -r $build/libdanlu_engine.so"; fi

say "3/7 operators, each beside the CPU"
DANLU_TEST_DEVICE=$device operators operators operators.txt test_ops 'AtenTable*'

say "4/7 ten steps and an answer of a small model on the card and on the CPU"
train cpu sft --device cpu --tuner full --dtype fp32
save=steps train card sft --device "$device" --tuner full --dtype fp32
compare "training, fp32" cpu card 1e-3
train card_bf16 sft --device "$device" --tuner full --dtype bf16
compare "training, bf16" cpu card_bf16 0.1
train cpu_lora sft --device cpu --tuner lora --dtype fp32
train card_lora sft --device "$device" --tuner lora --dtype fp32
compare "LoRA, fp32" cpu_lora card_lora 1e-3
answers card

say "5/7 two cards"
two_cards "$cards"

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
# Samples of a pass each, which attention sees whole.
awk -v tokens=$length 'BEGIN { srand(1); for (row = 0; row < 24; ++row) {
  printf "{\"messages\": [{\"role\": \"user\", \"content\": \"next\"}, {\"role\": \"assistant\", \"content\": \""
  for (word = 0; word < tokens; ++word) printf "%d ", int(1000 * rand())
  print "\"}]}" } }' >"$out/data/long.jsonl"
begun=$SECONDS
if ! "$danlu" init --config "$out/large.json" --tokenizer "$out/tokenizer" --seed 7 --output "$out/large" >"$out/large.log" 2>&1; then
  fail "large model" "see $out/large.log"
else
  "$danlu" sft --device "$device" --tuner full --dtype bf16 --model "$out/large" --dataset "$out/data/long.jsonl" --output_dir "$out/speed" --no-version-dir \
    --truncation_strategy right --max_length $length --batch_size 1 --global_batch_size 2 --max_steps 10 --lr 1e-5 --lr_scheduler constant --logging_steps 1 \
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
  if "${DANLU_BENCH_PYTHON:-python3}" -c "import torch; torch.zeros(1, device='$device')" 2>"$out/pytorch.log"; then
    timeout 240 "${DANLU_BENCH_PYTHON:-python3}" bench/card_step.py "$out/large" --device "$device" --tokens $length >"$out/pytorch.json" 2>>"$out/pytorch.log"
    code=$?
    note "the same in PyTorch" "$(paste -sd' ' "$out/pytorch.json")$([ $code = 124 ] && echo ' ended after 240 s (exit code 124)')"
  else
    note "the same in PyTorch" "not run: ${DANLU_BENCH_PYTHON:-python3} has no PyTorch that sees it (DANLU_BENCH_PYTHON)"
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
note "speed took" "$((SECONDS - begun)) s"

say "7/7 an archive"
finish
