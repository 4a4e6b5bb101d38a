"""One live fault: injects, holds and heals it, records every step; can be taken over when its thread is stuck."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from harness.core.clock import Clock
from harness.history.recording import Recorder
from harness.topology.clusters import NodeRole, NodeState
from harness.topology.topology import Topology
from nemeses.base import FaultContext, FaultSpec, FaultStoppedError, Injected, Nemesis
from nemeses.engine.outcomes import FaultOutcome, FaultState
from nemeses.reservations import FaultSkippedError, Reservations
from nemeses.support.recovery import await_back
from nemeses.undo import UndoStack

BACK_S = 60.0  # time for nodes of a half-injected fault to come back

OVER = frozenset({FaultState.HEALED, FaultState.SKIPPED, FaultState.FAILED, FaultState.UNDONE})


class Fault:
    """Thread-safe: `run` belongs to its thread, everything else may be called from any."""

    def __init__(
        self,
        spec: FaultSpec,
        nemesis: Nemesis,
        *,
        topology: Topology,
        recorder: Recorder,
        clock: Clock,
        reservations: Reservations,
        stop: threading.Event,
        report: Callable[[FaultOutcome], None],
    ) -> None:
        self.spec = spec
        self._nemesis = nemesis
        self._recorder, self._clock, self._reservations = recorder, clock, reservations
        self._stop, self._report = stop, report
        self._lock = threading.RLock()  # held while healing
        self._injected: Injected | None = None
        self._outcome = FaultOutcome(spec=spec, state=FaultState.WAITING)
        self._target = ""
        self._began = False
        self.recording_errors: list[str] = []
        self._context = FaultContext(
            topology=topology,
            recorder=recorder,
            clock=clock,
            reservations=reservations,
            undo=UndoStack(),
            began=self._note_began,
            stop=stop,
        )

    @property
    def over(self) -> bool:
        """Whether nothing is left to undo."""
        return self._outcome.state in OVER and not len(self._context.undo)

    def run(self) -> None:
        """Inject, hold, heal. When the run ends a live fault is left as it is: `finish` heals it. So it is for one that
        lasts until a moment of the scenario."""
        until_ns = self._clock.now_ns() + int(self.spec.duration_s * 1e9)
        live = self._inject()
        if (
            self._context.undo.closed
        ):  # it was given up meanwhile, and its last act may have taken effect after its undo
            self._context.undo.run_again()
        elif live and self._held(until_ns):
            self.heal()

    def _held(self, until_ns: int) -> bool:
        """Hold it for its duration; returns whether that is over, and the run is not."""
        if self.spec.at_step and not self.spec.duration_s:
            return False
        return not self._stop.wait(max(0.0, (until_ns - self._clock.now_ns()) / 1e9))

    def heal(self) -> str | None:
        """Undo it and wait until the system is healthy; returns what went wrong. Safe to call repeatedly."""
        with self._lock:
            if self.over or self._injected is None:
                return None
            error: str | None = None
            try:
                seen = self._nemesis.heal(self._context, self._injected)
            except Exception as failure:
                error = "; ".join([str(failure), *self._context.undo.run()])
                seen = error
            self._record("heal", ok=error is None, result=seen)
            self._set(FaultState.UNHEALED if error else FaultState.HEALED, why=error or self._outcome.why)
            if error is None:
                self._reservations.release(self.spec.fault_id)
            return None if error is None else f"fault {self.spec.fault_id} ({self.spec.nemesis}): {error}"

    def finish(self) -> str | None:
        """Heal it, whatever its thread is doing: one that is still injecting is given up. Returns what went wrong."""
        if self._injected is None and not self.over:
            return self.abandon("its thread did not come back")
        return self.heal()

    def abandon(self, why: str) -> str | None:
        """Refuse further acts of its thread and undo what is registered; returns what went wrong."""
        self._context.undo.close()
        return self._undo_half(why, FaultState.UNDONE)

    def force(self) -> list[str]:
        """Undo what is registered without waiting: for when healing itself hangs. Returns the errors."""
        self._context.undo.close()
        return self._context.undo.run()

    def _inject(self) -> bool:
        self._set(FaultState.INJECTING)
        try:
            available = self._nemesis.available(self._context.topology)
            if not available.yes:
                raise FaultSkippedError(available.why)
            injected = self._nemesis.inject(self._context, self.spec)
        except FaultSkippedError as reason:
            if not self._began and not len(self._context.undo):
                self._reservations.release(self.spec.fault_id)
                self._record("skip", ok=False, result=str(reason), params=self.spec.params)
                self._set(FaultState.SKIPPED, why=str(reason))
                return False
            self._undo_half(str(reason), FaultState.FAILED)
        except FaultStoppedError as reason:
            self._undo_half(str(reason), FaultState.UNDONE)
        except Exception as error:
            self._undo_half(f"{type(error).__name__}: {error}" if not str(error) else str(error), FaultState.FAILED)
        else:
            self._target = injected.target
            self._injected = injected
            beside = {"beside": list(injected.beside)} if injected.beside else None
            self._record("bit", ok=injected.bite.yes, result=injected.bite.seen, params=beside)
            self._set(FaultState.LIVE, bit=injected.bite.yes, why=injected.bite.seen)
            return True
        return False

    def _undo_half(self, why: str, state: FaultState) -> str | None:
        """Undo a fault that was not injected completely, and wait until the nodes it held are back."""
        with self._lock:
            if self.over:
                return None
            if self._outcome.state is not FaultState.UNHEALED:
                self._record("inject", ok=False, result=why, params=self.spec.params)
            acted = len(self._context.undo) > 0
            errors = self._context.undo.run()
            if acted and not errors:
                errors = self._await_held_nodes()
            if acted or errors:
                self._record("heal", ok=not errors, result="; ".join(errors) or "its acts were undone")
            self._set(FaultState.UNHEALED if errors else state, bit=False, why="; ".join([why, *errors]))
            if not errors:
                self._reservations.release(self.spec.fault_id)
                return None
            return f"fault {self.spec.fault_id} ({self.spec.nemesis}): {'; '.join(errors)}"

    def _await_held_nodes(self) -> list[str]:
        held = {name for name, fault in self._reservations.held().items() if fault == self.spec.fault_id}
        errors = []
        for cluster in self._context.topology.clusters.values():
            for node in {n.name: n for n in (*cluster.controllers.values(), *cluster.brokers.values())}.values():
                if node.name in held:
                    try:
                        await_back(cluster, node, timeout_s=BACK_S)
                    except Exception as error:
                        errors.append(str(error))
        mirrors = [n for n in self._context.topology.nodes() if n.role is NodeRole.MIRROR and n.name in held]
        return errors + [f"{n.name} is {state}" for n in mirrors if (state := n.state()) is not NodeState.RUNNING]

    def _note_began(self, target: str, params: Mapping[str, Any]) -> None:
        if self._stop.is_set():
            raise FaultStoppedError("the run ended before the fault began")
        self._target = target
        self._began = True
        self._record("inject", ok=True, result="begins", params=params)
        self._set(FaultState.INJECTING)

    def _set(self, state: FaultState, *, bit: bool | None = None, why: str = "") -> None:
        known = self._outcome.bit if bit is None else bit
        self._outcome = dataclasses.replace(
            self._outcome, state=state, bit=known, target=self._target, why=why or self._outcome.why
        )
        self._report(self._outcome)

    def _record(self, action: str, *, ok: bool, result: str, params: Mapping[str, Any] | None = None) -> None:
        """Recording must never stop a healing: its errors are kept, and end the run elsewhere."""
        try:
            self._recorder.fault(
                fault_id=self.spec.fault_id,
                name=self.spec.nemesis,
                action=action,
                cluster=self.spec.cluster,
                target=self._target or None,
                ok=ok,
                result=result,
                params=params,
            )
        except Exception as error:
            self.recording_errors.append(f"step {action} of fault {self.spec.fault_id} was not recorded: {error}")
