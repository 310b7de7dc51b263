#!/usr/bin/env bash
# Tries what `make package` made where nothing else is: installs the package with apt in a bare Debian, unpacks
# the archive in another one, and in each makes, converts, trains and asks a small model.
#   tools/test_package.sh 12|13 [BUILD_FOLDER]
# Needs root, debootstrap and a mirror of Debian. The bare system and what apt downloads stay for the next run, in
# $DANLU_ROOTS (else /var/tmp/danlu-roots). The package must have been made on that Debian, e.g. for 13:
#   tools/in_debian.sh 13 make package
#   tools/test_package.sh 13 /var/tmp/danlu-roots/debian-13/src/danlu/build
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'test_package: %s\n' "$1" >&2
  exit 1
}

debian=${1:-} build=${2:-build}
case $debian in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) fail "which Debian? usage: tools/test_package.sh 12|13 [BUILD_FOLDER]" ;;
esac
[ "$(id -u)" = 0 ] || fail 'a root can be made and entered by root alone'
command -v debootstrap >/dev/null || fail 'debootstrap is missing: tools/deps.sh --package'
package=$(ls "$build"/package/danlu_*~deb"$debian"_*.deb) || fail "no package for Debian $debian in $build/package: make package there"
archive=$(ls "$build"/package/danlu-*.tar.gz)

roots=${DANLU_ROOTS:-/var/tmp/danlu-roots}
mkdir -p "$roots/downloads-$debian/partial"
work=$(mktemp -d -p "$roots") # gigabytes: not for a TMPDIR in memory
trap 'rm -rf --one-file-system "$work"' EXIT

# inside ROOT COMMAND: bash there with an environment of its own; what is mounted goes with the process. Its
# words are shown if it fails.
inside() {
  unshare --mount bash -c '
    mount -t proc proc "$1/proc"
    mount --bind "$2" "$1/var/cache/apt/archives"
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      chroot "$1" bash -euo pipefail -c "$3"' - "$1" "$(realpath "$roots/downloads-$debian")" "$2" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "in $1: ${2##*$'\n'}"; }
}

fresh_root() {  # fresh_root NAME: a bare Debian in $work/NAME
  if [ ! -e "$roots/bare-$debian" ]; then
    debootstrap --variant=minbase "$suite" "$roots/bare-$debian.part" >"$work/log" || { tail "$work/log" >&2; fail debootstrap; }
    mv "$roots/bare-$debian.part" "$roots/bare-$debian"
  fi
  cp -a "$roots/bare-$debian" "$work/$1"
  cp -L /etc/resolv.conf "$work/$1/etc/resolv.conf"
}

# Inside a root: what a user does first. $1: the folder that holds bin/danlu.
user_story() {
  danlu=$1/bin/danlu
  step() { echo "-- $*"; }
  ! command -v cc c++ cmake python3 || { echo 'this root is not bare' >&2; return 1; }
  cd "$(mktemp -d)"

  step help, manual, completion, recipes
  "$danlu" --help | grep 'Usage: danlu' >/dev/null
  zcat "$1/share/man/man1/danlu.1.gz" | grep 'danlu sft' >/dev/null
  zcat "$1/share/man/man1/danlu-sft.1.gz" | grep 'dataset' >/dev/null
  source "$1/share/bash-completion/completions/danlu"
  COMP_WORDS=(danlu conv) COMP_CWORD=1
  _danlu
  [ "${COMPREPLY[*]}" = convert ]
  "$danlu" sft "$1/share/danlu/recipes/sft_lora_qwen2_5_7b.yaml" --print_config >/dev/null
  [ -s "$1/share/doc/danlu/copyright" ]

  step a tokenizer, a model, a data set
  for i in $(seq 0 399); do
    echo "{\"instruction\": \"What is $((i % 20)) plus $((i / 20))?\", \"input\": \"\", \"output\": \"$((i % 20 + i / 20))\"}"
  done >sums.jsonl
  "$danlu" tokenizer train --input /usr/share/common-licenses/Apache-2.0 --vocab_size 400 --chat_template chatml --output tokenizer
  echo '{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 400, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "hidden_act": "silu"}' >config.json
  "$danlu" init --config config.json --tokenizer tokenizer --seed 1 --output model
  "$danlu" inspect sums.jsonl
  # Three pieces of SentencePiece: <unk>, "▁a", "b".
  printf '\n\016\n\005<unk>\025\0\0\0\0\030\002\n\015\n\004\342\226\201a\025\0\0\0\0\030\001\n\012\n\001b\025\0\0\0\0\030\001' >tokenizer.model
  [ "$("$danlu" tokenize --model tokenizer.model a)" = 1 ]

  step convert
  "$danlu" convert model megatron --to mcore --tp 2 --pp 2
  "$danlu" convert megatron back --to hf
  "$danlu" diff model back

  step sft
  "$danlu" sft --model model --dataset sums.jsonl --output_dir run --tuner full --max_steps 60 --lr 3e-3 --dtype fp32
  [ -s run/last/model.safetensors ]

  step infer, chat: a number, right or not
  "$danlu" infer --model run/last --prompt 'What is 2 plus 3?' --max_new_tokens 8 --do_sample false | grep '[0-9]'
  echo 'What is 2 plus 3?' | "$danlu" chat --model run/last --max_new_tokens 8 --do_sample false | grep '[0-9]'
}

use_danlu() {  # use_danlu ROOT FOLDER_OF_BIN
  inside "$1" "$(declare -f user_story)"$'\n'"user_story '$2'"
  grep '^-- ' "$work/log"
}

echo "== $package with apt"
fresh_root package
cp "$package" "$work/package/tmp/danlu.deb"
inside "$work/package" 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/danlu.deb'
use_danlu "$work/package" /usr
inside "$work/package" 'readlink -f /usr/lib/*/libblas.so.3 | grep openblas'
inside "$work/package" 'apt-get purge -y -qq danlu; ! find /usr | grep danlu'
rm -rf --one-file-system "$work/package"

echo "== $archive, no package installed"
fresh_root archive
mkdir "$work/archive/srv/any where"
tar -C "$work/archive/srv/any where" -xf "$archive"
use_danlu "$work/archive" "/srv/any where/$(basename "$archive" .tar.gz)"
# Every library that is not glibc's came from the archive, whatever the system has.
inside "$work/archive" '
  cd "$(mktemp -d)"
  LD_DEBUG=files LD_DEBUG_OUTPUT=ld /srv/*/*/bin/danlu infer --model nowhere --prompt x >/dev/null 2>&1 || true
  sed -n "s/.*calling init: //p" ld.* | sort -u >opened
  grep -c "^/srv/any where/.*/lib/danlu/" opened
  ! grep -vE "^/srv/any where/|/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|mvec|anl))\.so[.0-9]*$" opened'

echo "test_package: Debian $debian: the package and the archive work"
