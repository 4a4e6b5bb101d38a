"""Topics that are no user's, known by their names in full: a user's topic may begin with `__` like any other."""

from typing import Final

KAFKA: Final = ("__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state")
REFERENCE_MIRROR: Final = ("__mirror_state",)
INTERNAL_TOPICS: Final = (*KAFKA, *REFERENCE_MIRROR)
