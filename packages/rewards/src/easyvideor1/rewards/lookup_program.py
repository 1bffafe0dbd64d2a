"""A program that passes given tests by a table of their results: a gold answer without a program.

It is what `render_gold` shows where data hold tests and no solution, so that the way from gold
answer to score can be tried.
"""

import ast
from typing import Any

from easyvideor1.rewards.code_tests import CALL, CodeTests, Step

NO_PROGRAM = "# The data hold tests of this program, not the program.\n"

_STDIO = """\
import sys

OUTPUTS = {outputs!r}

print(OUTPUTS[sys.stdin.read()], end="")
"""
_FUNCTION = """\
RESULTS = {results!r}


def {name}(*args, **kwargs):
    return RESULTS[repr((args, kwargs))]
"""
_KEEP_THE_RESULT = ("sorted", "list", "tuple", "set", "bool")
"""Calls whose value, of an argument that equals their expected value, is that value."""


def lookup_program(tests: CodeTests) -> str:
    """The program, or a comment where the tests are not a table of arguments and results."""
    if tests.stdio:
        return _STDIO.format(outputs={case.stdin: case.stdout for case in tests.stdio})
    results: dict[str, Any] = {}
    name = tests.entry
    aliases = {CALL: name} | dict(filter(None, map(_alias, tests.steps)))
    for step in tests.steps:
        if step.check is None:
            continue
        called = _call(step)
        if called is None or (name and aliases.get(called[0], called[0]) != name):
            return NO_PROGRAM
        name = name or called[0]
        results[called[1]] = _result(step.check)
    return _FUNCTION.format(results=results, name=name) if results else NO_PROGRAM


def _alias(step: Step) -> tuple[str, str] | None:
    """Of a step `candidate = add`: the two names."""
    match ast.parse(step.code).body:
        case [ast.Assign([ast.Name(alias)], ast.Name(name))]:
            return alias, name
    return None


def _call(step: Step) -> tuple[str, str] | None:
    """Name of the function that a step calls, and its arguments as text; None for other steps."""
    node = ast.parse(step.code, mode="eval").body
    while isinstance(node, ast.Call) and ast.unparse(node.func) in _KEEP_THE_RESULT:
        if len(node.args) != 1:
            return None
        node = node.args[0]
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return None
    try:
        args = tuple(map(ast.literal_eval, node.args))
        kwargs = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
    except (ValueError, TypeError):
        return None
    return node.func.id, repr((args, kwargs))


def _result(check: Any) -> Any:
    """A value that passes a check of `code_checks`."""
    given = check.keywords
    return given["values"][0] if "values" in given else given["expected"]
