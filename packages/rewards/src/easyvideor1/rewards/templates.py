"""Text from Jinja templates: sandboxed, strict about unknown names, without HTML escaping.

A template is a file of the user's or a text of ours. Values are put in as they are; they are never
read as templates themselves. Called by `prompts` and `judge_prompts`.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render(path: Path, values: Mapping[str, Any]) -> str:
    """The text that the template file gives with `values`, without a line break at its end.

    Raises:
        UserError: it cannot be read, has a syntax error, uses a name that is not among the values
            or does what the sandbox forbids.
    """
    try:
        stamp = path.stat().st_mtime_ns
        return _from_file(path, stamp).render(values)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except Exception as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        names = ", ".join(sorted(values))
        raise UserError(
            f"{where}: the template cannot be rendered: {error}; it may use {names}"
        ) from error


def render_text(source: str, values: Mapping[str, Any]) -> str:
    """The text that one of our own templates gives with `values`."""
    return _from_text(source).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


@lru_cache(maxsize=64)
def _from_file(path: Path, stamp: int) -> "Template":
    return _environment().from_string(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def _from_text(source: str) -> "Template":
    return _environment().from_string(source)
