"""The options of `shatter run` that describe its test, from the fields of TestSpec: names, defaults and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import typer

from harness.core.errors import UsageError
from harness.core.testspec import TestSpec

MIRROR_OPTION: Final = "mirror_option"
_PAIRS: Final = {
    "mirror_options": MIRROR_OPTION,
    **{name: name for name in ("broker_config", "topic_config", "format_feature")},
}
_REPEATED: Final = {"design": "design", **_PAIRS}
"""Field → the option that may be given several times."""


def described(command: Callable[..., None], more: Sequence[Parameter]) -> Callable[..., None]:
    """The command with an option for each field of a test, and these besides; it is called with all of them by name."""
    parameters = [*(_option(name) for name in TestSpec.model_fields), *more]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the fields of a test. Raises UsageError for one that is to be KEY=VALUE and is not."""
    fields = {name: values[name] for name in TestSpec.model_fields if name in values}
    fields["design"] = tuple(values["design"] or ())
    for name, option in _PAIRS.items():
        fields[name] = _pairs(values[option], f"--{option.replace('_', '-')}")
    return fields


def _option(name: str) -> Parameter:
    field = TestSpec.model_fields[name]
    kind, default, option = _plain(field.annotation), field.default, _REPEATED.get(name, name)
    if name in _REPEATED:
        kind, default = list[str] | None, None
    elif name == "nemesis":
        kind, default = str, ""
    annotation: Any = Annotated[kind, typer.Option(help=field.description)]
    return Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(annotation: Any) -> Any:
    """int, float, bool or str, or one of these and None, for what the command line can say of it."""
    choices = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _plain(choices[0])
    if get_origin(annotation) in (Union, UnionType):
        return next(c for c in map(_plain, choices) if c is not type(None)) | None
    if choices and all(isinstance(choice, str) for choice in choices):
        return str
    return annotation


def _pairs(values: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in values or []:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"{option} {text!r} must be KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
