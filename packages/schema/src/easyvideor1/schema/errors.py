"""Errors that end a command with one paragraph instead of a traceback.

A `UserError` is caused by input: a setting, a file, a row. Its text names the value, the rule and
the way out. Errors of our own code stay ordinary exceptions and keep their traceback.
"""

from pathlib import Path


class UserError(Exception):
    """Something the user can put right; `schema.cli` prints the text alone and exits with 2."""


class DataError(UserError):
    """A row of a data file that breaks a rule of the schema.

    Example:
        >>> print(DataError("a.jsonl", 3, "problem_type", "qa", "one of multiple_choice, …"))
        a.jsonl:3:problem_type: got 'qa', expected one of multiple_choice, …
    """

    def __init__(
        self, path: str | Path, row: int, field: str, value: object, expected: str, fix: str = ""
    ):
        self.path, self.row, self.field = str(path), row, field
        self.value, self.expected, self.fix = value, expected, fix
        shown = repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "…"
        text = f"{path}:{row}:{field}: got {shown}, expected {expected}"
        super().__init__(f"{text}. {fix}" if fix else text)

    def __reduce__(self):
        """Rebuild from the fields, so that the error crosses process boundaries."""
        return type(self), (self.path, self.row, self.field, self.value, self.expected, self.fix)
