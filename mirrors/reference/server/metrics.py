"""The metrics of one process, as Prometheus text. Reading them sends nothing to the clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.states import PartitionState

_STATUS: Final = Path("/proc/self/status")
_KIB: Final = 1024

Samples = Iterable[tuple[Mapping[str, str], float]]


def memory(status: str) -> tuple[int, int]:
    """(resident bytes now, their peak) out of /proc/PID/status; 0 where it does not say."""
    found = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * _KIB
    return found["VmRSS"], found["VmHWM"]


def render(families: Mapping[str, tuple[str, str, Samples]]) -> str:
    """Name → (type, help, samples) as text."""
    lines = []
    for name, (kind, text, samples) in families.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            inner = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            lines.append(f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """The metric families of one process. memory_bytes, fetcher_threads, fetch_response_max_bytes and mirror_partitions
    are what the checker `memory` judges: a fetcher here is a follower's session."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._life = lifecycle

    def text(self) -> str:
        """All of them now."""
        life, hub = self._life, self._life.hub
        now, peak = memory(_STATUS.read_text() if _STATUS.exists() else "")
        own = [record for record in life.records.values() if record.owner == hub.me]
        states = Counter(record.state for record in own)
        plain: dict[str, tuple[str, str, float]] = {
            "memory_bytes": ("gauge", "Resident memory.", now),
            "memory_peak_bytes": ("gauge", "Largest resident memory since the start.", peak),
            "fetcher_threads": ("gauge", "Followers' fetch sessions.", len(list(hub.sessions))),
            "fetch_response_max_bytes": ("gauge", "Limit of bytes held per follower's session.", hub.settings.budget),
            "mirror_partitions": ("gauge", "Partitions of mirrors that this process has.", len(own)),
            "bytes_held": ("gauge", "Fetched ahead, over all followers.", hub.bytes_held),
            "bytes_fetched_total": ("counter", "Fetched from sources.", hub.counters.bytes_fetched),
            "fetches_answered_total": ("counter", "Followers' fetches answered.", hub.counters.fetches_answered),
        }
        families: dict[str, tuple[str, str, Samples]] = {
            name: (kind, text, [({}, value)]) for name, (kind, text, value) in plain.items()
        }
        families["partitions"] = (
            "gauge",
            "Partitions by state.",
            [({"state": str(state)}, states.get(state, 0)) for state in PartitionState],
        )
        families["partition_lag"] = ("gauge", "Records behind the source's last answer.", self._lags())
        families["partition_bytes_fetched_total"] = (
            "counter",
            "Fetched per partition.",
            [({"partition": name}, size) for name, size in sorted(hub.counters.bytes_by_partition.items())],
        )
        families["state_records_written_total"] = (
            "counter",
            "Records written to each partition of the state topic.",
            [({"partition": str(p)}, count) for p, count in sorted(life.store.written.items())],
        )
        return render(families)

    def _lags(self) -> Samples:
        for key in sorted(self._life.records):
            mirrored = self._life.mirrored(key)
            if mirrored is None or mirrored.led.high_watermark is None or not mirrored.view.known:
                continue
            lag = mirrored.view.high_watermark - mirrored.led.shifts.source(mirrored.led.high_watermark)
            labels = {"mirror": key.mirror, "topic": key.topic, "partition": str(key.partition)}
            yield labels, max(0, lag)
