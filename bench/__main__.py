"""`python -m bench` measures everything; `python -m bench NAME` one part of it: see PARTS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

PARTS: Mapping[str, tuple[str, ...]] = {
    "provision": ("bench.provision",),
    "recorder": ("bench.bench_recorder",),
    "recording": ("bench.recording",),
    "check": ("bench.check",),
    "mirror": ("bench.mirror",),
}


def main(arguments: list[str]) -> int:
    """Run the parts that were named, or all; the first that fails ends it."""
    name, rest = (arguments[0], arguments[1:]) if arguments else (None, [])
    if name is not None and name not in PARTS:
        print(f"no measurement is called {name!r}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 254
    for part in [name] if name else list(PARTS):
        print(f"== {part}", flush=True)
        code = subprocess.call([sys.executable, "-m", *PARTS[part], *rest])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
