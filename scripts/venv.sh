#!/usr/bin/env bash
# Makes the virtual environment FOLDER with PYTHON, unless a usable one is there.
#   scripts/venv.sh PYTHON FOLDER
set -euo pipefail
python=$1 folder=$2

modern() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if modern "$folder/bin/python" && "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
  exit
fi
if ! modern "$python"; then
  echo "StreamJoin needs Python 3.11 or newer: install one, or name it, as in: make PYTHON=python3.12 setup" >&2
  exit 1
fi
# Debian ships Python without the part of venv that brings pip.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "This Python cannot make virtual environments yet: installing python3-venv ..." >&2
  here=$(dirname "$0")
  "$here/apt.sh" "python$version-venv" 2>/dev/null || "$here/apt.sh" python3-venv || true
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "Python's venv module is not complete: install python3-venv (Debian, Ubuntu) and run this again." >&2
    exit 1
  fi
fi
"$python" -m venv --clear "$folder"
