"""Fenced code blocks in a model's text. Used by the tasks whose answer is code or markup."""

import re
import textwrap
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*```[ \t]*([^\s`]*)[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A code block.

    Example:
        CodeBlock(language="python", code="print(1)", alone=True)
    """

    language: str
    """In lower case; empty where the fence names none."""
    code: str
    """Without the indentation and the blank lines around it."""
    alone: bool
    """It is closed, and the text holds nothing else."""


def last_block(text: str) -> CodeBlock | None:
    """The last code block of a text; one that is never closed reaches to the end."""
    fences = list(_FENCE.finditer(text))
    if not fences:
        return None
    # They open and close by turns.
    opening = fences[(len(fences) - 1) // 2 * 2]
    closed = opening is not fences[-1]
    end = fences[-1].start() if closed else len(text)
    around = text[: opening.start()] + (text[fences[-1].end() :] if closed else "")
    code = textwrap.dedent(text[opening.end() : end].strip("\n"))
    return CodeBlock(opening[1].lower(), code, closed and not around.strip())
