#!/usr/bin/env bash
# Says everything that this machine lacks for `make install`, before anything is downloaded.
# usage: check_machine.sh <python> <target>
set -euo pipefail

python=$1
target=$2
problems=()

case "$target" in
cpu | gpu) ;;
*) problems+=("TARGET is cpu or gpu, not '$target'") ;;
esac

[[ "$(uname -s)-$(uname -m)" == Linux-x86_64 ]] || problems+=("vLLM's builds are for Linux on x86-64, this is $(uname -s)-$(uname -m)")

if [[ -z "$python" ]] || ! command -v "$python" >/dev/null; then
    problems+=("Python 3.11 or 3.12 not found${python:+ (looked for $python)}: install one, or name it with PYTHON=/path/to/python3.12")
elif ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
    version=$("$python" --version 2>/dev/null) || version="not a Python that runs"
    problems+=("$python is $version, but Python 3.11 or 3.12 is needed: name one with PYTHON=/path/to/python3.12")
else
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        problems+=("$python cannot make virtual environments: install its venv module (Debian, Ubuntu: python3-venv)")
    header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
    [[ -e "$header" ]] ||
        problems+=("$header is missing, vLLM compiles against it: install Python's headers (Debian, Ubuntu: python3-dev)")
fi

# torch compiles a few functions of vLLM's sampler when they first run.
command -v "${CXX:-g++}" >/dev/null ||
    problems+=("no C++ compiler (${CXX:-g++}): install g++ (Debian, Ubuntu: build-essential), or name yours in CXX")

if ((${#problems[@]})); then
    echo "This machine is not ready:" >&2
    printf '  - %s\n' "${problems[@]}" >&2
    exit 2
fi
