"""The typed contents of `run.json`. Keys that this version does not know are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.history.schema import FORMAT_VERSION

Status = Literal["running", "finished", "interrupted", "failed"]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class TestParameters(_Open):
    """The parameters of the test."""

    __test__ = False  # not a pytest class

    name: str | None = None
    """Name of the test in its campaign."""
    files: dict[str, str] = Field(default_factory=dict)
    """Text of every file that the test was made of (a campaign, an external mirror's), by the name it was given."""
    spec: dict[str, Any] = Field(default_factory=dict)
    """The test as `harness.core.testspec.TestSpec` writes it, so that the run can be replayed."""
    mirror: str | None = None
    """Mirror driver: mm2, reference, native, external."""
    design: str | None = None
    """Design revision or preset of the mirror."""
    mirror_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the mirror driver."""
    scenario: str | None = None
    """Order of phases: steady, failover, …"""
    workload: str | None = None
    """Workload."""
    workload_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the workload."""
    nemeses: list[str] = Field(default_factory=list)
    """Nemeses that the schedule was drawn from."""
    contract: str | None = None
    """Contract that the run is judged by unless another is given."""
    seed: int | None = None
    """Seed of everything random."""
    time_limit_s: float | None = None
    """Length of the load phase in seconds."""
    brokers: dict[str, int] = Field(default_factory=dict)
    """Cluster letter → number of brokers."""
    topics: int | None = None
    """Number of topics."""
    partitions: int | None = None
    """Partitions per topic."""
    rate: float | None = None
    """Operations per second over all producers; 0: as fast as they can."""


class ClusterInfo(_Open):
    """One cluster."""

    cluster_id: str | None = None
    """The ID it was formatted with."""
    kafka_version: str | None = None
    """Version of Kafka."""
    brokers: list[int] = Field(default_factory=list)
    """Broker ids."""


class CapabilityInfo(_Open):
    """Whether the mirror has a capability."""

    yes: bool
    """Whether it has it."""
    why: str = ""
    """Why not, or how it is known."""


class PhaseSpan(_Open):
    """One phase, in nanoseconds of the run's clock."""

    name: str
    """Name, as in ops.phase."""
    start_ns: int
    """When it began."""
    end_ns: int | None = None
    """When it ended; null while it lasts, or when the run was killed in it."""


class RunMeta(_Open):
    """Everything in run.json."""

    format_version: int = FORMAT_VERSION
    """Version of the stored format; a reader refuses a later one."""
    run_id: str
    """The run's name, also the label of its containers."""
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    """When it was created: UTC, ISO 8601."""
    shatter_version: str | None = None
    """Version of the program that made it."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of the software: shatter, python, spark, kafka, mirror, docker."""
    images: dict[str, str] = Field(default_factory=dict)
    """Name of each image behind a container → the digest of its content."""
    source: str = "shatter"
    """Writer of the folder: shatter, jsonl, edn (imported), bench (generated)."""
    status: Status = "running"
    """running (also after a kill), finished, interrupted or failed."""
    why: str = ""
    """Why it was interrupted or failed."""
    test: TestParameters = Field(default_factory=TestParameters)
    """The parameters of the test."""
    clusters: dict[str, ClusterInfo] = Field(default_factory=dict)
    """Letter → cluster."""
    topic_map: dict[str, str] = Field(default_factory=dict)
    """Topic name on A → its name on B, of mirrored topics and of those whose names differ."""
    topic_maps: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The same for any cluster: letter → (name on A → name there). It may also name topics not mirrored from A: one
    with the name of another topic of A is listed under the name that its mirror on A would have."""
    capabilities: dict[str, CapabilityInfo] = Field(default_factory=dict)
    """Capabilities of the mirror."""
    phases: list[PhaseSpan] = Field(default_factory=list)
    """The phases so far."""
    schedule: list[dict[str, Any]] = Field(default_factory=list)
    """The faults as they were drawn, in order: fault_id, nemesis, at_s, duration_s, cluster, role, params; for a fault
    of a moment of the scenario also at_step (where it begins) and until (where it is healed at the latest)."""
    floor: dict[str, Any] = Field(default_factory=dict)
    """The minimum load that proves anything; below it the verdict is unknown."""
    unhealed: list[str] = Field(default_factory=list)
    """What the harness could not heal, one sentence each: checks that need a healed system then prove nothing."""
    left_out: list[str] = Field(default_factory=list)
    """What the export behind this imported history left out: names of tables, or run.json."""
    final_reads_cut_off: bool = False
    """Whether the final reads ended before every partition was read to its end."""
    notes: list[str] = Field(default_factory=list)
    """Sentences for the reader of a verdict."""

    def topic_on(self, cluster: str, topic: str) -> str:
        """The name, on that cluster, of the topic called `topic` on A (the same name when none is stated)."""
        names = self.topic_maps.get(cluster) or (self.topic_map if cluster == "B" else {})
        return names.get(topic, topic)
