#!/usr/bin/env bash
# The walk-through of MindSpeed-LLM as one script: Hugging Face to Megatron, pre-training on it, LoRA on
# instructions, an answer, and the result back as a Hugging Face directory.
#   recipes/megatron_chain.sh MODEL_DIR TEXT_FILE INSTRUCTIONS_FILE OUT_DIR
# Stopped and given again it goes on: what is complete is kept.
#   TP=2 PP=2 LENGTH=4096 BATCH=16 STEPS=2000 DTYPE=bf16 change what is written here; DANLU is the program.
set -euo pipefail # without pipefail, `| tee` turns a failed command into a success
model=${1:?MODEL_DIR} text=${2:?TEXT_FILE} rows=${3:?INSTRUCTIONS_FILE} out=${4:?OUT_DIR}
danlu=${DANLU:-danlu} length=${LENGTH:-4096} batch=${BATCH:-16} steps=${STEPS:-2000} dtype=${DTYPE:-bf16}
mkdir -p "$out"

step() { # step NAME ARGUMENTS…: its messages go to the terminal and to OUT/NAME.log
  local name=$1
  shift
  "$danlu" "$@" 2>&1 | tee "$out/$name.log"
}

[ -e "$out/mcore" ] || step convert convert "$model" "$out/mcore" --to mcore --tp "${TP:-1}" --pp "${PP:-1}"

step preprocess preprocess --input "$text" --tokenizer-type PretrainedFromHF --tokenizer-name-or-path "$model" \
  --handler-name GeneralPretrainHandler --json-keys text --output-prefix "$out/text" --append-eod

step pretrain pretrain --load "$out/mcore" --save "$out/pretrained" --data-path "$out/text_text_document" \
  --tokenizer-type PretrainedFromHF --tokenizer-name-or-path "$model" --seq-length "$length" \
  --micro-batch-size 1 --global-batch-size "$batch" --train-iters "$steps" --lr 1e-5 --split 100,0,0 --dtype "$dtype"

step tune posttrain --stage sft --load "$out/pretrained" --save "$out/lora" --dataset "$rows" \
  --tokenizer-name-or-path "$model" --seq-length "$length" --lora-r 16 --lora-alpha 32 \
  --lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2 \
  --micro-batch-size 1 --global-batch-size "$batch" --train-iters "$steps" --lr 1e-4 --dtype "$dtype"

[ -e "$out/merged" ] || step merge merge --model "$out/pretrained" --adapters "$out/lora" --output "$out/merged"

step answer infer --model "$out/merged" --prompt "${PROMPT:-Who are you?}"
