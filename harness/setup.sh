#!/bin/sh
# Makes the virtual environment with the locked dependencies. Installs Python's venv module on Debian and Ubuntu.
set -eu
venv=$1

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    if usable "$name"; then echo "$name"; return; fi
  done
  return 1
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

if ! python=$(find_python); then
  if can_install; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null
  fi
  python=$(find_python) || {
    echo "shatterproof needs Python 3.11 or newer; install it and name it with PYTHON=..., then run make again" >&2
    exit 1
  }
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if can_install; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" >/dev/null
  else
    echo "Python's venv module is missing; install it (Debian, Ubuntu: apt-get install python3-venv), then run make again" >&2
    exit 1
  fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing the locked Python packages into $venv (a minute or two the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e .
