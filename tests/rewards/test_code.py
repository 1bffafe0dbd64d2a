import textwrap
from typing import Any

import pytest

from easyvideor1.rewards import (
    GoldError,
    RewardConfig,
    extract,
    instruction,
    render_gold,
    reward,
)
from easyvideor1.rewards.code_checks import equals, same_output
from easyvideor1.rewards.code_tests import parse_gold
from easyvideor1.rewards.config import CodeConfig
from easyvideor1.rewards.sandbox.inside.values import decode, encode
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def sample(answer: Answer, **extra: Any) -> Sample:
    return Sample(
        id="c1", problem="Write it.", answer=answer, problem_type=ProblemType.code, extra=extra
    )


def accuracy(answer: Answer, program: str, *, extra: Any = None, **options: Any) -> float:
    config = RewardConfig(deadline_s=20.0, code=CodeConfig(**options))
    text = f"<answer>\n{textwrap.dedent(program)}\n</answer>"
    score = reward(sample(answer, **(extra or {})), text, config)
    assert score.status is ScoreStatus.ok, score.detail
    return score.parts["accuracy"]


ADD = "def add(a, b):\n    return a + b"


# Shapes of gold answers.


@pytest.mark.parametrize(
    "gold",
    [
        {"language": "python", "entry": "add", "tests": ["assert add(1, 2) == 3"]},
        {"tests": ["assert add(1, 2) == 3", "assert 3 == add(1, 2)"]},
        {"language": "Python3", "tests": "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'"},
        ["assert add(1, 2) == 3"],
        '["assert add(1, 2) == 3"]',
        '{"tests": ["assert add(1, 2) == 3"]}',
        {"entry_point": "add", "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n"},
        {"test": "def check(f):\n    '''Adds.'''\n    assert f(1, 2) == 3\n\ncheck(add)\n"},
        {"test_list": ["assert math.isclose(add(1, 2), 3.0000001, rel_tol=0.001)"],
         "test_imports": ["import math"]},
        {"test_list": ["assert isclose(2.9999999999999, add(1, 2))"],
         "setup": "from math import isclose"},
        {"fn_name": "add", "inputs": [[1, 2], ["a", "b"]], "outputs": [3, "ab"]},
        {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]},
        {"fn_name": "add", "inputs": ["1\n2"], "outputs": ["3"]},
        {"input_output": '{"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}'},
        [{"input": "[1]\n[2]", "output": "[1, 2]", "fn_name": "add"}],
    ],
)  # fmt: skip
def test_tests_of_a_function_in_every_known_shape(gold: Answer):
    assert accuracy(gold, ADD) == 1.0
    assert accuracy(gold, "def add(a, b):\n    return a - b if a == 1 else 7") == 0.0
    assert accuracy(gold, "def add(a, b):\n    raise ValueError") == 0.0
    assert accuracy(gold, "def subtract(a, b):\n    return a + b") == 0.0
    assert accuracy(gold, "syntax error") == 0.0


@pytest.mark.parametrize(
    "gold",
    [
        {"inputs": ["1 2\n", "3 4"], "outputs": ["3\n", "7"]},
        {"inputs": [["1 2"], ["3 4"]], "outputs": [["3"], [7]]},
        {"input_output": {"inputs": ["1 2\n"], "outputs": ["3\n"]}},
        [{"input": "1 2", "output": "3"}, {"input": "3 4", "output": "7"}],
        {"test_cases": [{"input": "1 2", "output": "3", "type": "stdin_stdout"}]},
    ],
)
def test_what_a_program_reads_and_writes_in_every_known_shape(gold: Answer):
    assert accuracy(gold, "print(sum(map(int, input().split())))") == 1.0
    assert accuracy(gold, "print(input())") == 0.0
    assert accuracy(gold, "print(sum(map(int, input().split())))\nraise ValueError") == 0.0
    assert accuracy(gold, "pass") == 0.0


