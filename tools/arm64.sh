#!/usr/bin/env bash
# Danlu for Arm (64 bits), which this machine is not: cross-compiled with Debian's compiler against Debian's packages
# for arm64, and run under emulation. That shows that it compiles, runs and is right there, and nothing about
# its speed. The packages are unpacked into the build folder: the system stays as it is, and root is not needed.
#   tools/arm64.sh sysroot              fetch and unpack the packages (about 300 MB)
#   tools/arm64.sh build [TARGET…]      the program, or these targets, in build-arm64
#   tools/arm64.sh package              Debian's package for arm64, in build-arm64/package; looked into and started
#   tools/arm64.sh test [GTEST_FILTER]  tests of rooms, on a processor with NEON alone (Cortex-A72), on one with dot
#                                       products (Neoverse N1) and on one with all that qemu has; then a small
#                                       model's way, compared with this machine's build
#   tools/arm64.sh story                that way alone, in minutes
# `test` ends with 1 if something failed; where the compiler, qemu or the packages cannot be had all are not run, which
# it says. The others fail there.
set -uo pipefail
cd "$(dirname "$0")/.."
verb=${1:-}
build=build-arm64
sysroot=$PWD/$build/sysroot
triplet=aarch64-linux-gnu
libraries=$sysroot/usr/lib/$triplet
emulator=(qemu-aarch64 -L "$sysroot")
runs=(cortex-a72:test_base cortex-a72:test_text cortex-a72:test_arch cortex-a72:test_weights cortex-a72:test_device
  cortex-a72:test_ops cortex-a72:test_optim cortex-a72:test_layers neoverse-n1:test_ops
  max:test_base max:test_device max:test_ops max:test_optim)

fail() {
  printf 'arm64: %s\n' "$1" >&2
  exit 1
}

cannot() {
  [ "$verb" = test ] || fail "$1"
  echo "arm64 (emulated): 0 ok, 0 failed, $((${#runs[@]} + 1)) not run: $1"
  exit 0
}

# What apt sees: an empty arm64 system.
apt_of_arm64() {
  APT_CONFIG=$PWD/$build/apt/apt.conf apt-get -qq "$@"
}

prepare_apt() {
  local apt=$PWD/$build/apt
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" && : >"$apt/status" &&
    cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
}

# The libraries of tools/deps/apt.txt.
wanted() {
  local package other
  while IFS='|' read -r package other; do
    [ -z "$other" ] || apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || package=$other
    echo "$package"
  done < <(sed 's/#.*//' tools/deps/apt.txt) | grep -E -- '-dev$|^libopenblas0'
}

# What the folder holds when it is whole.
content_of_sysroot() {
  echo 'with the records of its packages and the name of its Debian'
  wanted
}

# What dpkg would have noted of a package: that it is there, where its files lie (here in the folder), and which of its
# versions a symbol needs. dpkg-shlibdeps reads it.
record_package() {
  local archive=$1 records=$sysroot/var/lib/dpkg name file control
  control=$(mktemp -d) || return 1
  dpkg-deb -e "$archive" "$control" || return 1
  name=$(dpkg-deb -f "$archive" Package)
  [ "$(dpkg-deb -f "$archive" Multi-Arch)" != same ] || name+=:arm64
  { sed '1a Status: install ok installed' "$control/control" && echo; } >>"$records/status" || return 1
  for file in symbols shlibs; do
    [ ! -e "$control/$file" ] || cp "$control/$file" "$records/info/$name.$file" || return 1
  done
  # Of /lib and /usr/lib, which are one, the latter.
  dpkg-deb --fsys-tarfile "$archive" | tar -t | sed -E 's,^\./?,/,; s,/$,,; s,^/(lib|bin|sbin)(/|$),/usr/\1\2,' |
    sed "s,^,$sysroot," >"$records/info/$name.list"
  rm -r "$control"
}

