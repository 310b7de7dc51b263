#!/bin/bash
# Fine-tuning on two nodes of a Slurm cluster, one process a socket:
#   sbatch recipes/slurm_two_nodes.sh --model DIR --dataset FILE --output_dir DIR
# DIR and FILE lie where every node sees them.
#SBATCH --job-name=danlu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --exclusive
set -euo pipefail
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${nodes%%$'\n'*}
# Jobs that share a node have numbers of their own.
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
# A rank that fails ends the job by itself and says why; srun need not be quicker.
srun --kill-on-bad-exit=0 danlu sft "$@"
