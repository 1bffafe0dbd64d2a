"""Tests of any form, in a process apart from the answer that they test.

The tester holds the tests and runs no line of the answer: it sees proxies of the answer's names.
What it does with a proxy is done in the answer's process; plain values come back as copies, other
objects as further proxies. So the verdict is made where the answer cannot reach.

An argument that is a list, dict, set or bytearray is copied to the answer, and what the answer
changed in it is copied back. Functions and objects of the tests cannot be arguments.
"""

import builtins
import json
import operator
import os
import types
from collections.abc import Callable
from typing import Any

from .programs import describe, execute, new_module, read_job
from .values import NotPlainError, decode, encode, write

_READ_BYTES = 1 << 16
_MUTABLE = (list, dict, set, bytearray)

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "getattr": getattr, "setattr": setattr, "isinstance": isinstance, "str": str, "repr": repr,
    "iter": iter, "next": next, "len": len, "bool": bool, "int": int, "float": float, "abs": abs,
    "round": round, "enter": lambda value: value.__enter__(),
    "exit": lambda value: value.__exit__(None, None, None),
    **{name: getattr(operator, name) for name in (
        "getitem", "setitem", "delitem", "eq", "ne", "lt", "le", "gt", "ge", "add",
        "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "neg",
        "pos", "invert", "index",
    )},
}  # fmt: skip
"""What a tester may ask to be done with objects of the answer."""


