#!/usr/bin/env bash
# For the first run on a machine with an Ascend card: what is installed there, whether operators, a small training, an
# answer and two ranks give the CPU's numbers, and an archive to send. Installs nothing and writes into OUT alone.
#
#   tools/npu_first_run.sh [BUILD] [OUT]      (after make tests, and CANN's set_env.sh)
#
# DANLU_NPU_LIBRARY=build/npu_sim/current tries the script itself on the simulator.
# Exit codes: 0 all is well; 1 something is not; 5 no NPU, or no CANN.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/first_run.sh
device=npu

versions() {
  local file
  for file in /usr/local/Ascend/*/version.cfg /usr/local/Ascend/driver/version.info /usr/local/Ascend/firmware/version.info; do
    [ -e "$file" ] && { echo "# $file"; cat "$file"; }
  done
}

begin npu "$@"
say "1/5 what is here"
system 'ASCEND|HCCL|TASK_QUEUE' lscpu "npu-smi info" "npu-smi info -t topo" versions >"$out/system.txt" 2>&1
ask_danlu npu_engine
make_model 400
find_card NPU
note NPU "$(grep -m1 -o 'npu:0 .*' "$out/doctor.txt")"

say "2/5 operators, each beside the CPU"
for kept in 0 1; do
  # In the tests' words: with the card that is there, not the simulator.
  export DANLU_NPU_ON_CARD=1 DANLU_NPU_KEEP_PLANS=$kept
  name=operators
  [ $kept = 0 ] || name+=', kept plans'
  operators "$name" operators_$kept.txt test_npu 'NpuTable*:NpuFamilies*:NpuWeights*:NpuLogprobs*:NpuDevice*'
done
unset DANLU_NPU_KEEP_PLANS

say "3/5 ten steps and an answer of a small model on the card and on the CPU"
train cpu sft --device cpu --tuner full --dtype fp32
save=steps train npu sft --device npu --tuner full --dtype fp32
compare "training, fp32" cpu npu 1e-3
DANLU_NPU_KEEP_PLANS=1 train kept sft --device npu --tuner full --dtype fp32
compare "kept plans, fp32" npu kept 1e-6
train npu_bf16 sft --device npu --tuner full --dtype bf16
compare "training, bf16" cpu npu_bf16 0.1
train cpu_lora sft --device cpu --tuner lora --dtype fp32
train npu_lora sft --device npu --tuner lora --dtype fp32
compare "LoRA, fp32" cpu_lora npu_lora 1e-3
answers npu

say "4/5 two cards"
two_cards "$("$danlu" devices 2>/dev/null | grep -oE 'npu:[0-9]+' | sort -u | wc -l)"

say "5/5 an archive"
cp -r "${ASCEND_PROCESS_LOG_PATH:-$HOME/ascend/log}" "$out/plog" 2>/dev/null
finish