def test_a_gold_program_is_run_on_the_inputs_that_come_with_it():
    gold = "n = int(input())\nprint(n * n)"
    inputs = {"inputs": ["3", "-4"]}
    assert accuracy(gold, "print(int(input()) ** 2)", extra=inputs) == 1.0
    assert accuracy(gold, "print(int(input()) * 3)", extra=inputs) == 0.0
    assert render_gold(sample(gold, **inputs)) == f"<answer>{gold}</answer>"
    assert accuracy(gold, gold, extra={"tests": [{"input": "3", "output": "9"}]}) == 1.0
    assert accuracy(ADD, ADD, extra={"tests": ["assert add(1, 1) == 2"]}) == 1.0
    with pytest.raises(GoldError, match="a program that can read the input 'x'"):
        reward(sample(gold, inputs=["x"]), "<answer>print(1)</answer>")


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("def add(a, b): return a + b", "tests of a Python program"),
        (5, "tests of a Python program"),
        ({}, "tests of a Python program"),
        ({"tests": []}, "tests of a Python program"),
        ({"tests": [1]}, "tests of a Python program"),
        ({"inputs": ["1"]}, 'as many "outputs" as "inputs"'),
        ({"inputs": ["1"], "outputs": []}, 'as many "outputs" as "inputs"'),
        ({"inputs": [{}], "outputs": ["1"]}, "inputs and outputs as texts"),
        ({"fn_name": "f", "inputs": [1], "outputs": [1]}, "arguments as a list"),
        ({"tests": [{"input": "1"}]}, '"input" and "output"'),
        ({"tests": ["assert f( == 1"]}, "Python; test 1 is none"),
        ({"tests": ["import numpy\nassert f(1) == 1"]}, "standard library alone, not 'numpy'"),
        ({"language": "rust", "tests": ["assert"]}, '"language": "python"; \'rust\''),
        ({"entry": "f()", "tests": ["assert f() == 1"]}, "name of a function"),
        ({"tests": ["def check(f):\n    for x in f(3): assert x\n"]}, '"entry"'),
    ],
)
def test_a_gold_answer_without_usable_tests_is_an_error(gold: Answer, expected: str):
    with pytest.raises(GoldError, match=r"sample c1: answer: got .*, expected .*") as caught:
        render_gold(sample(gold))
    assert expected in str(caught.value)


# Assertions. All of them hold of the first program and fail of the second.

F = "def f(*args):\n    return {!r}"


