#!/usr/bin/env bash
# Every benchmark of a build folder, each against its peer where that peer is there; what is missing is named.
#   tools/bench.sh [BUILD]
#   DANLU_BENCH_TOKENIZER=DIR    directory with tokenizer.json   (default: one trained on this checkout's text)
#   DANLU_BENCH_TEXTS="F G"      files to tokenise               (default: this checkout's text)
#   DANLU_BENCH_ALPACA=FILE      rows to preprocess              (default: the demo's generated rows)
#   DANLU_BENCH_PEER=PEER.py     the training step's peer: prints the keys of train_step_bench (bench/README.md)
#   DANLU_BENCH_LAYERS=4         size of the model to convert (20: 7.6 GB)
#   DANLU_BENCH_ROUNDS=3         runs of each program
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
rounds=${DANLU_BENCH_ROUNDS:-3}
work=$build/bench-data
mkdir -p "$work"

for program in tokenize_bench preprocess_bench train_step_bench decode_bench; do
  [ -x "$build/$program" ] || { echo "bench: $build/$program is missing: configure with -DDANLU_BENCH=ON" >&2; exit 1; }
done
say() { printf '\n== %s\n' "$*"; }

tokenizer=${DANLU_BENCH_TOKENIZER:-$work/tokenizer}
texts=${DANLU_BENCH_TEXTS:-$work/text.txt}
rows=${DANLU_BENCH_ALPACA:-$work/rows.json}
git ls-files -z 'docs/*.md' '*.md' 'src/*.cpp' 'src/*.h' | xargs -0 cat >"$work/text.txt"
if [ "$tokenizer" = "$work/tokenizer" ] && [ ! -e "$tokenizer" ]; then
  "$build/danlu" tokenizer train --input "$work/text.txt" --vocab_size 8000 --chat_template chatml --output "$tokenizer" >/dev/null
fi
if [ "$rows" = "$work/rows.json" ]; then
  awk -v kinds=larger,next,reverse -v part=train -v count=50000 -v seed=1 -f tools/demo/tasks.awk |
    sed -e '1s/^/[/' -e '$!s/$/,/' -e '$s/$/]/' >"$rows"
fi

# Hugging Face's own tokenizers, for node: installed once, beside the scripts that make the goldens.
peers=tools/tokenizer_goldens
if [ ! -d $peers/node_modules ] && command -v npm >/dev/null; then
  echo "bench: fetching Hugging Face's tokenizers with npm"
  (cd $peers && npm ci --silent --no-audit --no-fund) || echo 'bench: npm could not fetch them'
fi

say "tokenising: $tokenizer"
if [ -d $peers/node_modules ]; then
  # shellcheck disable=SC2086  # a list of files
  node bench/tokenize.mjs "$build" "$tokenizer" $texts --rounds "$rounds"
else
  echo 'no peer (npm is missing): danlu alone'
  for text in $texts; do "$build/tokenize_bench" "$tokenizer" "$text"; done
fi

say "preprocess: $rows"
"$build/preprocess_bench" "$rows" "$tokenizer" --repeats "$rounds"
if [ -d $peers/node_modules ]; then
  node bench/preprocess_peer.mjs "$rows" "$tokenizer/tokenizer.json" "$rounds"
else
  echo 'no peer (npm is missing)'
fi

say 'conversion, against cp'
python3 bench/convert.py "$build" "$work/convert" --layers "${DANLU_BENCH_LAYERS:-4}" --rounds "$rounds"

say 'training step, 100 M parameters'
if [ -n "${DANLU_BENCH_PEER:-}" ]; then
  tools/bench_train.sh --peer "$DANLU_BENCH_PEER" --build "$build" --rounds "$rounds" --wait 10
else
  echo 'no peer (DANLU_BENCH_PEER is not set): danlu alone'
  env -u OPENBLAS_CORETYPE GOMP_SPINCOUNT=1000 OPENBLAS_THREAD_TIMEOUT=4 "$build/train_step_bench" --dtype fp32,bf16
fi

say 'decoding, 0.5 B parameters, by type'
env -u OPENBLAS_CORETYPE GOMP_SPINCOUNT=1000 OPENBLAS_THREAD_TIMEOUT=4 "$build/decode_bench"
