# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: `./run speed`, which builds a base beside this tree and compares.

release_worktree() {
  if [[ -d $1 ]]; then git -C "$root" worktree remove --force "$1" || true; fi
}

# What the base must be built with as well, from this tree's cache: the compiler and gable's own options.
options_of_this_build() {
  grep -E '^(CMAKE_CXX_COMPILER|CMAKE_CXX_FLAGS|CMAKE_CXX_COMPILER_LAUNCHER|GABLE_CUDA_ARCHITECTURES|GABLE_ONEDNN):' \
    "$build/release/CMakeCache.txt" | sed 's/^/-D/'
}

# build_base COMMIT CUDA: builds a commit in build/speed/COMMIT; its sources are there for as long as that takes. Only
# what every commit has is used: CMake, and the options to leave out tests and CUDA.
build_base() {
  local commit=$1 cuda=$2 folder=$build/speed/$1 log=$build/speed/$1.log options=()
  local source=$folder/source
  if [[ -x $folder/build/bin/gable ]]; then return 0; fi
  mkdir -p "$folder"
  release_worktree "$source"
  git -C "$root" worktree prune
  git -C "$root" worktree add --quiet --detach "$source" "$commit" || fail "git can't check out $commit"
  # shellcheck disable=SC2064 # the folder as it is now
  trap "release_worktree '$source'" EXIT
  mapfile -t options < <(options_of_this_build)
  say "Building the base ($(git -C "$root" log -1 --format='%h %s' "$commit"), log in ${log#"$root"/}) ..."
  { cmake -S "$source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGABLE_BUILD_TESTS=OFF \
      "-DGABLE_CUDA=$cuda" "${options[@]}" &&
    cmake --build "$folder/build" --parallel "$(parallel_jobs)"; } >"$log" 2>&1 ||
    { rm -f "$folder/build/bin/gable"; fail_with_log "$log" "building the base failed"; }
  release_worktree "$source"
  trap - EXIT
}

speed_command() {
  local base commit old new cuda=OFF names=()
  if (($# == 0)); then
    say "run: speed takes a commit to compare with, or --builds OLD NEW"
    exit "$exit_usage"
  fi
  if [[ $1 == --help || $1 == -h ]]; then exec python3 "$root/bench/speed.py" --help; fi
  if [[ $1 == --builds ]]; then
    if (($# < 3)); then
      say "run: --builds takes two build folders"
      exit "$exit_usage"
    fi
    old=$2 new=$3
    shift 3
  else
    base=$1
    shift
    if [[ $base == -* ]] || ! commit=$(git -C "$root" rev-parse --verify --quiet "$base^{commit}"); then
      say "run: '$base' is no commit here"
      exit "$exit_usage"
    fi
    if [[ " $* " =~ [[:space:]=,](cuda|cudnn|auto) ]]; then cuda=ON; fi
    build_tool speed
    build_base "$commit" "$cuda"
    old=$build/speed/$commit/build new=$build/release
    names=(--base-name "$commit" --new-name "$(git -C "$root" describe --always --dirty)")
  fi
  command -v python3 >/dev/null || fail "speed needs python3"
  exec python3 "$root/bench/speed.py" "$old" "$new" "${names[@]}" "$@"
}
