"""Runs an answer as a program over stdin and stdout, or its functions, and reports plain values.

A report is whatever the process writes, so it proves nothing about how a value came to be; what is
right is neither known here nor decided here.
"""

import atexit
import builtins
import os
import sys
import threading
import types
from typing import Any

from .values import NotPlainError, encode, write

_READ_BYTES = 1 << 20
MAX_ERROR_CHARS = 200


def read_job(descriptor: int) -> dict[str, Any]:
    """The job of this process; afterwards its descriptor is closed."""
    import json

    parts = []
    while part := os.read(descriptor, _READ_BYTES):
        parts.append(part)
    os.close(descriptor)
    return json.loads(b"".join(parts))


def run_stdio(job_at: int) -> int:
    """Run `program` as a script; returns its exit code."""
    job = read_job(job_at)
    code = 1
    try:
        execute(job["program"], new_module("__main__"))
        code = 0
    except SystemExit as exit:
        code = _exit_code(exit)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
    return _finish(code)


def _exit_code(exit: SystemExit) -> int:
    if exit.code is None:
        return 0
    return exit.code & 0xFF if isinstance(exit.code, int) else 1


def _finish(code: int) -> int:
    """What the interpreter does at its end: join threads, call exit functions, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        return code or 1
    return code


def run_calls(job_at: int, report_at: int) -> int:
    """Run `program`, then `steps`: statements, and expressions whose values are reported.

    A step is [number of its test, "exec" or "eval", code]. A line of the report is
    [number of the step, "value", value] or [number of the step, "error", text]; where a test's
    statement fails, the rest of that test is left out.
    """
    job = read_job(job_at)
    module = new_module("answer")
    # Looked up now: what the program puts in their place changes nothing below.
    evaluate, run, compiled = builtins.eval, builtins.exec, builtins.compile
    report = _reporter(report_at)
    try:
        for code in (job["setup"], job["program"]):
            execute(code, module)
    except BaseException as error:
        report(-1, "error", describe(error))
        return 1
    failed: set[int] = set()
    for number, (test, kind, code) in enumerate(job["steps"]):
        if test in failed:
            continue
        try:
            if kind == "exec":
                run(compiled(code, "<test>", "exec"), module.__dict__)
            else:
                report(number, "value", evaluate(compiled(code, "<test>", "eval"), module.__dict__))
        except BaseException as error:
            failed.add(test)
            report(number, "error", describe(error))
    return 0


def _reporter(descriptor: int) -> Any:
    def report(number: int, kind: str, value: Any) -> None:
        try:
            line = write([number, kind, encode(value)])
        except (NotPlainError, RecursionError) as error:
            line = write([number, "error", describe(error)])
        while line:
            line = line[os.write(descriptor, line) :]

    return report


def describe(error: BaseException) -> str:
    """Its class and its text, whatever the text does."""
    try:
        return f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
    except BaseException:
        return type(error).__name__


def new_module(name: str) -> types.ModuleType:
    """An empty module that imports and pickle find under `name`."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    return module


def execute(code: str, module: types.ModuleType) -> None:
    """Run `code` as the text of `module`."""
    exec(compile(code, f"<{module.__name__}>", "exec"), module.__dict__)
