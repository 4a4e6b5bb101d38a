"""Decides from stored tables what was lost, duplicated, reordered or mixed up. Spark only.

To add a checker: one file with its `CHECKER`, its name in `MODULES`, its kinds in harness/contracts.toml, and a test
with a planted history and its clean twin. `checkers.catalogue` imports the modules; this package itself does not,
so that it can be imported without Spark.
"""

MODULES: tuple[str, ...] = (
    # clients (section 1 of the catalogue)
    "lost_write",
    "duplicate",
    "inconsistent_offsets",
    "misplaced",
    "aborted_read",
    "torn_transaction",
    "ack_mismatch",
    "send_order",
    "poll_order",
    "end_offset_regressed",
    "cycles",
    "stuck",
    "thin",
    # logs (sections 2 and 3)
    "mirror_records",
    "mirror_identity",
    "retention_gap",
    "replicas",
    "failback",
    "stop_cut",
    "producers",
    "pid_swallowed",
    "transactions_log",
    "transactions_mirrored",
    # groups, access, states (section 4)
    "group_out_of_range",
    "group_moves",
    "share_group",
    "group_overwritten",
    "commit_lost",
    "checkpoint_rewind",
    "epoch_invariant",
    "written_while_mirrored",
    "state_graph",
    "state_key_skew",
    "acl_lost",
    "config_reverted",
    "name_leak",
    "memory",
    # object stores (section 5)
    "object_store",
)
"""One name per checker module, in the order in which the catalogue lists them."""
