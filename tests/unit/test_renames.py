"""Which topic mirrors which under another name: recorded, inferred from values and names, or only similar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import HistoryError
from harness.history.edn.importer import import_edn
from harness.history.jsonl.importer import import_jsonl
from harness.history.renames import SAMPLE, RenameError, Renames, TopicNames
from harness.history.runmeta import RunMeta
from harness.history.store import open_run

pytestmark = pytest.mark.unit


def names(*, sent: str = "", shown: str = "") -> TopicNames:
    """`A/t=v` for a value sent to, or shown by, a topic of a cluster; `A/t` for a topic that is only mentioned."""
    found = TopicNames()
    for what, events in ((found.sent, sent), (found.shown, shown)):
        for event in events.split():
            place, _, value = event.partition("=")
            cluster, _, topic = place.partition("/")
            if value:
                what(cluster, topic, value)
            else:
                found.mentioned(cluster, topic)
    return found


def on_b(renames: Renames) -> dict[str, str]:
    return {here: there for here, there in renames.topic_maps.get("B", {}).items() if here != there}


@pytest.mark.parametrize(
    ("sent", "shown", "expected"),
    [
        ("A/t=v", "B/A.t=v", {"t": "A.t"}),  # by values and by name
        ("A/t=v", "B/A.t", {"t": "A.t"}),  # by name alone
        ("A/t=v", "B/A.t=w", {"t": "A.t"}),  # a value without a known sender
        ("A/t=v", "B/east.t=v", {"t": "east.t"}),  # by values alone
        ("A/t=v", "B/east.t=w", {}),
        ("A/t=v", "B/copied=v", {}),  # no rule gives that name: records are misplaced there
        ("A/t=v B/A.t=w", "B/A.t=w", {}),  # a topic of B's clients
        ("A/t=v B/A.t=w", "B/A.t=w B/A.t=v", {"t": "A.t"}),  # written to by both
        ("A/t=v A/u=w", "B/A.t=w B/A.u=v", {}),  # all in the wrong one
        ("A/t=v A/A.t=w", "B/t=v B/A.t=w", {}),  # names are kept
        ("A/t=v A/A.t=w", "B/t B/A.t", {}),
        ("A/t=v", "B/t=v B/A.t", {}),  # its mirror keeps the name
        ("", "A/t=v B/t=v B/A.t=w", {}),  # unknown which of the two mirrors it
        ("A/t=v A/A.t=w", "B/A.t=v B/A.A.t=w", {"t": "A.t", "A.t": "A.A.t"}),
        ("A/t=v B/t=w", "B/A.t=v B/t=w", {"t": "A.t", "B.t": "t"}),  # t of B is another topic
        ("A/t=v B/t=w", "B/A.t=v A/B.t=w", {"t": "A.t", "B.t": "t"}),
        ("A/a.b.t=v", "B/A.a.b.t=v", {"a.b.t": "A.a.b.t"}),
        ("A/t=v", "A/A.t=v", {}),  # on the same cluster
        ("A/t=v", "B/t=v", {}),
    ],
)
def test_what_is_inferred(sent: str, shown: str, expected: dict[str, str]) -> None:
    renames = names(sent=sent, shown=shown).renames()
    assert on_b(renames) == expected
    assert bool(renames.notes) == bool(expected)


def test_along_a_chain() -> None:
    for shown in ("B/A.t=v C/B.A.t=v", "B/A.t C/B.A.t", "B/A.t=v C/B.A.t", "B/A.t C/B.A.t=v"):
        renames = names(sent="A/t=v", shown=shown).renames()
        assert renames.topic_maps == {"B": {"t": "A.t"}, "C": {"t": "B.A.t"}}, shown
        assert renames.topic_map == {"t": "A.t"}


def test_topics_of_a_that_are_mirrored() -> None:
    """Topics that keep their name are mirrored too; B's own topics, and A's mirrors of them, are not."""
    renames = names(sent="A/t=v A/u=w B/t=x", shown="B/A.t=v B/u=w A/B.t=x").renames()
    assert renames.topic_map == {"t": "A.t", "u": "u"}
    meta = RunMeta(run_id="r", topic_map=renames.topic_map, topic_maps=renames.topic_maps)
    assert [meta.topic_on("B", topic) for topic in ("t", "B.t", "u", "x")] == ["A.t", "t", "u", "x"]


def test_values_beyond_the_sample_are_ignored() -> None:
    found = TopicNames()
    for number in range(SAMPLE + 1):
        found.sent("A", "t", f"v{number}")
    found.shown("B", "east.t", f"v{SAMPLE}")
    assert on_b(found.renames()) == {}
    found.shown("B", "east.t", f"v{SAMPLE - 1}")
    assert on_b(found.renames()) == {"t": "east.t"}


def test_recorded_names_take_precedence() -> None:
    found = names(sent="A/t=v", shown="B/A.t=v")
    found.note_mirror("A", "t", "B", "copied")
    assert on_b(found.renames()) == {"t": "copied"}
    kept = names(sent="A/t=v A/A.t=w", shown="B/A.t=v")
    kept.note_mirror("A", "A.t", "B", "A.t")
    assert kept.renames() == Renames()
    with pytest.raises(RenameError, match="copied on B cannot mirror u on A: the history says that it mirrors t on A"):
        found.note_mirror("A", "u", "B", "copied")
    with pytest.raises(RenameError, match="have a second mirror other on B: the history names its mirror copied"):
        found.note_mirror("A", "t", "B", "other")
    with pytest.raises(RenameError, match="both on B"):
        found.note_mirror("B", "t", "B", "copied")


def run_json(folder: Path, *events: dict[str, Any]) -> RunMeta:
    file = folder / "h.jsonl"
    lines = [{"index": n, "process": "p", "type": "ok", "time": n, **event} for n, event in enumerate(events)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_run(import_jsonl(file, folder / "run")).meta


SENT: dict[str, Any] = {"f": "send", "cluster": "A", "topic": "t", "partition": 0, "value": "v", "offset": 0}


@pytest.mark.parametrize(
    "told",
    [
        {"f": "topic_map", "value": {"t": "copied"}},
        {"f": "topic_map", "cluster": "B", "source": "A", "value": {"t": "copied"}},
        {"f": "mirror_start", "topic": "copied", "source_topic": "t"},
        {"f": "mirror_state", "cluster": "B", "source": "A", "topic": "copied", "partition": 0, "source_topic": "t"},
        {"f": "log_dump", "cluster": "B", "topic": "copied", "partition": 0, "source_topic": "t", "value": []},
    ],
)
def test_names_in_json_lines(tmp_path: Path, told: dict[str, Any]) -> None:
    meta = run_json(tmp_path, SENT, told)
    assert (meta.topic_map, meta.notes) == ({"t": "copied"}, [])


def test_names_inferred_from_json_lines_are_reported(tmp_path: Path) -> None:
    polled = {"f": "poll", "cluster": "B", "topic": "A.t", "partition": 0, "value": [[0, "v"]]}
    meta = run_json(tmp_path, SENT, polled)
    assert (meta.topic_map, meta.topic_maps) == ({"t": "A.t"}, {"B": {"t": "A.t"}})
    (note,) = meta.notes
    assert note.startswith("topic A.t on B is taken for the mirror of t on A, by its name and its records; a line of")


def test_sends_of_a_mirror_are_not_a_clients(tmp_path: Path) -> None:
    copied = {**SENT, "process": "mm2-1", "cluster": "B", "topic": "A.t"}
    assert run_json(tmp_path, SENT, copied).topic_map == {"t": "A.t"}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"f": "topic_map", "value": ["t"]}, r"line 2: expected f \"topic_map\" to have a field \"value\" \(an object"),
        ({"f": "topic_map", "value": {"t": 5}}, "both strings"),
        ({"f": "topic_map", "cluster": "B", "source": "X", "value": {}}, 'field "source" of f "topic_map" to be A'),
        ({"f": "topic_map", "cluster": "B", "source": "B", "value": {"t": "u"}}, "t and u are both on B"),
        ({"f": "topic_map", "value": {"t": "x", "u": "x"}}, "x on B cannot mirror u on A"),
        ({"f": "mirror_start", "source_topic": "t"}, r"to have a field \"topic\" \(a string: the name on its cluster"),
    ],
)
def test_impossible_names_are_refused(tmp_path: Path, told: dict[str, Any], words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        run_json(tmp_path, SENT, told)


def test_edn_is_read_in_the_same_way(tmp_path: Path) -> None:
    file = tmp_path / "h.edn"
    file.write_text(
        '{:type :ok :process 0 :f :send :value [[:send ["t" 0] [0 1]]]}\n'
        '{:type :ok :process 1 :f :poll :cluster "B" :value [[:poll {["A.t" 0] [[0 1]]}]]}\n'
    )
    assert open_run(import_edn(file, tmp_path / "run")).meta.topic_map == {"t": "A.t"}
