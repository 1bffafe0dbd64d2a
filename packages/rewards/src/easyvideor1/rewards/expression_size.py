"""Whether an unevaluated sympy expression can be evaluated in little time and memory.

`9^{9^9}` has 370 million digits: sympy would compute them all before it compares.
"""

import math
from collections.abc import Iterator
from typing import Any

MAX_DIGITS = 20_000
"""Of a number within the expression, above or below the line."""
MAX_NODES = 400
MAX_DEPTH = 14
"""Of nodes within each other; sympy's time can double with each level."""
MAX_SYMBOLIC_POWER = 1_000
"""Of an exponent over a base with variables."""
MAX_EXPANDED = 200
"""Terms of a power of a sum when it is expanded."""
MAX_TERMS = 2_000
"""Of a sum or product with numbers as limits."""

_GROWING = ("factorial", "factorial2", "subfactorial", "gamma", "binomial", "FallingFactorial")


def is_bounded(expression: Any) -> bool:
    """Whether all numbers in `expression` are of bounded size, and its nodes of bounded number."""
    try:
        return all(_is_small(node) for node in _nodes(expression))
    except (OverflowError, RecursionError, _TooLargeError):
        return False


class _TooLargeError(Exception):
    """A number has too many digits, or the expression too many nodes."""


def _nodes(expression: Any) -> Iterator[Any]:
    waiting = [(expression, 1)]
    for _ in range(MAX_NODES):
        if not waiting:
            return
        node, depth = waiting.pop()
        yield node
        below = node.flat() if hasattr(node, "flat") else getattr(node, "args", ())
        waiting += [(inner, depth + 1) for inner in below]
        if depth > MAX_DEPTH:
            break
    raise _TooLargeError


def _is_small(node: Any) -> bool:
    import sympy

    if isinstance(node, sympy.Sum | sympy.Product):
        return all(_num_terms(limits) <= MAX_TERMS for limits in node.limits)
    if isinstance(node, sympy.Pow) and not _is_numeric(node.base) and _is_numeric(node.exp):
        power = _value(node.exp)
        return power <= MAX_SYMBOLIC_POWER and _num_expanded(node.base, power) <= MAX_EXPANDED
    return not _is_numeric(node) or _digits(node) <= MAX_DIGITS


def _num_expanded(base: Any, power: float) -> int:
    """Terms of a power of a sum, by the multinomial theorem."""
    num_terms = len(base.args) if getattr(base, "is_Add", False) else 1
    return math.comb(math.ceil(power) + num_terms - 1, num_terms - 1)


def _num_terms(limits: Any) -> float:
    _, start, end = limits
    return _value(start) + _value(end) if _is_numeric(start) and _is_numeric(end) else 0.0


def _is_numeric(node: Any) -> bool:
    import sympy

    return isinstance(node, sympy.Expr) and not node.free_symbols


def _value(node: Any) -> float:
    """An upper bound of the size of a number."""
    import sympy

    return abs(float(node)) if isinstance(node, sympy.Number) else 10.0 ** _digits(node)


def _digits(node: Any) -> float:
    """An upper bound of the digits of a number, above or below the line.

    Raises:
        _TooLargeError: a part of it has too many.
    """
    import sympy

    if node in (sympy.oo, -sympy.oo):
        digits = 0.0
    elif isinstance(node, sympy.Rational):
        digits = math.log10(max(abs(node.p), node.q, 1))
    elif isinstance(node, sympy.Number):
        digits = abs(math.log10(abs(float(node)) or 1.0))
    elif isinstance(node, sympy.Pow):
        digits = _value(node.exp) * _digits(node.base)
    elif isinstance(node, sympy.exp):
        digits = _value(node.args[0]) / math.log(10)
    elif type(node).__name__ in _GROWING:
        largest = max(map(_value, node.args))
        digits = largest * math.log10(largest + 1)
    else:  # sums, products, functions that do not grow faster
        digits = sum(map(_digits, node.args)) + 1
    if digits > MAX_DIGITS:
        raise _TooLargeError
    return digits
