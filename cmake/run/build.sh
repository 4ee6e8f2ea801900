# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: configuring and building with CMake, with progress and a log.

fail_with_log() {
  say "---- the end of $1"
  tail -n 40 "$1" >&2
  say "----"
  fail "$2; the whole log is $1"
}

ensure_build_folder() {
  if ! mkdir -p "$build" 2>/dev/null || [[ ! -w $build ]]; then
    fail "$build can't be written by $(id -un): it belongs to $(stat -c %U "$build" 2>/dev/null || stat -c %U "$root")"
  fi
}

ensure_cmake_version() {
  local version
  command -v cmake >/dev/null || fail "no cmake on the PATH"
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) == 3.25 ]] ||
    fail "cmake $version is too old: gable needs 3.25 (Debian 12 and Ubuntu 24.04 have it)"
}

# As many as processors, at 1.5 GB of memory each.
parallel_jobs() {
  local processors memory_kb limit
  processors=$(nproc)
  memory_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [[ $limit =~ ^[0-9]+$ ]]; then
    if ((limit / 1024 < memory_kb)); then memory_kb=$((limit / 1024)); fi
  fi
  local by_memory=$((memory_kb / 1500000))
  if ((by_memory < 1)); then by_memory=1; fi
  printf '%s' "${CMAKE_BUILD_PARALLEL_LEVEL:-$((processors < by_memory ? processors : by_memory))}"
}

# Shows ninja's [step/total] under a headline: one renewed line on a terminal, elsewhere a line a quarter. Nothing if
# there is nothing to build.
show_progress() {
  local headline=$1 line step total quarter=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] && $line != *Re-checking* ]] || continue
    step=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    if [[ -n $headline ]]; then say "$headline"; fi
    headline=
    if [[ -t 2 ]]; then
      printf '\r\033[K  [%s/%s]' "$step" "$total" >&2
    elif ((total >= 8 && step * 4 / total > quarter)); then
      quarter=$((step * 4 / total))
      say "  [$step/$total]"
    fi
  done
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

# configure PRESET: GABLE_WERROR=ON in the environment makes warnings errors, as in continuous integration, and
# GABLE_CUDA_ARCHITECTURES replaces the release build's list of GPUs. GABLE_CUDA_FAST_COMPILE=ON leaves device code
# without most of its optimisations.
configure() {
  local preset=$1 log=$build/$1-configure.log fresh=() options=() cache=$build/$1/CMakeCache.txt
  # A tree that was moved, or is mounted elsewhere, has a cache that speaks of another place.
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then fresh=(--fresh); fi
  if [[ -n ${GABLE_WERROR:-} ]]; then options=("-DGABLE_WERROR=$GABLE_WERROR"); fi
  options+=("-DGABLE_CUDA_FAST_COMPILE=${GABLE_CUDA_FAST_COMPILE:-OFF}") # not what the folder's cache has from before
  if [[ $preset == release && -n ${GABLE_CUDA_ARCHITECTURES:-} ]]; then
    options+=("-DGABLE_CUDA_ARCHITECTURES=$GABLE_CUDA_ARCHITECTURES")
  fi
  # The sanitizers leave CUDA's kernels alone: those of the release build serve again. The cache may name them from before.
  if [[ $preset == asan-ubsan ]]; then
    local kernels=$build/release/cuda
    if [[ ! -f $kernels/libgable_cuda_kernels.a || ! -f $kernels/libgable_cuda_hopper.a ]]; then kernels=; fi
    options+=("-DGABLE_CUDA_KERNELS_FROM=${kernels%/cuda}")
  fi
  (cd "$root" && cmake --preset "$preset" "${fresh[@]}" "${options[@]}") >"$log" 2>&1 ||
    fail_with_log "$log" "configuring ($preset) failed"
}

# build PRESET "TARGETS" WHAT
build() {
  local log=$build/$1-build.log jobs targets
  read -ra targets <<<"$2"
  jobs=$(parallel_jobs)
  configure "$1"
  cmake --build "$build/$1" --target "${targets[@]}" --parallel "$jobs" 2>&1 | tee "$log" |
    show_progress "Building $3 ($jobs jobs, log in build/$1-build.log) ..." ||
    fail_with_log "$log" "building ($1) failed"
}

# prepare KINDS: as for find_missing
prepare() {
  ensure_build_folder
  ensure_packages "$1"
  ensure_cmake_version
}

build_tool() {
  prepare "${1:-}"
  build release gable_products "gable"
}
