"""The end of every run: heal, stop, save and tear down; each step is tried, also when others failed."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from harness.core.errors import ShatterError
from harness.core.progress import phase
from harness.run.state import Stage
from harness.topology.clusters import NodeRole, NodeState

HEAL_S = 60.0


def wind_up(stage: Stage, *, salvage: bool, check: Callable[[], object]) -> None:
    """Leave nothing running. salvage: capture evidence, if there is none yet, as far as the clusters still answer.
    check: called before that; notes what could not be healed."""
    sampler = stage.sampler
    for conductor in (stage.conductor, stage.waiting):
        if conductor is not None:
            _try(stage, "heal", partial(conductor.heal_all, timeout_s=HEAL_S))
    _try(stage, "stop the clients", stage.stop_load)
    if sampler is not None:
        _try(stage, "stop sampling", sampler.stop)
    if salvage and stage.started is not None and not stage.captured:
        if not stage.interrupts.hurried:
            _try(stage, "check what was healed", check)
        _try(stage, "capture evidence", lambda: _salvage(stage))
    _try(stage, "write what was recorded", stage.recorder.flush)
    for mirror in stage.mirrors.values():
        _try(stage, "close the mirror's clients", mirror.close)
    _try(stage, "take down", lambda: _take_down(stage))


def dump_threads(stage: Stage) -> None:
    """After a wait that timed out: store the stacks of all threads. Nodes print theirs to their logs."""
    logs = stage.folder / "logs"
    with suppress(OSError):
        logs.mkdir(exist_ok=True)
        with (logs / "harness-threads.txt").open("w") as file:
            faulthandler.dump_traceback(file)
    for node in stage.started.nodes() if stage.started is not None else ():
        if node.role is not NodeRole.PROXY:
            with suppress(ShatterError):
                if node.state() is NodeState.RUNNING:
                    node.signal("SIGQUIT")


def _salvage(stage: Stage) -> None:
    """Copy what the clusters still hold. A second signal may end this, because it changes nothing on them."""
    try:
        with stage.interrupts.exposed("leaving out the copying of evidence", spared=1), phase(stage.display, "save"):
            stage.capture()
    except KeyboardInterrupt:
        stage.note("evidence was not copied to the end: a second signal came")


def _take_down(stage: Stage) -> None:
    topology = stage.started
    if topology is None:
        return
    if stage.keep:
        topology.save_logs(stage.folder / "logs")
        topology.detach()
        stage.note(f"kept: `shatter down --name {stage.folder.name}` takes it down")
        return
    with phase(stage.display, "tear down"):
        topology.stop()


def _try(stage: Stage, what: str, step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:
        with suppress(Exception):  # a note that cannot be stored must not stop the tear-down
            stage.note(f"could not {what}: {error}")
