"""Runs a schedule against a topology: inject each fault at its time, hold, heal; all recorded, all bounded.

One thread per live fault. An error of a fault is recorded and ends that fault, never the run. On `stop` no new fault
begins, waits are cut short, and live faults stay until `heal_all`, which undoes them in reverse order of injection,
whatever happened to the threads. Faults of a scenario's moments begin and end when `reach` is called for these.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from harness.core.clock import Clock
from harness.core.errors import StorageError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.history.recording import Recorder
from harness.topology.topology import Topology
from nemeses import REGISTRY
from nemeses.base import FaultSpec, Nemesis
from nemeses.engine.health import LEAST_S, bounded, check
from nemeses.engine.outcomes import FaultOutcome, FaultState, Healing
from nemeses.engine.running import Fault
from nemeses.reservations import Reservations

HEALTH_FAULT_ID = -1  # the row of table `faults` with the outcome of healing everything
THREADS_S = 15.0  # for threads to notice that the run is ending


class Conductor:
    """Use as a context manager, or call `heal_all` yourself: nothing else undoes live faults at the end."""

    def __init__(
        self,
        *,
        topology: Topology,
        recorder: Recorder,
        clock: Clock,
        schedule: Sequence[FaultSpec],
        registry: Mapping[str, Nemesis] = REGISTRY,
    ) -> None:
        self._topology, self._recorder, self._clock = topology, recorder, clock
        self._registry = registry
        self._stop = threading.Event()
        self._reservations = Reservations()
        self._lock = threading.RLock()
        self._order: list[Fault] = []  # in order of injection
        self._outcomes = {spec.fault_id: FaultOutcome(spec=spec, state=FaultState.WAITING) for spec in schedule}
        self._schedule = sorted(schedule, key=lambda spec: spec.at_s)
        self._step_errors: list[str] = []  # of faults that could not be healed at their moment
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._conduct, name="nemeses", daemon=True)
        self._crash: str | None = None
        self._healing: Healing | None = None
        self._healing_lock = threading.Lock()

    def __enter__(self) -> Conductor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal_all()

    def start(self) -> None:
        """Begin: the schedule's time 0 is now. Returns at once."""
        self._main.start()

    def stop(self) -> None:
        """Begin no new fault and cut waits short. Returns at once; `heal_all` undoes live faults."""
        self._stop.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until every fault is over (or, after `stop`, left alone) or the time is up; returns whether they are."""
        deadline = time.monotonic() + timeout_s
        if self._main.ident is not None:
            self._main.join(timeout_s)
        for thread in self._threads_now():
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in (self._main, *self._threads_now()))

    def ending(self, moment: str) -> bool:
        """Whether a fault is to be healed at this moment of the scenario."""
        return any(f.spec.until == moment and not f.over for f in self._begun())

    def beginning(self, moment: str) -> bool:
        """Whether a fault is to begin at this moment of the scenario."""
        return any(o.spec.at_step == moment and o.state is FaultState.WAITING for o in self.outcomes())

    def reach(self, moment: str, *, timeout_s: float = 180.0) -> tuple[str, ...]:
        """A moment of the scenario: heal what lasts until it, then inject what begins at it, and wait until that has
        bit, or could not be done. Returns what went wrong with the healing. Never raises for failures."""
        deadline = time.monotonic() + timeout_s
        errors: list[str] = []
        for fault in reversed(self._begun()):
            if fault.spec.until == moment and not fault.over:
                errors += self._finish(fault, max(LEAST_S, deadline - time.monotonic()))
        self._step_errors += errors
        begun = [o.spec for o in self.outcomes() if o.spec.at_step == moment and o.state is FaultState.WAITING]
        for spec in begun:
            self._launch(spec)
        with suppress(WaitTimeoutError):  # its outcome stays INJECTING
            wait_until(
                lambda: not self._pending(begun),
                timeout_s=max(LEAST_S, deadline - time.monotonic()),
                what=f"the faults of moment {moment} to be injected",
            )
        return tuple(errors)

    def _pending(self, specs: Sequence[FaultSpec]) -> bool:
        """Whether any of these is not injected yet."""
        states = {self._outcomes[spec.fault_id].state for spec in specs}
        return bool(states & {FaultState.WAITING, FaultState.INJECTING}) and not self._stop.is_set()

    def _begun(self) -> list[Fault]:
        """The faults that were begun, in order."""
        with self._lock:
            return list(self._order)

    def outcomes(self) -> tuple[FaultOutcome, ...]:
        """The current outcome of each fault, in the schedule's order. Never blocks for long."""
        with self._lock:
            return tuple(self._outcomes[spec.fault_id] for spec in self._schedule)

    def bites(self) -> int:
        """How many faults were proven to take effect so far."""
        return sum(outcome.bit is True for outcome in self.outcomes())

    @property
    def healing(self) -> Healing | None:
        """How the last `heal_all` ended; None before the first."""
        return self._healing

    def error(self) -> str | None:
        """Why the conductor itself ended early; None when it did not."""
        return self._crash

    def heal_all(self, *, timeout_s: float = 180.0) -> Healing:
        """End it: stop, undo live faults in reverse order, check whether everything is healthy, record that.

        Never raises for failures; a second call returns the first one's result once everything is undone.
        """
        with self._healing_lock:
            if self._healing is not None and all(fault.over for fault in self._order):
                return self._healing
            self._healing = self._heal_everything(time.monotonic() + timeout_s)
            return self._healing

    def _heal_everything(self, deadline: float) -> Healing:
        self.stop()
        errors = [*self._step_errors] if self._crash is None else [*self._step_errors, self._crash]
        self.wait(min(THREADS_S, max(1.0, (deadline - time.monotonic()) / 4)))
        with self._lock:
            faults = list(reversed(self._order))
        for fault in faults:
            if fault.over:
                continue
            errors += self._finish(fault, max(LEAST_S, deadline - time.monotonic()))
        self._skip_waiting()
        health = check(self._topology, timeout_s=max(LEAST_S, deadline - time.monotonic()))
        errors += [error for fault in faults for error in fault.recording_errors]
        healing = Healing(errors=tuple(errors), health=health)
        self._record_health(healing)
        return healing

    def _finish(self, fault: Fault, timeout_s: float) -> list[str]:
        name = f"fault {fault.spec.fault_id} ({fault.spec.nemesis})"
        try:
            error = bounded(fault.finish, timeout_s=timeout_s, what=f"heal {name}")
        except Exception as failure:
            error = f"{name}: {failure}"
            with suppress(Exception):  # report only the first error
                bounded(fault.force, timeout_s=THREADS_S, what=f"give up {name}")
        return [error] if error else []

    def _conduct(self) -> None:
        try:
            begin_ns = self._clock.now_ns()
            for spec in self._schedule:
                if spec.at_step:
                    continue
                passed_s = (self._clock.now_ns() - begin_ns) / 1e9
                if self._stop.wait(max(0.0, spec.at_s - passed_s)):
                    return
                self._launch(spec)
        except Exception as error:
            self._crash = f"the fault schedule ended early: {error}"

    def _launch(self, spec: FaultSpec) -> None:
        fault = Fault(
            spec,
            self._registry[spec.nemesis],
            topology=self._topology,
            recorder=self._recorder,
            clock=self._clock,
            reservations=self._reservations,
            stop=self._stop,
            report=self._report,
        )
        thread = threading.Thread(target=fault.run, name=f"fault-{spec.fault_id}-{spec.nemesis}", daemon=True)
        with self._lock:
            if self._stop.is_set():
                return
            self._order.append(fault)
            self._threads.append(thread)
            thread.start()

    def _report(self, outcome: FaultOutcome) -> None:
        with self._lock:
            self._outcomes[outcome.spec.fault_id] = outcome

    def _skip_waiting(self) -> None:
        for outcome in self.outcomes():
            if outcome.state is FaultState.WAITING:
                why = self._crash or "the run ended before its time"
                self._report(dataclasses.replace(outcome, state=FaultState.SKIPPED, why=why))
                spec = outcome.spec
                with suppress(StorageError):
                    self._recorder.fault(
                        fault_id=spec.fault_id,
                        name=spec.nemesis,
                        cluster=spec.cluster,
                        action="skip",
                        ok=False,
                        result=why,
                        params=spec.params,
                    )

    def _record_health(self, healing: Healing) -> None:
        seen = "; ".join((*healing.errors, healing.health.seen))
        with suppress(StorageError):
            self._recorder.fault(fault_id=HEALTH_FAULT_ID, name="health", action="heal", ok=healing.ok, result=seen)

    def _threads_now(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._threads)
