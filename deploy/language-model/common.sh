# Shared by the scripts in this folder; sourced, not run.
# shellcheck shell=bash

# shellcheck disable=SC2034 # the scripts that source this read it
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
me=deploy/language-model/$(basename "$0")

die() {
  printf '%s: %s\n' "$me" "$1" >&2
  exit "${2:-1}"
}

# die for wrong usage
usage_error() {
  die "$1 (try $me --help)" 2
}

# llama.cpp's server as a Python package, which holds the compiled library and has no dependencies.
# shellcheck disable=SC2034 # the scripts that source this read it
package=xllamacpp version=2026.10.11549
home=${TURNSTREAM_LANGUAGE_MODEL_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/turnstream/language-model/$version}
[[ $home == /* ]] || home=$PWD/$home
python=${PYTHON:-python3}

need_python() {
  command -v "$python" >/dev/null || die "no $python found; install Python 3.10 or newer with pip"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$package needs Python 3.10 or newer; name one with PYTHON=..."
}

# Succeeds if the server is installed. `complete` is written last, so an interrupted fetch leaves none.
is_there() {
  [[ -f $home/complete ]]
}
