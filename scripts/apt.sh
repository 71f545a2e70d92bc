#!/usr/bin/env bash
# Installs Debian packages if this user may: as root, or with sudo that asks no password.
#   scripts/apt.sh PACKAGE...
# Fails without a word otherwise; the caller knows what to tell the user.
set -euo pipefail

command -v apt-get >/dev/null || exit 1
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || exit 1
  as_root=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends "$@" >>"$log" 2>&1; }

# The package lists may be older than the archive, or absent: refresh them only when they fail.
if ! apt install "$@"; then
  apt update || true
  apt install "$@" || { tail -n 5 "$log" >&2; exit 1; }
fi