@pytest.mark.parametrize(
    ("test", "right", "wrong"),
    [
        ("assert f() == 3", 3, 4),
        ("assert f() == 3", 3.0, "3"),
        ("assert f() == True", 1, 0),
        ("assert f() == -2.5e3 + 1j", -2500 + 1j, -2500),
        ("assert f() == 2 ** 70 - 1", 2**70 - 1, 2**70),
        ("assert f() == 'it\\'s'", "it's", "its"),
        ("assert f() == '\\ud800'", "\ud800", "?"),
        ("assert f() == b'x'", b"x", "x"),
        ("assert f() == b'x'", bytearray(b"x"), b"y"),
        ("assert f() == [1, [2, None]]", [1, [2, None]], [1, [2, 0]]),
        ("assert f() == (1, 2)", (1, 2), [1, 2]),
        ("assert f() == [0] * 4", [0] * 4, [0] * 5),
        ("assert f() == {1, 2}", {2, 1}, {1}),
        ("assert f() == {1, 2}", frozenset({1, 2}), {1, 2, 3}),
        ("assert f() == set()", set(), {1}),
        ("assert f() == {'a': [1], (1, 2): {3}}", {(1, 2): {3}, "a": [1]}, {"a": [1]}),
        ("assert f() == {1: 2}", {1: 2}, {1: 3}),
        ("assert f() == {}", {}, {1: 2}),
        ("assert f() is None", None, 0),
        ("assert f() is True", True, 1),
        ("assert f() is False", False, 0),
        ("assert f()", [0], []),
        ("assert not f()", "", "x"),
        ("assert f() in (1, 2)", 2, 3),
        ("assert abs(f() - 1.5) < 1e-6", 1.5000001, 1.6),
        ("assert abs(1.5 - f()) <= 0.5", 2, 2.1),
        ("assert math.isclose(f(), 1e9, rel_tol=1e-3)", 1.0001e9, 1.1e9),
        ("assert sorted(f()) == [1, 2]", [2, 1], [1, 3]),
        ("assert set(f()) == set([1, 2])", [1, 2, 1], [1]),
        ("assert tuple(f()) == tuple([1])", [1], [2]),
        ("assert len(f()) == 2", "ab", "abc"),
        ("assert f()[0] == 1", [1], [2]),
        ("assert str(f()) == '7'", 7, 8),
        ("x = f()\nassert x == 1", 1, 2),
        ("'''Says what it tests.'''\nassert f() == 1, 'with a message'", 1, 2),
        ("import math\nassert round(f(), 2) == 3.14", 3.141, 3.2),
        ("class Box:\n    def __init__(self, x): self.x = x\nassert f(Box(1)) == 1", 1, 2),
        # In a process apart.
        ("assert f() == f() == 3", 3, 4),
        ("assert f() > 2", 3, 2),
        ("assert f() != 2", 3, 2),
        ("assert f() not in (2, 4)", 3, 2),
        ("assert isinstance(f(), int)", 3, "3"),
        ("assert all(x > 1 for x in f())", [2, 3], [1]),
        ("for i in range(3):\n    assert f(i) == 7", 7, 8),
        ("wanted = [7]\nassert f() == wanted.pop()", 7, 8),
        ("if f() != 7:\n    raise ValueError", 7, 8),
        ("def test_it():\n    assert f() == 7", 7, 8),
        ("import unittest\nclass T(unittest.TestCase):\n"
         "    def test(self):\n        self.assertEqual(f(), 7)", 7, 8),
        ("import unittest\nclass T(unittest.TestCase):\n"
         "    def test(self):\n        self.assertIn(7, f())\nunittest.main()", [7], [8]),
        ("from decimal import Decimal\nassert f() == Decimal('0.5')", 0.5, 0.4),
        ("from collections import Counter\nassert f() == Counter('aab')", {"a": 2, "b": 1}, {}),
        ("assert sum(f()) / 2 == 2", [1, 3], [1, 4]),
        ("lst = list(range(3))\nassert f(lst) == lst[0]", 0, 1),
    ],
)  # fmt: skip
def test_an_assertion_holds_where_it_should(test: str, right: Any, wrong: Any):
    gold: Answer = {"entry": "f", "tests": [test]}
    assert accuracy(gold, F.format(right)) == 1.0
    assert accuracy(gold, F.format(wrong)) == 0.0


@pytest.mark.parametrize(
    "test",
    [
        "a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]",
        "for a in [[3, 1, 2], [2, 3, 1]]:\n    f(a)\n    assert a == [1, 2, 3]",
    ],
)
def test_arguments_changed_in_place_are_seen(test: str):
    assert accuracy({"tests": [test]}, "def f(a): a.sort()") == 1.0
    assert accuracy({"tests": [test]}, "def f(a): return sorted(a)") == 0.0


STACK = """
    class Stack:
        def __init__(self, items=()):
            self.items = list(items)
        def push(self, item):
            self.items.append(item)
            return self
        def pop(self):
            return self.items.pop()
        def __len__(self):
            return len(self.items)
        def __iter__(self):
            return iter(self.items)
        def __getitem__(self, at):
            return self.items[at]
        def __add__(self, other):
            return Stack([*self.items, *other.items])
        def __eq__(self, other):
            return self.items == other.items
        def __enter__(self):
            return self
        def __exit__(self, *_):
            self.items.clear()
"""


