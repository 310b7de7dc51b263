# What the demos share. Expects $danlu and $out; run from the root of the project.

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() {  # shows a command, then runs it
  printf '$ danlu %s\n' "$*"
  "$danlu" "$@"
}
tasks() {  # tasks KINDS PART COUNT SEED
  awk -v kinds="$1" -v part="$2" -v count="$3" -v seed="$4" -f tools/demo/tasks.awk
}
accuracy() {  # accuracy MODEL FILE [ADAPTERS [DRAWN]]: held-out exact match, in percent
  DANLU_LANG=en "$danlu" infer --model "$1" ${3:+--adapters "$3"} --dataset "$2" --output "$out/answers.jsonl" --overwrite --max-new-tokens 16 \
    --do-sample "${4:-false}" --batch-size 64 2>"$out/infer.log" || { cat "$out/infer.log" >&2; exit 1; }
  sed -n 's/^exact match: \([0-9.]*\)%.*/\1/p' "$out/infer.log"
}
