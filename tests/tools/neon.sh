#!/usr/bin/env bash
# Builds gable for Arm (NEON) with Debian's cross compiler, and runs the kernels' tests and conformance in qemu's user
# emulation: right or wrong, not fast or slow. About 15 minutes on two cores. `tests/tools/neon.sh [ctest arguments]`
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build/neon
sysroot=$build/sysroot
tools=(g++-aarch64-linux-gnu qemu-user)
packages=(libhwy-dev libhwy1 libfmt-dev libfmt9 libgomp1 nlohmann-json3-dev libcli11-dev doctest-dev)

fail() {
  echo "neon.sh: $1" >&2
  exit 4
}

need_tools() {
  command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null && return
  [[ $EUID -eq 0 ]] || fail "needs ${tools[*]}: sudo apt-get install ${tools[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${tools[@]}"
}

# Arm's packages, unpacked in a folder: the machine's own list of architectures stays as it is.
make_sysroot() {
  [[ -e $sysroot/complete ]] && return
  mkdir -p "$sysroot" "$build/apt/lists/partial" "$build/apt/cache/partial" "$build/apt/packages"
  local arm64=(-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists="$build/apt/lists"
    -oDir::Cache="$build/apt/cache" -oAPT::Sandbox::User=root)
  apt-get "${arm64[@]}" -q update
  (cd "$build/apt/packages" && apt-get "${arm64[@]}" -q download "${packages[@]}")
  local package
  for package in "$build"/apt/packages/*.deb; do dpkg -x "$package" "$sysroot"; done
  touch "$sysroot/complete"
}

need_tools
make_sysroot
cmake --preset release -S "$root" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux-gnu.cmake" \
  -DGABLE_SYSROOT="$sysroot" -DGABLE_CUDA=OFF -DGABLE_ONEDNN=OFF
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure -R '^(api|c_api|npy|problem|cpu_kernels|conformance)_test$' "$@"