class Line:
    """Messages of one line each over a descriptor."""

    def __init__(self, descriptor: int):
        self._descriptor, self._rest = descriptor, b""

    def send(self, message: Any) -> None:
        line = write(message)
        while line:
            line = line[os.write(self._descriptor, line) :]

    def receive(self) -> Any:
        """The next message.

        Raises:
            EOFError: the other process has ended.
        """
        while b"\n" not in self._rest:
            part = os.read(self._descriptor, _READ_BYTES)
            if not part:
                raise EOFError("the answer's process has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


def run_answer(job_at: int, line_at: int) -> int:
    """Run `program`, then do what the tester asks until it is gone."""
    job, line = read_job(job_at), Line(line_at)
    module = new_module("answer")
    objects: list[Any] = []
    places: dict[int, int] = {}

    def keep(value: Any, plain: Any) -> list[Any]:
        # Kept alive in the list, so that no other object can get its id.
        if id(value) not in places:
            places[id(value)] = len(objects)
            objects.append(value)
        return ["o", places[id(value)], plain]

    def resolve(data: list[Any]) -> Any:
        return objects[data[1]]

    try:
        for code in (job["setup"], job["program"]):
            execute(code, module)
    except BaseException as error:
        line.send(["failed", describe(error)])
        return 1
    line.send(["names", {n: _kind(module, n, keep) for n in job["names"] if n in vars(module)}])
    while True:
        try:
            operation, args, kwargs = line.receive()
        except EOFError:
            return 0
        line.send(_do(operation, args, kwargs, keep, resolve))


def _kind(module: types.ModuleType, name: str, keep: Any) -> Any:
    """A value; of an exception class, which tests must be able to catch, its ancestors' names."""
    value = vars(module)[name]
    if isinstance(value, type) and issubclass(value, Exception):
        return ["exception", [ancestor.__name__ for ancestor in value.__mro__]]
    return ["value", encode(value, keep)]


def _do(operation: str, args: list, kwargs: dict, keep: Any, resolve: Any) -> list[Any]:
    try:
        values = [decode(arg, resolve) for arg in args]
        named = {name: decode(arg, resolve) for name, arg in kwargs.items()}
        result = encode(OPERATIONS[operation](*values, **named), keep)
        changed = {}
        for place, value in [*enumerate(values), *named.items()]:
            if type(value) in _MUTABLE:
                before = kwargs[place] if isinstance(place, str) else args[place]
                if (after := encode(value, keep)) != before:
                    changed[place] = after
        return ["value", result, changed]
    except BaseException as error:
        ancestors = [ancestor.__name__ for ancestor in type(error).__mro__]
        return ["error", ancestors, _arguments(error)]


def _arguments(error: BaseException) -> Any:
    """What an exception was made with; its text, where that is no plain value."""
    try:
        return encode(error.args)
    except (NotPlainError, RecursionError):
        return encode((describe(error),))


class AnswerError(Exception):
    """The answer's process has ended, or raised what is no built-in exception."""


class CannotSendError(Exception):
    """A test gives the answer an object or a function of its own."""


class Peer:
    """The tester's side of the line: asks, and makes proxies of what comes back."""

    def __init__(self, line: Line):
        self._line = line
        self._proxies: dict[int, Proxy] = {}
        self.exceptions: dict[str, type[Exception]] = {}

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of the names that the answer has, as values, proxies or exception classes.

        Raises:
            AnswerError: the answer could not be run.
        """
        try:
            kind, found = self._line.receive()
        except (EOFError, ValueError) as error:
            raise AnswerError(str(error)) from None
        if kind != "names":
            raise AnswerError(str(found))
        # No other name: the answer's process might send one in place of a built-in.
        return {name: self._named(name, *found[name]) for name in wanted if name in found}

    def _named(self, name: str, kind: str, value: Any) -> Any:
        if kind == "exception":
            self.exceptions[name] = type(name, (self._exception(value[1:]),), {})
            return self.exceptions[name]
        return decode(value, self._proxy)

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Have something done in the answer's process.

        Raises:
            CannotSendError: an argument is no plain value.
            Exception: what it raised there.
        """
        sent = [encode(arg, _send) for arg in args]
        named = {name: encode(arg, _send) for name, arg in kwargs.items()}
        try:
            self._line.send([operation, sent, named])
            kind, result, more = self._line.receive()
        except (EOFError, OSError, ValueError) as error:
            raise AnswerError(str(error)) from None
        if kind != "value":
            raise self._error(result, decode(more))
        value = decode(result, self._proxy)
        changed = {place: decode(now, self._proxy) for place, now in more.items()}
        for place, now in changed.items():
            _replace(args[int(place)] if place.isdigit() else kwargs[place], now)
        return value

    def _proxy(self, data: list[Any]) -> "Proxy":
        _, place, plain = data
        proxy = self._proxies.setdefault(place, Proxy(self, place))
        object.__setattr__(proxy, "_plain", plain)
        return proxy

    def _error(self, ancestors: list[str], arguments: tuple[Any, ...]) -> Exception:
        try:
            return self._exception(ancestors)(*arguments)
        except (TypeError, ValueError):  # not what a class of that name is made with
            return AnswerError(*arguments)

    def _exception(self, ancestors: list[str]) -> type[Exception]:
        for name in ancestors:
            known = self.exceptions.get(name) or getattr(builtins, name, None)
            # Not Exception itself, and no SystemExit, which would end the tester.
            if isinstance(known, type) and issubclass(known, Exception) and known is not Exception:
                return known
        return AnswerError


def _send(value: Any, plain: Any) -> list[Any]:
    if isinstance(value, Proxy):
        return ["o", object.__getattribute__(value, "_place"), None]
    if plain is None:
        raise CannotSendError(f"a {type(value).__name__} of the test cannot be given to the answer")
    return plain


def _replace(old: Any, new: Any) -> None:
    """Give an argument the content that the answer gave its copy."""
    old.clear()
    if isinstance(old, list | bytearray):
        old.extend(new)
    else:
        old.update(new)


class Proxy:
    """An object in the answer's process."""

    __slots__ = ("_peer", "_place", "_plain")

    def __init__(self, peer: Peer, place: int):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_place", place)
        object.__setattr__(self, "_plain", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.do("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.do("setattr", self, name, value)

    def __eq__(self, other: object) -> Any:
        return self._decide("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._decide("ne", other)

    def __lt__(self, other: object) -> Any:
        return self._decide("lt", other)

    def __le__(self, other: object) -> Any:
        return self._decide("le", other)

    def __gt__(self, other: object) -> Any:
        return self._decide("gt", other)

    def __ge__(self, other: object) -> Any:
        return self._decide("ge", other)

    def _decide(self, operation: str, other: object) -> Any:
        """The answer decides only between two objects of its own classes.

        Beside a plain value an object counts as the one that it holds, where its class derives from
        a plain type, whatever methods it overrides; where it does not, it is another, and neither
        less nor greater. Nor is there `__contains__`: Python compares what `__iter__` gives.
        """
        if isinstance(other, Proxy):
            return self._peer.do(operation, self, other)
        if self._plain is None:
            return operation == "ne" if operation in ("eq", "ne") else NotImplemented
        return OPERATIONS[operation](decode(self._plain, self._peer._proxy), other)

    def __hash__(self) -> int:
        return self._place

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Proxy) and self._peer.do("isinstance", instance, self)

    def __exit__(self, *_: object) -> None:
        self._peer.do("exit", self)


def _forward(operation: str, reverse: bool = False) -> Callable[..., Any]:
    def method(self: Proxy, *args: Any, **kwargs: Any) -> Any:
        operands = (*args, self) if reverse else (self, *args)
        return self._peer.do(operation, *operands, **kwargs)

    return method


for _name in (
    "call", "str", "repr", "iter", "next", "len", "bool", "int", "float", "abs", "round", "enter",
    "getitem", "setitem", "delitem", "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod",
    "pow", "neg", "pos", "invert", "index",
):  # fmt: skip
    setattr(Proxy, f"__{_name}__", _forward(_name))
for _name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
    setattr(Proxy, f"__r{_name}__", _forward(_name, reverse=True))
for _name in ("and_", "or_", "xor"):
    setattr(Proxy, f"__{_name.strip('_')}__", _forward(_name))


def run_tester(job_at: int, report_at: int, line_at: int) -> int:
    """Run `tests` one after the other in one namespace, and report on each.

    A line of the report is [number of the test, outcome, text] with the outcomes `passed`, `failed`
    and `broken` (the test itself cannot be run here).
    """
    job, peer = read_job(job_at), Peer(Line(line_at))
    report = Line(report_at)
    module = new_module("tests")
    try:
        execute(job["setup"], module)
    except BaseException as error:
        report.send([-1, "broken", describe(error)])
        return 1
    try:
        vars(module).update(peer.names(job["names"]))
    except AnswerError as error:
        report.send([-1, "failed", str(error)])
        return 1
    for number, test in enumerate(job["tests"]):
        try:
            _run_test(test, module)
            report.send([number, "passed", ""])
        except CannotSendError as error:
            report.send([number, "broken", str(error)])
        except BaseException as error:
            report.send([number, "failed", describe(error)])
    return 0


def _run_test(test: str, module: types.ModuleType) -> None:
    """Run the text of a test, then the test functions and test cases that it has defined."""
    import unittest

    before = dict(vars(module))
    try:
        execute(test, module)
    except SystemExit as exit:  # unittest.main() ends so; the answer cannot
        if exit.code:
            raise AssertionError("a test case fails") from None
    added = {name: v for name, v in vars(module).items() if before.get(name) is not v}
    for name, value in added.items():
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(value).run(result)
            if not result.wasSuccessful():
                raise AssertionError(f"{name} fails")
        elif isinstance(value, types.FunctionType) and name.startswith("test"):
            value()
