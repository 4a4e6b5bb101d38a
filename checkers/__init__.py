"""Decides from stored tables what was lost, duplicated, reordered or mixed up. Spark only.

To add a checker: one file with its `CHECKER`, its name in `MODULES`, its kinds in harness/core/contracts.toml, and a
test with a planted history and its clean twin. `checkers.catalogue` imports the modules; this package itself does not,
so that it can be imported without Spark.
"""

MODULES: tuple[str, ...] = (
    # clients (section 1 of the catalogue)
    "clients.lost_write",
    "clients.duplicate",
    "clients.inconsistent_offsets",
    "clients.misplaced",
    "clients.aborted_read",
    "clients.torn_transaction",
    "clients.ack_mismatch",
    "clients.send_order",
    "clients.poll_order",
    "clients.end_offset_regressed",
    "clients.cycles",
    "clients.stuck",
    "clients.thin",
    # logs (sections 2 and 3)
    "mirror.mirror_records",
    "mirror.mirror_identity",
    "mirror.retention_gap",
    "mirror.replicas",
    "mirror.copy_gone",
    "mirror.failback",
    "mirror.stop_cut",
    "logs.producers",
    "logs.pid_swallowed",
    "logs.transactions_log",
    "logs.transactions_mirrored",
    # groups, access, states (section 4)
    "groups.group_out_of_range",
    "groups.group_moves",
    "groups.share_group",
    "groups.group_overwritten",
    "groups.commit_lost",
    "groups.checkpoint_rewind",
    "groups.epoch_invariant",
    "groups.written_while_mirrored",
    "groups.failover_refused",
    "groups.state_graph",
    "groups.state_key_skew",
    "groups.acl_lost",
    "groups.config_reverted",
    "groups.name_leak",
    "groups.memory",
    # object stores (section 5)
    "objects.object_store",
)
"""One name per checker module, in the order in which the catalogue lists them."""
