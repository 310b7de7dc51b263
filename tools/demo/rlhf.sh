#!/usr/bin/env bash
# A small model learns sums from rows of which most forget the carry. Preferences (DPO), then rewards (GRPO), teach
# it what is right, measured on sums that no part of it has seen.
#
#   tools/demo/rlhf.sh [BUILD] [OUT]      (make demo-rlhf runs it with build and demo-rlhf-out)
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
out=${2:-demo-rlhf-out}
danlu=$(realpath "$build")/danlu
started=$SECONDS
. tools/demo/common.sh

held_out() {  # held_out NAME: the last value of an evaluation of DPO
  sed -n "s/.*\"eval_rewards\/$1\": *\([-0-9.e]*\).*/\1/p" "$out/dpo/logging.jsonl" | tail -1
}

rm -rf "$out"
mkdir -p "$out/data"

say "1/5 data: sums; four of five that carry are answered without the carry"
tasks careless train 40000 1 >"$out/data/careless.jsonl"
tasks pair train 2000 2 >"$out/data/pairs.jsonl"
tasks pair test 200 3 >"$out/data/pairs_test.jsonl"
tasks sum train 8000 4 >"$out/data/prompts.jsonl"
tasks sum test 400 5 >"$out/data/test.jsonl"
wc -l "$out"/data/*.jsonl
sed -n 1,4p "$out/data/careless.jsonl"

say "2/5 a tokenizer, and a model of random numbers"
cat /usr/share/common-licenses/Apache-2.0 "$out/data/careless.jsonl" >"$out/data/text.txt"
run tokenizer train --input "$out/data/text.txt" --vocab-size 600 --chat-template chatml --output "$out/tokenizer"
run init --config tools/demo/config.json --tokenizer "$out/tokenizer" --seed 7 --output "$out/random"

say "3/5 fine-tuning on the careless rows"
run sft --model "$out/random" --dataset "$out/data/careless.jsonl" --tuner full --output_dir "$out/sft" --no-version-dir --max_length 64 \
  --batch_size 32 --accum 1 --epochs 1 --lr 2e-3 --dtype fp32 --logging_steps 100 --save_strategy no --val_ratio 0 --weight_decay 0.01 \
  --adam_beta2 0.95
before=$(accuracy "$out/sft" "$out/data/test.jsonl")
drawn_before=$(accuracy "$out/sft" "$out/data/test.jsonl" "" true)

say "4/5 DPO: the sum is preferred to the sum without its carry"
run rlhf --rlhf_type dpo --model "$out/sft" --dataset "$out/data/pairs.jsonl" --val_dataset "$out/data/pairs_test.jsonl" --tuner lora \
  --lora_rank 16 --lora_alpha 32 --lora_dropout 0 --lora_target all-linear --output_dir "$out/dpo" --no-version-dir --max_length 64 --batch_size 32 --accum 1 \
  --epochs 1 --lr 2e-3 --warmup_ratio 0.05 --beta 0.1 --dtype fp32 --logging_steps 20 --eval_strategy epoch --save_strategy no
after_dpo=$(accuracy "$out/sft" "$out/data/test.jsonl" "$out/dpo")

say "5/5 GRPO from the careless model: eight answers to each prompt, rewarded where they are right"
run rlhf --rlhf_type grpo --model "$out/sft" --dataset "$out/data/prompts.jsonl" --reward_funcs accuracy --num_generations 8 --temperature 1 --top_p 1 --top_k 0 \
  --max_completion_length 5 --beta 0 --tuner full --output_dir "$out/grpo" --no-version-dir --max_length 64 --batch_size 256 --accum 1 \
  --max_steps 120 --lr 5e-4 --lr_scheduler cosine --warmup_ratio 0.05 --weight_decay 0 --adam_beta2 0.95 --recompute none --dtype fp32 --logging_steps 10 \
  --save_strategy no --val_ratio 0
after=$(accuracy "$out/grpo" "$out/data/test.jsonl")
drawn_after=$(accuracy "$out/grpo" "$out/data/test.jsonl" "" true)

say "what was measured (held-out sums answered exactly)"
printf '  %-34s %6s %%   drawn at temperature 1 %6s %%\n' "fine-tuned on careless rows" "$before" "$drawn_before" "after GRPO" "$after" "$drawn_after"
printf '  %-34s %6s %%\n' "after DPO" "$after_dpo"
printf '  DPO on held-out pairs: margin %s, chosen before rejected in %s of 1\n' "$(held_out margins)" "$(held_out accuracies)"
printf '  time %s s\n' "$((SECONDS - started))"
is() { awk "BEGIN { exit !($1) }" || { echo "demo: not so: $1" >&2; status=1; }; }
status=0
is "$drawn_before < 40"
is "$drawn_after > 90"
is "$after > 90"
is "$(held_out margins) > 1"
is "$(held_out accuracies) > 0.9"
exit "$status"