@pytest.mark.parametrize(
    "test",
    [
        "s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert len(s) == 1",
        "assert Stack([1]).push(2).pop() == 2",
        "for n in range(4):\n    s = Stack(range(n))\n    assert len(s) == n\n"
        "    assert list(s) == list(range(n))",
        "for n in (1, 2):\n    assert Stack([n]) + Stack([3]) == Stack([n, 3])",
        "for n in (1, 2):\n    assert not Stack([n]) == Stack([3])\n    assert Stack([n])[0] == n",
        "for n in (1, 2):\n    s = Stack([n])\n    assert n in s\n    assert s.items == [n]\n"
        "    assert isinstance(s, Stack)",
        "for n in (1, 2):\n    s = Stack()\n    s.name = n\n    assert s.name == n\n"
        "    assert bool(s) is False",
        "for n in (1,):\n    with Stack([n]) as s:\n        assert s.pop() == n",
        "for n in (1,):\n    try:\n        Stack().pop()\n        assert False\n"
        "    except IndexError as error:\n        assert 'empty' in str(error)",
        "def square(n): return n * n\nassert Stack([square(3)]).pop() == square(3)",
    ],
)  # fmt: skip
def test_classes_are_used_by_tests_of_every_form(test: str):
    assert accuracy({"tests": [test]}, STACK) == 1.0
    assert accuracy({"tests": [test]}, STACK.replace("class Stack", "class Queue")) == 0.0
    broken = STACK.replace("list(items)", "[99, *items]").replace("append(item)", "copy()")
    broken = broken.replace("self.items.pop()", "self.items.pop(0)")
    assert accuracy({"tests": [test]}, broken) == 0.0


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("KeyError('k')", "KeyError as e: assert e.args == ('k',)"),
        ("ValueError('bad', 3)", "ValueError as e: assert e.args == ('bad', 3)"),
        ("FileNotFoundError(2, 'gone')", "OSError as e: assert e.errno == 2"),
        ("UnicodeDecodeError('utf-8', b'x', 0, 1, 'why')", "UnicodeError as e: assert e.reason"),
        ("type('Mine', (LookupError,), {})(object())", "LookupError: pass"),
        ("Exception('plain')", "Exception as e: assert str(e) == 'plain'"),
        ("SystemExit(0)", "Exception: pass"),
    ],
)
def test_an_exception_arrives_as_it_was_raised(raised: str, expected: str):
    test = f"for n in (1,):\n    try: f(n)\n    except {expected}\n    else: assert False"
    assert accuracy({"tests": [test]}, f"def f(n): raise {raised}") == 1.0
    assert accuracy({"tests": [test]}, "def f(n): return n") == 0.0


def test_exceptions_that_tests_expect():
    test = """
class_of = {0: ZeroDivisionError, 1: Refused}
for n in (0, 1):
    try:
        f(n)
    except class_of[n]:
        continue
    raise AssertionError
"""
    program = """
        class Refused(ValueError): pass
        def f(n):
            if n:
                raise Refused("no")
            return 1 // 0
    """
    assert accuracy({"tests": [test]}, program) == 1.0
    assert accuracy({"tests": [test]}, program.replace("raise Refused", "raise ValueError")) == 0.0


def test_a_test_that_hands_over_a_function_works_where_it_runs_beside_the_answer():
    apply = "def apply(f, x): return f(x)"
    assert accuracy({"tests": ["assert apply(lambda x: x + 1, 3) == 4"]}, apply) == 1.0
    gold: Answer = {"tests": ["for n in (1, 2):\n    assert apply(lambda x: x + n, 3) == 3 + n"]}
    with pytest.raises(GoldError, match="a function of the test cannot be given to the answer"):
        reward(sample(gold), f"<answer>{apply}</answer>")


def test_a_method_of_a_class_solution_counts_as_the_function():
    gold: Answer = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}
    method = "class Solution:\n    def add(self, a, b):\n        return a + b"
    assert accuracy(gold, method) == 1.0
    assert accuracy(gold, method.replace("a + b", "a - b")) == 0.0


