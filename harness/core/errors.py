"""Every error that a user can see: one clear sentence that names the file, key or node, and how to fix it."""

from __future__ import annotations

EXIT_VALID = 0
EXIT_INVALID = 1
EXIT_UNKNOWN = 2
EXIT_USAGE = 254
EXIT_FAILED = 255


class ShatterError(Exception):
    """The program could not do what was asked. `str(error)` is the sentence that the user reads."""

    exit_code = EXIT_FAILED


class UsageError(ShatterError):
    """An argument, option or TOML key that does not exist or cannot be combined."""

    exit_code = EXIT_USAGE


class EngineError(ShatterError):
    """The container engine is missing, not running, or refused a request."""


class ImageError(ShatterError):
    """An image does not exist, cannot be pulled, cannot be built, or lacks what is needed."""


class ClusterError(ShatterError):
    """A cluster, node or link did not do what it must."""


class MirrorError(ShatterError):
    """A mirror cannot start, stop or be described."""


class RequestRefusedError(MirrorError):
    """A mirror refused an administrator's request, and changed nothing; the text is the reason that it states."""


class FaultError(ShatterError):
    """A fault could not be injected or healed."""


class StorageError(ShatterError):
    """The run's folder cannot be written (full disk, permissions)."""


class HistoryError(ShatterError):
    """A stored or imported history cannot be read: torn file, missing table, malformed line."""


class WaitTimeoutError(ShatterError):
    """A bounded wait ended without what it waited for."""
