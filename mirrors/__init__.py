"""Mirroring implementations under test, and their registry: name → its contracts and its factory.

To add one: a driver that implements harness.topology.mirror.Mirror, and an entry here. Drivers are imported late, to
avoid an import cycle: they need the clusters' shapes, which need this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness import __version__
from harness.core.errors import UsageError
from mirrors.mm2 import config as mm2_config
from mirrors.native import config as native_config
from mirrors.reference.driver import config as reference_config
from mirrors.reference.server.steps import RECONCILE, START, STOP, steps_of
from mirrors.site import CrashSteps, MirrorContext, MirrorSettings, MirrorSite, MirrorSpec, Traits

if TYPE_CHECKING:
    from harness.topology.mirror import Mirror

__all__ = ["REGISTRY", "MirrorContext", "MirrorSettings", "MirrorSite", "MirrorSpec", "Traits"]


def _check_mm2(settings: MirrorSettings, topics: Sequence[str]) -> None:
    options = mm2_config.parse_options(settings.contract, settings.options)
    mm2_config.check_aliases(options, aliases=settings.aliases, flows=settings.flows)
    mm2_config.check_topics(topics, options, source="A", destination="B")


def _make_mm2(context: MirrorContext) -> Mirror:
    from mirrors.mm2.driver import Mm2Mirror

    return Mm2Mirror(context)


def _check_reference(settings: MirrorSettings, _topics: Sequence[str]) -> None:
    reference_config.parse_options(settings.options)


def _check_external(settings: MirrorSettings, _topics: Sequence[str]) -> None:
    from mirrors.external.config import read_config

    read_config(settings.options, settings.texts)
    if settings.mirror_nodes != 1:
        raise UsageError("mirror external has as many containers as `nodes` in its file says; leave --mirror-nodes out")


def _contract_of_external(options: Mapping[str, str], texts: Mapping[str, str]) -> str:
    from mirrors.external.config import read_config

    return read_config(options, texts).contract


def _traits_of_external(options: Mapping[str, str], texts: Mapping[str, str]) -> Traits:
    from mirrors.external.config import read_config

    config = read_config(options, texts)
    nodes = 0 if config.container is None else config.nodes
    return Traits(fails_back=config.fails_back, links=tuple(config.links), nodes=nodes)


def _make_external(context: MirrorContext) -> Mirror:
    from mirrors.external.driver import ExternalMirror

    return ExternalMirror(context)


def _make_reference(context: MirrorContext) -> Mirror:
    from mirrors.reference.driver.driver import ReferenceMirror

    return ReferenceMirror(context)


def _make_native(context: MirrorContext) -> Mirror:
    from mirrors.native.driver import NativeMirror

    return NativeMirror(context)


def _designs_of_reference(verbose: bool) -> list[dict[str, Any]]:
    from mirrors.reference.driver.promise import listing

    return listing(verbose=verbose)


REGISTRY: Final[Mapping[str, MirrorSpec]] = {
    "mm2": MirrorSpec(
        name="mm2",
        description="Kafka's MirrorMaker 2 in dedicated mode, in containers of its own",
        contracts=("mm2-exactly-once", "mm2-read-committed", "mm2-at-least-once"),
        options=mm2_config.option_docs(),
        check=_check_mm2,
        make=_make_mm2,
        version=lambda images: images.mirror_version,
    ),
    "reference": MirrorSpec(
        name="reference",
        description="Cluster Mirroring (KIP-1279) for stock brokers, every argument of its design a switch (--design)",
        contracts=reference_config.CONTRACTS,
        options=reference_config.option_docs(),
        check=_check_reference,
        make=_make_reference,
        image="reference",
        registers=True,
        fails_back=True,
        keeps_state=True,
        design=reference_config.design,
        designs=_designs_of_reference,
        crash_steps=CrashSteps(start=steps_of(START), stop=steps_of(STOP), source_loss=steps_of(RECONCILE)),
        version=lambda _: __version__,
    ),
    "native": MirrorSpec(
        name="native",
        description="Cluster Mirroring (KIP-1279) within the brokers of a build of its authors' branch",
        contracts=native_config.CONTRACTS,
        options=native_config.option_docs(),
        check=native_config.check,
        make=_make_native,
        in_brokers=True,
        broker_config=native_config.broker_config,
        format_features=native_config.FORMAT_FEATURES,
        class_in_brokers=native_config.CLASS_OF_BUILD,
        fails_back=True,
        keeps_state=True,
        version=lambda images: images.brokers(source=False).kafka_version,
    ),
    "external": MirrorSpec(
        name="external",
        description="any mirror that can be started as a container or by commands, described in a TOML file",
        contracts=(),
        options={"config": "the TOML file with its commands to start, stop and describe it; required"},
        check=_check_external,
        make=_make_external,
        contract=_contract_of_external,
        traits=_traits_of_external,
        reads=("config",),
    ),
}