def test_results_written_in_json_equal_tuples_and_keys_that_are_numbers():
    gold: Answer = {"fn_name": "f", "inputs": [[]], "outputs": [{"1": [1, [2, 3]]}]}
    assert accuracy(gold, "def f(): return {1: (1, (2, 3))}") == 1.0
    assert accuracy(gold, "def f(): return {1: (1, (2, 4))}") == 0.0


# How much of it passes.


def test_all_tests_must_pass_unless_shares_count():
    gold: Answer = {"tests": [f"assert f({n}) == {n * n}" for n in range(4)]}
    linear = "def f(x): return x"
    assert accuracy(gold, linear) == 0.0
    assert accuracy(gold, linear, partial=True) == 0.5
    stdio: Answer = {"inputs": ["1", "2", "3", "4"], "outputs": ["1", "4", "9", "16"]}
    assert accuracy(stdio, "print(input())", partial=True) == 0.25
    loops: Answer = {"tests": [f"for x in ({n},): assert f(x) == x * x" for n in range(4)]}
    assert accuracy(loops, linear, partial=True) == 0.5


@pytest.mark.parametrize("end", ["while True: pass", "import os; os._exit(0)", "1 / 0"])
def test_a_test_that_ends_the_process_costs_only_itself_where_shares_count(end: str):
    gold: Answer = {"tests": ["x = 2", *(f"assert f({n}) == {n} * 2" for n in range(4))]}
    program = f"def f(n):\n    if n == 1:\n        {end}\n    return n * 2"
    assert accuracy(gold, program, partial=True, cpu_s=1) == 0.75
    assert accuracy(gold, program, cpu_s=1) == 0.0


def test_all_runs_of_an_answer_share_one_deadline():
    gold: Answer = {"inputs": ["1"] * 50, "outputs": ["1"] * 50}
    slow = "<answer>import time; time.sleep(0.6); print(1)</answer>"
    config = RewardConfig(deadline_s=1.0, code=CodeConfig(partial=True))
    share = reward(sample(gold), slow, config).parts["accuracy"]
    assert share <= 0.04


# What a program finds.


@pytest.mark.parametrize(
    "program",
    [
        "print(input() + input())",
        "import sys; print(sys.stdin.read().replace('\\n', ''))",
        "import sys; print(''.join(line.strip() for line in sys.stdin))",
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().replace(b'\\n', b''))",
        "import os; os.write(1, os.read(0, 100).replace(b'\\n', b''))",
        "print(open(0).read().replace('\\n', ''))",
        "print(open('/dev/stdin').read().replace('\\n', ''))",
        "def main():\n    print(input() + input())\nif __name__ == '__main__':\n    main()",
        "import sys\nprint(input() + input())\nsys.exit()",
        "print(input() + input()); exit(0)",
        "print(input(), end=''); print(input())",
        "import threading, sys\nthreading.stack_size(2 ** 27)\nsys.setrecursionlimit(10 ** 6)\n"
        "def main(n=20000): return main(n - 1) if n else print(input() + input())\n"
        "thread = threading.Thread(target=main); thread.start(); thread.join()",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
        "    print(''.join(pool.map(str, [input(), input()])))",
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n"
        "    print(input() + input())\nasyncio.run(main())",
        "open('note', 'w').write(input() + input()); print(open('note').read())",
        "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n"
        "    f.write(input() + input()); f.seek(0); print(f.read())",
        "import os\nos.makedirs('a/b'); os.chdir('a'); os.rename('b', 'c'); os.rmdir('c')\n"
        "print(input() + input())",
        "import atexit; atexit.register(lambda: print(input() + input()))",
        "import logging, sqlite3, xml.dom.minidom, email, http.client, zoneinfo, subprocess\n"
        "print(input() + input())",
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))\n"
        "print(input() + input())",
        "import random, uuid, secrets, os\nrandom.random(); uuid.uuid4(); os.urandom(3)\n"
        "print(input() + input())",
        "import os, signal\nsignal.signal(signal.SIGALRM, lambda *_: print(input() + input()))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()",
        "import dataclasses, pickle, copy\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        "assert pickle.loads(pickle.dumps(P(3))) == copy.deepcopy(P(3))\nprint(input() + input())",
    ],
)  # fmt: skip
def test_an_ordinary_program_runs_as_ever(program: str):
    gold: Answer = {"inputs": ["ab\ncd", "é漢\n🙂\n"], "outputs": ["abcd", "é漢🙂"]}
    assert accuracy(gold, program) == 1.0


