#!/usr/bin/env bash
# The demo: a tokenizer and a small Qwen2-shaped model from nothing, pre-trained on text, fine-tuned on
# generated instructions (killed once and resumed), given a further skill by LoRA, merged, and asked.
#
#   tools/demo/run.sh [BUILD] [OUT]      (make demo runs it with build and demo-out)
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
out=${2:-demo-out}
danlu=$(realpath "$build")/danlu
started=$SECONDS

. tools/demo/common.sh

rm -rf "$out"
mkdir -p "$out/data"

say "1/7 data: questions with one right answer; no test question is ever trained on"
tasks larger,next,reverse train 21000 1 >"$out/data/train.jsonl"
tasks larger,next,reverse test 300 2 >"$out/data/test.jsonl"
tasks smaller train 8000 3 >"$out/data/smaller_train.jsonl"
tasks smaller test 200 4 >"$out/data/smaller_test.jsonl"
# Text to pre-train on: a licence that every Debian ships, and the questions with their answers as plain lines.
cat /usr/share/common-licenses/Apache-2.0 >"$out/data/text.txt"
sed -n '1,8000s/.*"instruction": "\(.*\)", "input": "", "output": "\(.*\)"}/\1 \2/p' "$out/data/train.jsonl" >>"$out/data/text.txt"
wc -l "$out"/data/*.jsonl
sed -n 1,3p "$out/data/train.jsonl"

say "2/7 a tokenizer, and a model of random numbers"
run tokenizer train --input "$out/data/text.txt" --vocab-size 600 --chat-template chatml --output "$out/tokenizer"
cp tools/demo/config.json "$out/config.json"
run init --config "$out/config.json" --tokenizer "$out/tokenizer" --seed 7 --output "$out/random"

say "3/7 pre-training on text"
run pretrain --model "$out/random" --dataset "$out/data/text.txt" --output_dir "$out/base" --no-version-dir --max_length 128 --batch_size 16 \
  --accum 1 --max_steps 60 --lr 2e-3 --dtype fp32 --logging_steps 20 --save_strategy no --val_ratio 0

say "4/7 fine-tuning, killed in the middle and started again"
before=$(accuracy "$out/base" "$out/data/test.jsonl")
sft=(sft --model "$out/base" --dataset "$out/data/train.jsonl" --tuner full --output_dir "$out/sft" --no-version-dir
     --max_length 96 --batch_size 32 --accum 1 --epochs 1 --lr 2e-3 --dtype fp32 --logging_steps 50 --save_steps 100
     --val_ratio 0.005 --weight_decay 0.01 --adam_beta2 0.95 --save_total_limit 2)
printf '$ danlu %s\n' "${sft[*]}"
"$danlu" "${sft[@]}" &
trainer=$!
for _ in $(seq 600); do
  [ -e "$out/sft/checkpoint-100/DONE" ] && break
  kill -0 "$trainer" 2>/dev/null || break
  sleep 0.2
done
if kill -9 "$trainer" 2>/dev/null; then
  wait "$trainer" 2>/dev/null || true
  echo "-- killed with SIGKILL; the same command goes on where the last checkpoint is:"
else
  wait "$trainer"
fi
run "${sft[@]}"
after=$(accuracy "$out/sft" "$out/data/test.jsonl")

say "5/7 a chat (every question by itself: the model has learnt single turns)"
while read -r question; do
  printf '>>> %s\n%s\n' "$question" "$(printf '%s\n' "$question" | "$danlu" chat --model "$out/sft" --do-sample false 2>"$out/chat.log")"
done <<'QUESTIONS'
Which is larger, 58 or 85?
Say these words backwards: moon tea horse
What number comes after 799?
33 和 70 哪个更大？
QUESTIONS
first_answer=$((SECONDS - started))

say "6/7 a further skill by LoRA: which is smaller?"
small_before=$(accuracy "$out/sft" "$out/data/smaller_test.jsonl")
run sft --model "$out/sft" --dataset "$out/data/smaller_train.jsonl" --tuner lora --lora_rank 16 --lora_alpha 32 --lora_dropout 0 \
  --output_dir "$out/lora" --no-version-dir --max_length 96 --batch_size 16 --accum 1 --epochs 1 --lr 3e-3 --dtype fp32 \
  --logging_steps 50 --save_strategy no --val_ratio 0
small_after=$(accuracy "$out/sft" "$out/data/smaller_test.jsonl" "$out/lora")

say "7/7 merging the adapter into the model"
run merge --model "$out/sft" --adapters "$out/lora" --output "$out/merged"
merged=$(accuracy "$out/merged" "$out/data/smaller_test.jsonl")

say "what was measured (held-out questions answered exactly)"
printf '  before fine-tuning              %6s %%\n  after fine-tuning               %6s %%\n' "$before" "$after"
printf '  new skill before LoRA           %6s %%\n  new skill after LoRA            %6s %%\n  the same, merged                %6s %%\n' \
  "$small_before" "$small_after" "$merged"
printf '  loss picture                    %s\n  time                            %s s, the chat after %s s\n' "$(find "$out/sft" -name train_loss.png -print -quit)" "$((SECONDS - started))" "$first_answer"
status=0
for value in "$after" "$small_after" "$merged"; do
  awk -v v="$value" 'BEGIN { exit !(v >= 90) }' || status=1
done
[ "$status" = 0 ] || echo "demo: an accuracy above is below 90 %" >&2
printf '\nTalk to it yourself:\n  %s/danlu chat --model %s/sft\n' "$build" "$out"
printf 'In the browser, with the runs above beside it:\n  %s/danlu serve --model %s/sft --runs %s\n' "$build" "$out" "$out"
exit "$status"
