#!/usr/bin/env bash
# The rooms with kernels on Arm, which this machine is not: cross-compiled, and their tests run under
# emulation, on a processor with NEON alone (Cortex-A72) and on one with all that qemu has. It shows that
# they compile, run and are right there, and nothing about their speed. Debian's packages for arm64 are
# unpacked into the build folder: the system stays as it is, and root is not needed. Ends with 1 if a test failed;
# where the compiler, qemu or the packages cannot be had all are not run.
#   tools/arm64.sh [GTEST_FILTER]
set -uo pipefail
cd "$(dirname "$0")/.."
build=build-arm64
sysroot=$PWD/$build/sysroot
libraries=$sysroot/usr/lib/aarch64-linux-gnu
runs=(cortex-a72:test_base cortex-a72:test_text cortex-a72:test_device cortex-a72:test_ops cortex-a72:test_optim
  max:test_device max:test_ops max:test_optim)

not_run() {
  echo "arm64 (emulated): 0 ok, 0 failed, ${#runs[@]} not run: $1"
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

# They and all that they need, as if installed.
unpack_sysroot() {
  local archive link target
  echo 'arm64: fetching the libraries for it (about 300 MB)'
  rm -rf "$sysroot" "$build/apt"
  prepare_apt && apt_of_arm64 update || return 1
  # shellcheck disable=SC2046
  apt_of_arm64 install -y --download-only $(wanted) >/dev/null || return 1
  mkdir -p "$sysroot"/usr/{lib,bin,sbin} && ln -s usr/lib usr/bin usr/sbin "$sysroot" || return 1
  for archive in "$build"/apt/cache/archives/*.deb; do
    # Packages of Debian 12 still carry /lib.
    dpkg-deb --fsys-tarfile "$archive" |
      tar -x -C "$sysroot" --keep-directory-symlink --no-same-owner --exclude=./etc --exclude=./var --exclude=./usr/share/doc ||
      return 1
  done
  # What update-alternatives does where packages are installed.
  (cd "$libraries" && ln -sf openblas-pthread/lib* .) || return 1
  # Links that mean the root of a system mean this folder here.
  find "$sysroot" -type l -lname '/*' -printf '%p %l\n' |
    while read -r link target; do ln -sfn "$sysroot$target" "$link"; done
  rm -rf "$build/apt"
  wanted >"$sysroot/complete"
}

[ "$(uname -m)" != aarch64 ] || not_run "this is an Arm processor: make test"
for program in aarch64-linux-gnu-g++ qemu-aarch64 apt-get; do
  command -v $program >/dev/null || not_run "no $program (tools/deps.sh --arm64)"
done
wanted | cmp -s - "$sysroot/complete" || unpack_sysroot || not_run "the packages for arm64 cannot be had"
tools/build.sh "$build" arm64 $(printf '%s\n' "${runs[@]#*:}" | sort -u) || exit 1

# Left out: what qemu itself does not do (a program that starts itself again, limits of a process), and some
# hundreds of texts through every tokenizer, which would take as long as all the rest.
limits="*DeathTest*:ControlGroup.*OwnLimits*:ThreadGroup.ThreadsThatCannotBeMade*"
filter=${1:-"*-$limits:TokenizerParity.*"}
. tools/emulated.sh
# Half an hour for one; all of them together take about a quarter of it.
run_emulated 1800 "$filter" "${runs[@]/:/:$build/}" -- qemu-aarch64 -L "$sysroot"
printf 'arm64 (emulated): %d ok, %d failed, 0 not run\n' $((${#runs[@]} - num_failed)) $num_failed
[ $num_failed = 0 ]