def test_large_inputs_and_outputs_pass():
    numbers = " ".join(map(str, range(100_000)))
    gold: Answer = {"inputs": [numbers], "outputs": [numbers.replace(" ", "\n")]}
    assert accuracy(gold, "print(*input().split(), sep='\\n')") == 1.0


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        ("1  2 \r\n\n", "\n1 2", True),
        ("1\n2", "1 2", False),
        ("a\n\nb", "a\nb", False),
        ("0.10", "0.1", False),
        ("", "", True),
        ("", "x", False),
    ],
)
def test_outputs_are_compared_by_words_and_lines(output: str, expected: str, same: bool):
    assert same_output(output, expected) is same


def test_numbers_in_outputs_may_differ_where_a_tolerance_is_set():
    assert same_output("x 0.3333333", "x 0.33333334", 1e-6)
    assert same_output("1000000.1", "1000000", 1e-6)
    assert not same_output("x 0.34", "x 0.33", 1e-6)
    assert not same_output("y 0.33", "x 0.33", 1e-6)
    assert not same_output("0.33 1", "0.33", 1e-6)
    gold: Answer = {"inputs": ["1"], "outputs": ["0.333333"]}
    assert accuracy(gold, "print(int(input()) / 3)") == 0.0
    assert accuracy(gold, "print(int(input()) / 3)", float_tolerance=1e-5) == 1.0


# Extraction.


@pytest.mark.parametrize(
    ("text", "program", "format"),
    [
        ("<answer>print(1)</answer>", "print(1)", 1.0),
        ("<answer>\n```python\nprint(1)\n```\n</answer>", "print(1)", 1.0),
        ("<answer>```\nprint(1)\n```</answer>", "print(1)", 1.0),
        ("<answer>Here:\n```py\nprint(1)\n```\nDone.</answer>", "print(1)", 0.5),
        ("<answer>\n```python\nprint(1)\n</answer>", "print(1)", 0.5),
        ("<answer>```python\na\n```\nor\n```python\nb\n```</answer>", "b", 0.5),
        ("So:\n```python\nif x:\n    print(1)\n```\n", "if x:\n    print(1)", 0.0),
        ("- So:\n  ```python\n  if x:\n      print(1)\n  ```\n", "if x:\n    print(1)", 0.0),
        ("<think>```python\na\n```</think><answer>b</answer>", "b", 1.0),
        ("<answer>a</answer> No: <answer>b</answer>", "b", 0.5),
    ],
)
def test_the_program_is_the_last_code_block_or_the_tag(text: str, program: str, format: float):
    extracted = extract(text, sample(["assert f() == 1"]))
    assert (extracted.value, extracted.format) == (program, format)


@pytest.mark.parametrize(
    "text",
    [
        "", "<answer></answer>", "print(1)", "I would add the two numbers.",
        "<answer>```java\nclass A {}\n```</answer>", "<answer>```python\n\n```</answer>",
        f"<answer>{'x' * 300_000}</answer>",
    ],
)  # fmt: skip
def test_a_text_without_a_program_is_no_answer(text: str):
    assert extract(text, sample(["assert f() == 1"])).status is ScoreStatus.no_answer


def test_the_instruction_names_the_function_or_the_streams():
    assert "defines add," in instruction(sample({"entry": "add", "tests": ["assert add(1) == 1"]}))
    assert "defines add," in instruction(sample(["assert add(1) == 1", "assert len(add(2)) > 3"]))
    assert "defines what is asked for," in instruction(sample(["assert add(1) == sub(1)"]))
    assert "defines what is asked for," in instruction(sample(None))
    stdio: Answer = {"inputs": ["1"], "outputs": ["1"]}
    assert "reads standard input" in instruction(sample(stdio))


