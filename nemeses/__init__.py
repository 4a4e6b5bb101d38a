"""One file per nemesis, and the registry. To add one: a file, a line here, a test."""

from __future__ import annotations

from collections.abc import Mapping

from nemeses.base import Nemesis
from nemeses.broker_kill import BrokerKill
from nemeses.broker_partition import BrokerPartition
from nemeses.broker_pause import BrokerPause
from nemeses.compaction import Compaction
from nemeses.link_degrade import LinkDegrade
from nemeses.link_partition import LinkPartition
from nemeses.mirror_crash import MirrorCrash
from nemeses.mirror_kill import MirrorKill
from nemeses.mirror_pause import MirrorPause
from nemeses.retention import Retention
from nemeses.unclean_election import UncleanElection

_ALL: tuple[Nemesis, ...] = (
    LinkPartition(),
    LinkDegrade(),
    BrokerPause(),
    BrokerKill(),
    BrokerPartition(),
    UncleanElection(),
    Retention(),
    Compaction(),
    MirrorKill(),
    MirrorPause(),
    MirrorCrash(),
)

REGISTRY: Mapping[str, Nemesis] = {nemesis.name: nemesis for nemesis in _ALL}

DESCRIPTIONS: Mapping[str, str] = {name: nemesis.description for name, nemesis in REGISTRY.items()}

__all__ = ["DESCRIPTIONS", "REGISTRY"]
