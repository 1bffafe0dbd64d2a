"""A Python program: accuracy is whether it passes the sample's tests, run in the sandbox.

1 if it passes all, else 0; with `reward.code.partial` the share that it passes. Tests are assert
statements, unittest cases and test functions, or pairs of what the program reads and writes; see
`code_tests`. What decides, and where, so that no program can fake it: `sandbox`.
"""

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

from easyvideor1.rewards.code_blocks import last_block
from easyvideor1.rewards.code_checks import Check, same_output
from easyvideor1.rewards.code_tests import CodeTests, ShapeError, Stdio, Step, parse_gold
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.lookup_program import lookup_program
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import (
    GoldError,
    ScorerUnavailableError,
    Task,
    register_task,
    require_gold,
)
from easyvideor1.rewards.sandbox import (
    Limits,
    Outcome,
    SandboxError,
    check_host,
    run_calls,
    run_stdio,
    run_tests,
)  # fmt: skip
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

MAX_PROGRAM_CHARS = 200_000
START_S = 10.0
"""Beside the runs of an answer: for a worker's sandbox to start, and for comparing."""

_LANGUAGES = ("", "python", "python3", "py", "text", "plaintext")


@register_task(ProblemType.code)
class Code(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        try:
            tests = _gold(sample)
        except GoldError:  # a hidden one, in a test split
            tests = CodeTests()
        if tests.stdio:
            what = "a Python program that reads standard input and writes standard output"
        else:
            what = f"Python code that defines {tests.entry or 'what is asked for'}"
        return f"Reason briefly, then give {what}, and nothing else, in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        program = read_program(answer)
        if len(program) > MAX_PROGRAM_CHARS:
            raise NoAnswer(f"a program of more than {MAX_PROGRAM_CHARS} characters")
        return program

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        tests = _gold(sample)
        try:
            check_host()  # starting it does not count
            budget = _Budget(config)
            if tests.stdio:
                passed = _stdio(value, sample, tests, budget)
            elif tests.texts:
                passed = _texts(value, sample, tests, budget)
            else:
                passed = _steps(value, tests, budget)
        except SandboxError as error:
            raise ScorerUnavailableError(f"sandbox: {error}") from None
        share = passed / tests.num_tests
        return share if config.code.partial else float(share == 1)

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        tests = _gold(sample)
        return tests.solution or lookup_program(tests)

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        block = last_block(answer.text)
        return block is None or block.alone

    def check_gold(self, sample: Sample, config: RewardConfig) -> None:
        require_gold(sample)
        _gold(sample)

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        return False

    def deadline_s(self, config: RewardConfig) -> float:
        """The sandbox keeps to `reward.deadline_s` itself, and what takes longer is wrong."""
        return config.deadline_s + START_S

    def check(self, config: RewardConfig) -> None:
        try:
            check_host()
        except SandboxError as error:
            raise UserError(
                f"problem_type code needs a sandbox to execute answers in, and this host has none: "
                f"{error}. Leave out samples of this type, or run elsewhere"
            ) from None


def read_program(answer: AnswerText) -> str:
    """The last code block of an answer; all of a tagged answer that has no block.

    Raises:
        NoAnswer: there is no program, or it is in another language.
    """
    block = last_block(answer.text)
    if block is None:
        if not answer.tagged:
            raise NoAnswer("no code block and no answer tag")
        if not answer.text:
            raise NoAnswer("empty")
        return answer.text
    if block.language not in _LANGUAGES:
        raise NoAnswer(f"a code block in {block.language[:20]}, not in python")
    if not block.code.strip():
        raise NoAnswer("an empty code block")
    return block.code


class _Budget:
    """What the runs of one answer may take."""

    def __init__(self, config: RewardConfig):
        self.config = config.code
        self._end = time.monotonic() + config.deadline_s

    def is_spent(self) -> bool:
        return time.monotonic() >= self._end

    def limits(self) -> Limits:
        return Limits(
            wall_s=max(0.01, self._end - time.monotonic()),
            cpu_s=self.config.cpu_s,
            memory_mb=self.config.memory_mb,
        )


def _stdio(program: str, sample: Sample, tests: CodeTests, budget: _Budget) -> int:
    passed = 0
    for case in tests.stdio:
        if budget.is_spent():
            break
        outcome = run_stdio(program, case.stdin, budget.limits())
        good = outcome.finished and same_output(
            _text(outcome), _expected(case, sample, tests, budget), budget.config.float_tolerance
        )
        passed += good
        if not (good or budget.config.partial):
            break
    return passed


def _text(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", errors="replace")


def _expected(case: Stdio, sample: Sample, tests: CodeTests, budget: _Budget) -> str:
    """What the case says, or what the gold program writes."""
    if case.stdout is not None:
        return case.stdout
    outcome = run_stdio(tests.solution, case.stdin, budget.limits())
    if not outcome.finished:
        raise GoldError(sample, f"a program that can read the input {case.stdin[:40]!r}")
    return _text(outcome)


def _steps(program: str, tests: CodeTests, budget: _Budget) -> int:
    """Assertions against constants: the values come out of the sandbox and are checked here.

    All tests run in one process. Where it ends before the last, and each test counts, the others
    get a process of their own.
    """
    checked = tests.checked
    passed = first = 0
    while first < len(checked) and not budget.is_spent():
        left = checked[first:]
        steps = [s for s in tests.steps if s.test in left or s.test not in checked]
        sent = [[s.test, "eval" if s.check else "exec", s.code] for s in steps]
        outcome = run_calls(program, tests.setup, sent, budget.limits())
        report = _report(outcome)
        verdicts = _verdicts(steps, report)
        told = list(takewhile(verdicts.__contains__, left))
        passed += sum(verdicts[test] for test in told)
        if len(told) == len(left) or not budget.config.partial or -1 in report:
            break
        # Where not even the first of them ended, it was that one.
        first += len(told) or 1
    return passed


def _report(outcome: Outcome) -> dict[int, tuple[str, Any]]:
    """Number of a step or test to what was reported of it, whatever the process wrote."""
    found: dict[int, tuple[str, Any]] = {}
    for line in outcome.output.splitlines():
        try:
            number, kind, value = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(number, int) and isinstance(kind, str):
            found.setdefault(number, (kind, value))
    return found


def _verdicts(steps: Sequence[Step], report: dict[int, tuple[str, Any]]) -> dict[int, bool]:
    """Whether a test is passed, for each that came to its end."""
    verdicts: dict[int, bool] = {}
    unfinished: set[int] = set()
    for place, step in enumerate(steps):
        kind, value = report.get(place, ("", None))
        if kind == "error":
            verdicts[step.test] = False
        elif step.check is not None and kind == "value":
            verdicts[step.test] = verdicts.get(step.test, True) and _passes(step.check, value)
        elif step.check is not None:
            unfinished.add(step.test)
    return {t: good for t, good in verdicts.items() if not (good and t in unfinished)}


def _passes(check: Check, value: Any) -> bool:
    try:
        return check(value)
    except RecursionError:
        return False


def _texts(program: str, sample: Sample, tests: CodeTests, budget: _Budget) -> int:
    """Tests of any other form, in a process apart from the program."""
    outcome = run_tests(program, tests.setup, tests.texts, tests.names, budget.limits())
    report = _report(outcome)
    for kind, text in report.values():
        if kind == "broken":
            raise GoldError(sample, f"tests that hand over plain values; {text}")
    return sum(report.get(place) == ("passed", "") for place in range(len(tests.texts)))


def _gold(sample: Sample) -> CodeTests:
    try:
        return _parsed(json.dumps([sample.answer, sample.extra], default=str))
    except ShapeError as error:
        raise GoldError(sample, str(error)) from None


@lru_cache(maxsize=1024)
def _parsed(gold: str) -> CodeTests:
    return parse_gold(*json.loads(gold))
