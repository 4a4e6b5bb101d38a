"""How many events per second the recorder takes: `python bench/bench_recorder.py [--threads N] [--seconds S]`.

Each thread records send operations of 1-4 records as fast as it can (an invoke and an ok, records on both);
prints one JSON line with events, operations and records per second, files per minute, and the backlog left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path

from harness.history.ops import Action, F, OpRecord, OpType
from harness.history.recorder import RunRecorder


def client(recorder: RunRecorder, number: int, until: float, counts: list[int]) -> None:
    """Record send operations until the time is up."""
    done = 0
    process = f"p{number}"
    while time.monotonic() < until:
        for i in range(100):
            size = 1 + (i & 3)
            sent = [OpRecord(Action.SEND, "t", i & 7, None, f"{process}-{done}-{i}-{k}") for k in range(size)]
            index = recorder.invoke(process, F.SEND, cluster="A", client=f"{process}.0", records=sent)
            acked = [r._replace(offset=done + k) for k, r in enumerate(sent)]
            recorder.complete(index, OpType.OK, records=acked)
        done += 100
    counts[number] = done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shatter-bench-"))
    try:
        counts = [0] * options.threads
        recorder = RunRecorder(folder / "run")
        start, cpu = time.monotonic(), time.process_time()
        threads = [
            threading.Thread(target=client, args=(recorder, n, start + options.seconds, counts))
            for n in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - start
        closing = time.monotonic()
        recorder.close()
        closing = time.monotonic() - closing
        files = len(list((folder / "run").glob("*/part-*.parquet")))
        print(
            json.dumps(
                {
                    "threads": options.threads,
                    "events_per_s": round(2 * sum(counts) / took),
                    "operations_per_s": round(sum(counts) / took),
                    "records_per_s": round(5 * sum(counts) / took),
                    "cpu_seconds_per_wall_second": round((time.process_time() - cpu) / (took + closing), 2),
                    "files_per_minute": round(files / (took + closing) * 60),
                    "close_s": round(closing, 2),
                }
            )
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
