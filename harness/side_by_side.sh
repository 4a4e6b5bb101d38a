#!/bin/sh
# Usage: side_by_side.sh COMMAND COMMAND. Runs both at once: the first in the background, what it prints is shown at the
# end. Exits with the second's code when it fails, else with the first's. Ctrl-C goes to the second; the first is ended.
set -u
told=$(mktemp)
sh -c "exec $1" >"$told" 2>&1 &
first=$!
finish() {
  kill "$first" 2>/dev/null
  cat "$told"
  rm -f "$told"
}
trap finish EXIT
trap : INT TERM
sh -c "exec $2"
second_code=$?
[ "$second_code" -ge 128 ] && exit "$second_code"
wait "$first"
first_code=$?
[ "$second_code" -ne 0 ] && exit "$second_code"
exit "$first_code"
