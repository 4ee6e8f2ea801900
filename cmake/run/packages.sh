# shellcheck shell=bash disable=SC2154 # root, build, and the exit codes are those of run
# A part of ./run: what gable needs, and installing what is missing by apt.

# Debian package | how to tell without dpkg: cmd:NAME, hdr:NAME, py:MODULE or file:PATH | kind | what for
# Kinds: required, optional, or the command that alone wants it.
needs() {
  cat <<'NEEDS'
g++|cmd:c++|required|C++20 compiler
cmake|cmd:cmake|required|build system, 3.25 or later
ninja-build|cmd:ninja|required|runs the build
libhwy-dev|hdr:hwy/highway.h|required|Highway: SIMD for the cpu kernels
libfmt-dev|hdr:fmt/format.h|required|fmt: text of the gable command
nlohmann-json3-dev|hdr:nlohmann/json.hpp|required|JSON records of the gable command
libcli11-dev|hdr:CLI/CLI.hpp|required|CLI11: options of the gable command
doctest-dev|hdr:doctest/doctest.h|required|doctest: the tests
libdnnl-dev|hdr:dnnl.hpp|optional|oneDNN: the device `onednn` to compare with
valgrind|cmd:valgrind|optional|valgrind: memory traffic from a cache simulation (--counters)
libzydis-dev|hdr:Zydis/Zydis.h|optional|Zydis: work (FLOP) from the instructions that a simulation executed (--counters)
librsvg2-bin|cmd:rsvg-convert|optional|draws roofline.png from the SVG
fonts-dejavu-core|file:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf|optional|the font of roofline.png
libdlpack-dev|hdr:dlpack/dlpack.h|test|DLPack: the test of <gable/dlpack.h>
lld|cmd:ld.lld|test|lld: links programs with sanitizers in a quarter of the time
pkg-config|cmd:pkg-config|test|the test of gable.pc
python3-pytest|py:pytest|test|pytest: the tests of the scripts in Python
python3|cmd:python3|speed|Python: the comparison of two builds
clang|cmd:clang++|clang|clang
libclang-rt-dev|file:/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a|clang|clang's libFuzzer and sanitizers
libomp-dev|file:/usr/lib/llvm-*/lib/libarcher.so|clang|OpenMP of clang, which tells ThreadSanitizer what waits for what
clang-format|cmd:clang-format|lint|clang-format: the layout of the sources
clang-tidy|cmd:clang-tidy|lint|clang-tidy: faults that it knows
doxygen|cmd:doxygen|docs|Doxygen: the API reference
NEEDS
}

is_present() {
  local how=$1 folder
  case $how in
    cmd:*) command -v "${how#*:}" >/dev/null ;;
    file:*) compgen -G "${how#*:}" >/dev/null ;;
    py:*) python3 -c "import ${how#*:}" 2>/dev/null || /usr/bin/python3 -c "import ${how#*:}" 2>/dev/null ;;
    hdr:*)
      for folder in /usr/include /usr/local/include /usr/include/*-linux-gnu; do
        if [[ -e $folder/${how#*:} ]]; then return 0; fi
      done
      return 1
      ;;
  esac
}

is_installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == 'install ok installed' ]]; }

has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

system_name() {
  local name
  # shellcheck source=/dev/null
  name=$(. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-}") || true
  printf '%s' "${name:-an unknown system}"
}

# Fills missing_required and missing_optional with lines of needs(). $1: the kinds that are wanted beside required and
# optional, with commas.
find_missing() {
  local line package how kind
  missing_required=() missing_optional=()
  while IFS= read -r line; do
    IFS='|' read -r package how kind _ <<<"$line"
    if [[ ,required,optional,$1, != *,$kind,* ]]; then continue; fi
    if is_present "$how" || { has_apt && is_installed "$package"; }; then continue; fi
    if [[ $kind == required ]]; then missing_required+=("$line"); else missing_optional+=("$line"); fi
  done < <(needs)
}

list_needs() {
  local package what
  while IFS='|' read -r package _ _ what; do
    say "$(printf '  %-20s %s' "$package" "$what")"
  done < <(printf '%s\n' "$@")
}

packages_of() {
  local line
  for line in "$@"; do printf '%s\n' "${line%%|*}"; done
}

as_root=() # what to put before a command that takes root

find_root() {
  if [[ $EUID -eq 0 ]]; then return 0; fi
  command -v sudo >/dev/null || return 1
  as_root=(sudo)
  if [[ -t 0 ]]; then return 0; fi
  as_root=(sudo -n) # nobody is there to type a password
  "${as_root[@]}" true 2>/dev/null
}

quiet_apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" </dev/null >>"$build/apt.log" 2>&1
}

# The lists bear the mirror's dates; the folder that they arrive in bears the date of the last update.
package_lists_are_fresh() {
  compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null &&
    [[ -n $(find /var/lib/apt/lists/partial -maxdepth 0 -mtime -1 2>/dev/null) ]]
}

is_available() {
  local candidate
  candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [[ -n $candidate && $candidate != '(none)' ]]
}

update_package_lists() {
  say "Updating apt's package lists (apt-get update) ..."
  quiet_apt update || say "apt-get update failed (see build/apt.log); going on with the lists as they are"
}

install_missing() {
  local line package wanted=() by_hand
  by_hand="apt-get install --no-install-recommends $(packages_of "${missing_required[@]}" "${missing_optional[@]}")"
  if ! find_root; then
    say "That takes root, and there is no sudo that works here without a question. As root:"
    say "  ${by_hand//$'\n'/ }"
    if ((${#missing_required[@]} > 0)); then fail "required packages are missing"; fi
    say "Going on without the optional ones."
    return
  fi
  : >"$build/apt.log"
  package_lists_are_fresh || update_package_lists
  for line in "${missing_required[@]}"; do
    package=${line%%|*}
    is_available "$package" || fail "this system's package sources have no $package. Add a source that has it (Ubuntu: \
the component universe), or install it by other means"
    wanted+=("$package")
  done
  for line in "${missing_optional[@]}"; do
    package=${line%%|*}
    if is_available "$package"; then
      wanted+=("$package")
    else
      say "Not in this system's package sources: $package (optional). Going on without it."
    fi
  done
  if ((${#wanted[@]} == 0)); then return; fi
  local install=(install --yes --no-install-recommends "${wanted[@]}")
  say "Installing: ${as_root[*]:+${as_root[*]} }apt-get ${install[*]} ..."
  if ! quiet_apt "${install[@]}"; then
    update_package_lists # the lists may name versions that the mirror has replaced
    quiet_apt "${install[@]}" || fail_with_log "$build/apt.log" "apt-get install failed"
  fi
}

ensure_packages() {
  find_missing "$1"
  local missing=("${missing_required[@]}" "${missing_optional[@]}") going_without=$build/going-without
  if ((${#missing[@]} == 0)); then return; fi
  if ((${#missing_required[@]} == 0)) && [[ $(packages_of "${missing[@]}") == "$(cat "$going_without" 2>/dev/null)" ]]; then
    return # said before, and nothing could be done
  fi
  say "On $(system_name) gable needs what is not installed yet:"
  list_needs "${missing[@]}"
  if has_apt; then
    install_missing
  else
    say "This system has no apt, so nothing is installed for you (the names are Debian's). Trying to build as it is."
  fi
  find_missing "$1"
  packages_of "${missing_optional[@]}" >"$going_without"
}
