"""Stories of assignments: each shows exactly its kinds with its fault and none without; judged as a small and as a
large history. Also Jepsen's assignments, and those of our own consumers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import told_assigned
from jsonl_story import Pack
from literal import History
from pyspark.sql import SparkSession

from checkers.clients.poll_order import CHECKER
from checkers.judge.judge import judge
from checkers.views.tables import Tables
from harness.history.edn.importer import export_edn, import_edn

PACK: Pack = told_assigned.ASSIGNED
Found = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module", params=["small", "sieved"])
def layout(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sieved":
            patch.setattr("checkers.views.tables.SMALL_ROWS", 0)
            patch.setattr("checkers.prefilter.spans.SPAN_ROWS", 8)
        yield request.param


@pytest.fixture(scope="module")
def found(layout: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return PACK.judged(spark, tmp_path_factory.mktemp(layout))


@pytest.mark.parametrize("story", PACK.told())
def test_story(found: Found, story: str) -> None:
    assert set(found[story]) == PACK.expected(story), found[story]


def test_nothing_else_is_named(found: Found) -> None:
    assert set(found) == set(PACK.told())


# -- Jepsen's assignments replace each other --------------------------------------------------------------------------

JEPSEN: dict[str, tuple[tuple[str, ...], set[str]]] = {
    # (assignments and reads of one consumer, K: the story's own partition, L: another), what is found in K
    "kept": (("[K]", "0-0", "[K L]", "1-3"), set()),
    "kept_skips": (("[K]", "0-0", "[K L]", "2-3"), {"poll_skip"}),
    "kept_twice_skips": (("[K]", "0-0", "[K L]", "[L K]", "2-3"), {"poll_skip"}),
    "kept_goes_back": (("[K]", "0-1", "[K L]", "0-3"), {"nonmonotonic_poll"}),
    "given_up_between": (("[K]", "0-0", "[L]", "[K]", "2-3"), set()),
    "never_begun": (("[L]", "[L K]", "2-3"), set()),
    "sought_to_the_beginning": (("[K]", "0-1", "[K L] :seek-to-beginning? true", "0-3"), set()),
    "sought_and_skips": (("[K] :seek-to-beginning? true", "2-3"), {"poll_skip"}),
    "sought_while_kept_and_skips": (("[K]", "0-1", "[K L] :seek-to-beginning? true", "2-3"), {"poll_skip"}),
    "crashed_between": (("[K]", "0-0", "crash", "[K]", "2-3"), set()),
    "subscribed_between": (("[K]", "0-0", "subscribe [K]", "[K]", "2-3"), set()),
}


def jepsen() -> str:
    """All stories as one history: each has its own process and two partitions, and a reader of everything."""
    lines: list[str] = []

    def op(process: int, f: str, rest: str, asked: str | None = None) -> None:
        for type_, more in (("invoke", rest if asked is None else asked), ("ok", rest)):
            at = len(lines)
            lines.append(f"{{:index {at} :time {at * 1000} :type :{type_} :process {process} :f :{f} :value {more}}}")

    for number, (steps, _) in enumerate(JEPSEN.values()):
        mine = 2 * number
        values = [10 * number + n + 1 for n in range(4)]
        for n, value in enumerate(values):
            op(100, "send", f"[[:send {mine} [{n} {value}]]]", f"[[:send {mine} {value}]]")

        def poll(process: int, first: int, last: int, mine: int = mine, values: list[int] = values) -> None:
            pairs = " ".join(f"[{n} {values[n]}]" for n in range(first, last + 1))
            op(process, "poll", f"[[:poll {{{mine} [{pairs}]}}]]", "[[:poll]]")

        poll(101 + number, 0, 3)
        for step in steps:
            names = step.replace("K", str(mine)).replace("L", str(mine + 1))
            if "-" in step and step[0].isdigit():
                poll(number, *map(int, step.split("-")))
            elif step == "crash":
                op(number, "crash", "nil")
            elif step.startswith("subscribe"):
                op(number, "subscribe", names.removeprefix("subscribe "))
            else:
                op(number, "assign", names)
    return "\n".join(lines) + "\n"


def kinds(run: Path, spark: SparkSession) -> dict[int, set[str]]:
    """partition → kinds found."""
    judge(run, "kafka-clean", spark)
    found: dict[int, set[str]] = {}
    if (run / "results" / "anomalies").exists():
        for row in spark.read.parquet(str(run / "results" / "anomalies")).collect():
            found.setdefault(row["partition"], set()).add(row["kind"])
    return found


def test_partitions_that_stay_assigned_keep_their_position(layout: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(jepsen(), encoding="utf-8")
    run = import_edn(tmp_path / "history.edn", tmp_path / "run")
    right = {2 * n: wanted for n, (_, wanted) in enumerate(JEPSEN.values()) if wanted}
    assert kinds(run, spark) == right
    if layout == "small":
        export_edn(run, tmp_path / "exported.edn")
        assert kinds(import_edn(tmp_path / "exported.edn", tmp_path / "again"), spark) == right


# -- our own consumers ------------------------------------------------------------------------------------------------


def ours(h: History, topic: str, first: int, *, base: int = 0, expired: bool = False) -> None:
    """One of our consumers is assigned a topic at its log start and reads from an offset on."""
    h.send("p", "A", topic, 0, *(f"{topic}{n}" for n in range(4)), offset=base)
    h.poll("audit", "A", topic, 0, *((base + n, f"{topic}{n}") for n in range(4)))
    records = [{"action": "assign", "topic": topic, "partition": 0, "offset": None}]
    columns = {"cluster": "A", "client": f"client-{topic}"}
    if not expired:
        h.log("A", topic, 0, *((base + n, f"{topic}{n}") for n in range(4)), leader=-1)
    invoke = h.event(f"c-{topic}", "invoke", "assign", records, **columns)
    h.event(f"c-{topic}", "ok", "assign", records, invoke_index=invoke, **columns)
    h.poll(f"c-{topic}", "A", topic, 0, *((base + n, f"{topic}{n}") for n in range(first, 4)), client=f"client-{topic}")
    if expired:
        h.log("A", topic, 0, *((base + n, f"{topic}{n}") for n in range(first, 4)), log_start=base + first)


def member(h: History, topic: str, first: int, *, reset: str = "earliest", committed: int | None = 1) -> None:
    """A member of one of our groups: it is assigned by a rebalance, then fetches its group's offset."""
    h.send("p", "A", topic, 0, *(f"{topic}{n}" for n in range(4)), offset=0)
    h.poll("audit", "A", topic, 0, *((n, f"{topic}{n}") for n in range(4)))
    h.log("A", topic, 0, *((n, f"{topic}{n}") for n in range(4)))
    columns = {"cluster": "A", "group": f"g-{topic}", "reset": reset}
    place = {"topic": topic, "partition": 0}
    if committed is not None:
        done = [{"action": "commit", **place, "offset": committed}]
        invoke = h.event(f"admin-{topic}", "invoke", "commit_offset", done, **columns)
        h.event(f"admin-{topic}", "ok", "commit_offset", done, invoke_index=invoke, **columns)
    moved = [{"action": "rebalance", **place}]
    for f, asked, answer in (
        ("subscribe", [], []),
        ("assign", moved, moved),
        ("fetch_offset", [{"action": "fetch", **place}], [{"action": "fetch", **place, "offset": committed}]),
    ):
        invoke = h.event(f"m-{topic}", "invoke", f, asked, **columns)
        h.event(f"m-{topic}", "ok", f, answer, invoke_index=invoke, **columns)
    read = ((n, f"{topic}{n}") for n in range(first, 4))
    h.poll(f"m-{topic}", "A", topic, 0, *read, group=f"g-{topic}", reset=reset)


def test_our_own_consumers_begin_where_their_role_says(layout: str, spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="shatter", clusters={"A": {}})
    ours(h, "from-the-start", 0)
    ours(h, "late", 2)
    ours(h, "high", 0, base=10**12)
    ours(h, "high-and-late", 1, base=10**12)
    ours(h, "expired", 2, expired=True)
    member(h, "committed", 1)
    member(h, "committed-and-late", 2)
    member(h, "nothing", 0, committed=None)
    member(h, "nothing-and-late", 1, committed=None)
    member(h, "nothing-and-latest", 3, committed=None, reset="latest")
    tables = Tables.open(h.write(tmp_path / "run"), spark)
    try:
        frame = CHECKER.check(tables)
        assert frame is not None
        found = sorted((r.topic, r.kind, r.form, r.offset) for r in frame.collect())
    finally:
        tables.close()
    assert found == [
        ("committed-and-late", "poll_skip", "assigned", 1),
        ("high-and-late", "poll_skip", "assigned", 10**12),
        ("late", "poll_skip", "assigned", 1),
        ("nothing-and-late", "poll_skip", "assigned", 0),
    ]