# The libraries and all that they need, as if installed.
unpack_sysroot() {
  local archive link target
  echo 'arm64: fetching the libraries for it (about 300 MB)'
  rm -rf "$sysroot"
  prepare_apt && apt_of_arm64 update || return 1
  # shellcheck disable=SC2046
  apt_of_arm64 install -y --download-only $(wanted) >/dev/null || return 1
  mkdir -p "$sysroot"/usr/{lib,bin,sbin} "$sysroot/var/lib/dpkg/info" && ln -s usr/lib usr/bin usr/sbin "$sysroot" || return 1
  : >"$sysroot/var/lib/dpkg/status" && echo 1 >"$sysroot/var/lib/dpkg/info/format" || return 1
  for archive in "$build"/apt/cache/archives/*.deb; do
    # Packages of Debian 12 still carry /lib.
    dpkg-deb --fsys-tarfile "$archive" |
      tar -x -C "$sysroot" --keep-directory-symlink --no-same-owner --exclude=./etc --exclude=./var --exclude=./usr/share/doc &&
      record_package "$archive" || return 1
  done
  # What update-alternatives does where packages are installed.
  (cd "$libraries" && ln -sf openblas-pthread/lib* .) || return 1
  # Links that mean the root of a system mean this folder here.
  find "$sysroot" -type l -lname '/*' -printf '%p %l\n' |
    while read -r link target; do ln -sfn "$sysroot$target" "$link"; done
  # By which CMake tells of which Debian they are: the package's version says it.
  mkdir -p "$sysroot/etc" && cp -L /etc/os-release "$sysroot/etc" || return 1
  rm -rf "$build/apt"
  content_of_sysroot >"$sysroot/complete"
}

# need PROGRAM…: the sysroot, and what this needs of the machine.
need() {
  local program
  [ "$(uname -m)" != aarch64 ] || cannot "this is an Arm processor: make test, make package"
  for program in "$@" apt-get; do
    command -v "$program" >/dev/null || cannot "no $program (tools/deps.sh --arm64)"
  done
  content_of_sysroot | cmp -s - "$sysroot/complete" || unpack_sysroot || cannot 'the packages for arm64 cannot be had'
}

build_targets() {
  [ -e .deps/duckdb-aarch64/lib/libduckdb.so ] || cannot 'no DuckDB for it (tools/deps.sh --arm64)'
  tools/build.sh "$build" arm64 "$@" || fail 'it does not compile'
}

# danlu for Arm in folder $1, with the rest of the words; libraries that it opens lie beside it.
emulated() {
  DANLU_LANG=en OMP_NUM_THREADS=1 "${emulator[@]}" -cpu "${processor:-max}" "$1/danlu" "${@:2}"
}

make_package() {
  local package out
  # dpkg-shlibdeps works for another machine by its own variables.
  (cd "$build" && rm -rf package && DEB_HOST_ARCH=arm64 DPKG_ADMINDIR="$sysroot/var/lib/dpkg" cpack -G DEB) >"$build/package.log" 2>&1 ||
    { cat "$build/package.log" >&2; fail 'cpack'; }
  rm -rf "$build/package/_CPack_Packages"
  package=$(ls "$build"/package/danlu_*_arm64.deb) || fail 'no package for arm64 was made'
  unpacked=$(mktemp -d) out=$unpacked/out
  trap 'rm -rf "$unpacked"' EXIT
  dpkg-deb -x "$package" "$unpacked" || fail "$package cannot be unpacked"
  ! find "$unpacked" -type f -exec file {} + | grep ELF | grep -v 'ARM aarch64' >&2 || fail "$package holds what is not for Arm"
  dpkg-deb -f "$package" Depends | tr , '\n' | grep -q '^ *libtorch' || fail "$package does not depend on libtorch"
  emulated "$unpacked/usr/bin" --version >"$out" && grep '^danlu ' "$out" || { cat "$out" >&2; fail "danlu of $package does not start"; }
  du -h "$package"
}

# A small model: made, trained, asked, converted to Megatron's files and back. story FOLDER COMMAND…: danlu as these words.
story() {
  local folder=$1 danlu=("${@:2}")
  mkdir -p "$folder" && cd "$folder" || return 1
  "${danlu[@]}" --version || return 1
  "${danlu[@]}" tokenizer train --input ../text.txt --vocab_size 400 --chat_template chatml --output tokenizer &&
    "${danlu[@]}" init --config ../config.json --tokenizer tokenizer --seed 1 --output model &&
    "${danlu[@]}" sft --model model --dataset ../sums.jsonl --output_dir run --tuner full --max_steps 60 --lr 3e-3 \
      --logging_steps 1 --dtype fp32 --per_device_train_batch_size 4 &&
    "${danlu[@]}" infer --model ../x86/run/last --prompt 'What is 2 plus 3?' --max_new_tokens 8 --do_sample false >answer &&
    grep -q '[0-9]' answer &&
    "${danlu[@]}" convert model megatron --to mcore --tp 2 --pp 2 &&
    "${danlu[@]}" convert megatron back --to hf && "${danlu[@]}" diff model back
}

# Of the first steps: rounding grows with each.
losses_of() { sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/run/logging.jsonl" | head -n 5; }

# told_by WHERE WORD…: the story in $folder/WHERE by these words.
told_by() {
  (story "$folder/$1" "${@:2}") >"$folder/$1.log" 2>&1 && return
  tail "$folder/$1.log"
  echo "emulated story FAILED: a command of it did, $1"
  return 1
}

# The story here and on Arm: the same tokenizer and the same answer of one model, losses within the rounding of f32.
# Says what is wrong. 2: there is nothing to compare with.
compare_stories() {
  local folder here=$PWD i
  [ -x build/danlu ] || { echo 'emulated story not run: no build/danlu of this machine to compare with (make build)'; return 2; }
  folder=$(mktemp -d)
  for i in $(seq 0 399); do
    echo "{\"instruction\": \"What is $((i % 20)) plus $((i / 20))?\", \"input\": \"\", \"output\": \"$((i % 20 + i / 20))\"}"
  done >"$folder/sums.jsonl"
  cp LICENSE "$folder/text.txt"
  echo '{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 400, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "hidden_act": "silu"}' >"$folder/config.json"
  export DANLU_LANG=en OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000
  told_by x86 "$here/build/danlu" && told_by arm "${emulator[@]}" -cpu max "$here/$build/danlu" || return 1
  emulated "$here/$build" doctor --only cpu,quota >"$folder/doctor" ||
    { cat "$folder/doctor"; echo 'emulated story FAILED: danlu doctor did, arm'; return 1; }
  # First weights are of libtorch's sines, whose last bits are another matter on Arm.
  cmp "$folder"/{x86,arm}/tokenizer/tokenizer.json && cmp "$folder"/{x86,arm}/answer ||
    { echo 'emulated story FAILED: a small model goes another way there than here'; return 1; }
  paste <(losses_of "$folder/x86") <(losses_of "$folder/arm") | awk '
    function abs(x) { return x < 0 ? -x : x }
    { worst = abs($1 - $2) / $1 > worst ? abs($1 - $2) / $1 : worst; ++count }
    END { printf "emulated story: %d losses, the furthest from this machine'\''s by %.1e of it\n", count, worst; exit !(count == 5 && worst < 1e-5) }' ||
    { echo 'emulated story FAILED: the losses there are others than here'; return 1; }
  rm -r "$folder"
}

case $verb in
  sysroot) need ;;
  build)
    need $triplet-g++ qemu-aarch64 # the manual pages are written by the program
    [ $# -gt 1 ] || set -- build program
    build_targets "${@:2}"
    ;;
  package)
    need $triplet-g++ qemu-aarch64 dpkg-shlibdeps file
    build_targets program
    make_package
    ;;
  test)
    need $triplet-g++ qemu-aarch64
    # shellcheck disable=SC2046
    build_targets program $(printf '%s\n' "${runs[@]#*:}" | sort -u)
    # Left out: what qemu itself does not do (a program that starts itself again, limits of a process), and some
    # hundreds of texts through every tokenizer, which would take as long as all the rest.
    limits="*DeathTest*:ControlGroup.*OwnLimits*:ThreadGroup.ThreadsThatCannotBeMade*"
    filter=${2:-"*-$limits:TokenizerParity.*"}
    . tools/emulated.sh
    # Half an hour for one; all of them together take about a quarter of it.
    run_emulated 1800 "$filter" "${runs[@]/:/:$build/}" -- "${emulator[@]}"
    compare_stories
    end=$? not_run=0
    case $end in
      0) ;;
      2) not_run=1 ;;
      *) num_failed=$((num_failed + 1)) ;;
    esac
    printf 'arm64 (emulated): %d ok, %d failed, %d not run\n' $((${#runs[@]} + 1 - num_failed - not_run)) $num_failed $not_run
    [ $num_failed = 0 ]
    ;;
  story)
    need $triplet-g++ qemu-aarch64
    build_targets program
    compare_stories || exit 1
    ;;
  *) fail 'usage: tools/arm64.sh sysroot | build [TARGET…] | package | test [GTEST_FILTER] | story' ;;
esac