@pytest.mark.parametrize(
    "gold",
    [
        {"tests": ["assert add(1, 2) == 3", "assert add(b=1, a=(2,)) is None"]},
        {"tests": ["assert f([1]) in (7, 8)", "assert not f('x')", "assert abs(f(2) - 3) < 1"]},
        {"tests": ["assert sorted(f({1: 2})) == [1, 2]", "assert f({3}) == {4}"]},
        {"entry": "f", "test": "def check(g):\n    assert g(1) == 2\n    assert g(2)\n"},
        {"inputs": ["a\n", "b"], "outputs": ["é\n", "x\ny\n"]},
        {"fn_name": "f", "inputs": [[1, "a"], [[2], None]], "outputs": [[3], {"a": 1}]},
        {"tests": ["for n in (1, 2): assert f(n) == n"], "solution": "def f(n): return n"},
    ],
)
def test_a_gold_answer_scores_one(gold: Answer):
    score = reward(sample(gold), render_gold(sample(gold)))
    assert (score.value, score.status) == (1.0, ScoreStatus.ok)


def test_what_no_table_can_answer_is_shown_as_tests_without_a_program():
    gold: Answer = {"tests": ["for n in (1, 2): assert f(n) == n"]}
    assert render_gold(sample(gold)) == (
        "<answer># The data hold tests of this program, not the program.\n</answer>"
    )


# Values as they leave the sandbox.

VALUES: list[Any] = [
    None, True, 0, -1, 2**53, -(2**200), 1.5, float("inf"), -0.0, 1 - 2j, "", "é\ud800", b"\x00",
    [], [1, [2]], (), ((1,),), set(), {1, (2, "x")}, frozenset({1}), {}, {"a": {1: [None]}},
    range(1, 9, 2),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_out_as_they_are(value: Any):
    data = encode(value)
    assert decode(data) == value
    assert type(decode(data)) is type(value)
    for other in VALUES:
        assert equals(data, other) == (value == other), other


@pytest.mark.parametrize(
    "data",
    [
        [], [[]], [None], ["?"], ["i"], ["i", "x"], ["i", 5], ["f", "nan"], ["f", None], ["c", "1"],
        ["y", "xx"], ["d", 1], ["d", [], 1], ["s", ["l"]], ["s", ["o"]], ["r"], ["r", 1, 2, 0],
        ["D", "x"], ["D", "1e999999999"], ["F", 1, 0], ["F", "a", "b"], ["o", 0, 1], 1.5, {},
        ["F", ["i", "0x" + "f" * 3000], 7], ["z", *range(2000)], ["i", ["l"]], ["f", ["i", "0x1"]],
    ],
)  # fmt: skip
def test_a_report_that_makes_no_sense_equals_nothing(data: Any):
    for value in [*VALUES, 3, "x"]:
        assert equals(data, value) is False


def test_nesting_has_a_bound():
    values: list[Any] = [1, 1]
    for _ in range(500):
        values = [["l", values[0]], [values[1]]]
    assert equals(*values) is False


@pytest.mark.parametrize(
    "text",
    ["9 ** 9 ** 9", "'a' * 10 ** 9", "[0] * 10 ** 9", "2 ** 10000000", "(-" + "-" * 500 + "1)"],
)
def test_constants_of_tests_are_bounded(text: str):
    found = parse_gold({"tests": [f"assert f() == {text}"]}, {})
    assert found.texts or found.steps


@pytest.mark.parametrize(
    ("option", "value"),
    [("cpu_s", 0), ("memory_mb", 8), ("float_tolerance", -1.0), ("float_tolerance", 1.0)],
)
def test_settings_out_of_range_are_refused(option: str, value: Any):
    with pytest.raises(UserError, match=f"reward.code.{option} must be"):
        CodeConfig(**{option: value})
