"""Access rules (ACL bindings): their one-line form, and reading, creating and deleting them on a cluster.

One line: `DENY User:alice WRITE TOPIC:orders`; a pattern type other than LITERAL follows the resource type
(`TOPIC/PREFIXED:or`), a host other than `*` follows the principal (`User:alice@10.0.0.1`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.create_acls.v3 import request as create
from kio.schema.delete_acls.v3 import request as delete
from kio.schema.describe_acls.v3 import request as describe
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from harness.wire.cluster import Cluster
from harness.wire.cluster_mirror_api import ACL_RESOURCE
from harness.wire.frames import WireError

RESOURCES: Final = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
    ACL_RESOURCE: "CLUSTER_MIRROR",
}
PATTERNS: Final = {3: "LITERAL", 4: "PREFIXED"}
OPERATIONS: Final = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
PERMISSIONS: Final = {2: "DENY", 3: "ALLOW"}
_ANY: Final = i8(1)


def _code(names: dict[int, str], name: str) -> i8:
    return i8(next(code for code, known in names.items() if known == name))


@dataclass(frozen=True, order=True, kw_only=True)
class Binding:
    """One rule."""

    permission: str
    principal: str
    operation: str
    resource: str
    name: str
    pattern: str = "LITERAL"
    host: str = "*"

    def line(self) -> str:
        """The one-line form."""
        who = self.principal if self.host == "*" else f"{self.principal}@{self.host}"
        kind = self.resource if self.pattern == "LITERAL" else f"{self.resource}/{self.pattern}"
        return f"{self.permission} {who} {self.operation} {kind}:{self.name}"

    @classmethod
    def of(cls, values: Iterable[str]) -> Binding:
        """From `values()`."""
        permission, principal, operation, resource, name, pattern, host = values
        return cls(
            permission=permission,
            principal=principal,
            operation=operation,
            resource=resource,
            name=name,
            pattern=pattern,
            host=host,
        )

    def values(self) -> list[str]:
        """Plain values, for the state topic."""
        return [
            self.permission,
            self.principal,
            self.operation,
            self.resource,
            self.name,
            self.pattern,
            self.host,
        ]


def all_bindings() -> describe.DescribeAclsRequest:
    """The request for all rules of a cluster."""
    return describe.DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )


def bindings_in(answer: Any) -> frozenset[Binding] | None:
    """The rules in its answer; None when the cluster has no authorizer. Raises WireError."""
    if answer.error_code is ErrorCode.security_disabled:
        return None
    if answer.error_code is not ErrorCode.none:
        raise WireError(f"ACLs cannot be read: {answer.error_code.name} {answer.error_message or ''}".strip())
    return frozenset(
        Binding(
            permission=PERMISSIONS[int(acl.permission_type)],
            principal=str(acl.principal),
            operation=OPERATIONS[int(acl.operation)],
            resource=RESOURCES[int(one.resource_type)],
            name=str(one.resource_name),
            pattern=PATTERNS[int(one.pattern_type)],
            host=str(acl.host),
        )
        for one in answer.resources
        for acl in one.acls
    )


def creation(bindings: Iterable[Binding]) -> create.CreateAclsRequest:
    """The request that creates rules, in their order."""
    return create.CreateAclsRequest(
        creations=tuple(
            create.AclCreation(
                resource_type=_code(RESOURCES, b.resource),
                resource_name=b.name,
                resource_pattern_type=_code(PATTERNS, b.pattern),
                principal=b.principal,
                host=b.host,
                operation=_code(OPERATIONS, b.operation),
                permission_type=_code(PERMISSIONS, b.permission),
            )
            for b in sorted(bindings)
        )
    )


def deletion(bindings: Iterable[Binding]) -> delete.DeleteAclsRequest:
    """The request that deletes rules, in their order."""
    return delete.DeleteAclsRequest(
        filters=tuple(
            delete.DeleteAclsFilter(
                resource_type_filter=_code(RESOURCES, b.resource),
                resource_name_filter=b.name,
                pattern_type_filter=_code(PATTERNS, b.pattern),
                principal_filter=b.principal,
                host_filter=b.host,
                operation=_code(OPERATIONS, b.operation),
                permission_type=_code(PERMISSIONS, b.permission),
            )
            for b in sorted(bindings)
        )
    )


async def bindings_of(cluster: Cluster) -> frozenset[Binding] | None:
    """All rules of a cluster; None when it has no authorizer. Raises WireError."""
    return bindings_in(await cluster.call_any(all_bindings()))


async def create_bindings(cluster: Cluster, bindings: Collection[Binding]) -> None:
    """Create rules. Raises WireError naming the first that is refused."""
    if bindings:
        check_done(bindings, (await cluster.call_any(creation(bindings))).results, "created")


async def delete_bindings(cluster: Cluster, bindings: Collection[Binding]) -> None:
    """Delete rules. Raises WireError naming the first that is refused."""
    if bindings:
        check_done(bindings, (await cluster.call_any(deletion(bindings))).filter_results, "deleted")


def check_done(bindings: Iterable[Binding], results: Iterable[Any], what: str) -> None:
    """Raises WireError naming the first rule that was refused. results: of `creation` or `deletion`."""
    for binding, result in zip(sorted(bindings), results, strict=True):
        if result.error_code is not ErrorCode.none:
            why = f"{result.error_code.name} {result.error_message or ''}".strip()
            raise WireError(f"ACL {binding.line()!r} cannot be {what}: {why}")
