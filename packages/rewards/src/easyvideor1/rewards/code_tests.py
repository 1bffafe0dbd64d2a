"""The gold answer of a code sample: which tests it holds, and how each is decided.

Where a test is a run of statements with assertions of the form "expression against a constant", the
expression alone goes into the answer's process, its value comes out, and the constant never leaves
ours. All other tests run in a process apart, which sees the answer only through proxies. Programs
that read and write are run on each input, and their outputs compared here.
"""

import ast
import builtins
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from easyvideor1.rewards.code_checks import (
    Check,
    equals,
    is_among,
    is_close,
    is_exactly,
    is_within,
)  # fmt: skip

PYTHON = ("python", "python3", "py")
ENTRY_KEYS = ("entry", "entry_point", "fn_name", "function")
SOLUTION_KEYS = ("solution", "canonical_solution", "reference", "code")
SETUP_KEYS = ("setup", "test_setup_code", "test_imports")
LIST_KEYS = ("tests", "test", "test_list", "test_cases")
TEST_KEYS = (*LIST_KEYS, "input_output", "inputs", "outputs")
"""Fields that hold tests; of the gold answer, or of a sample's `extra` beside a gold program."""
SHAPES = (
    'tests of a Python program: {"tests": [...]} with assert statements, or {"inputs": [...], '
    '"outputs": [...]} with what it reads and writes (with "fn_name": arguments and results)'
)
MAX_POWER_BITS = 4_096
MAX_REPEATED = 100_000
CALL = "_call_of_the_test"


class ShapeError(ValueError):
    """A gold answer that holds no usable tests; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Step:
    """Done in the answer's process: a statement, or an expression whose value is checked."""

    test: int
    code: str
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Stdio:
    """One run of the program: what it reads, and should write; None is what the solution writes."""

    stdin: str
    stdout: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeTests:
    """The tests of one sample; exactly one of `steps`, `texts` and `stdio` is filled."""

    entry: str = ""
    setup: str = ""
    solution: str = ""
    steps: tuple[Step, ...] = ()
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """What `texts` use of the answer."""
    stdio: tuple[Stdio, ...] = ()

    @property
    def num_tests(self) -> int:
        """Tests that decide: those without a check only prepare others."""
        return len(self.checked) or len(self.texts) or len(self.stdio)

    @property
    def checked(self) -> list[int]:
        """Numbers of the tests in `steps` that check something."""
        return sorted({step.test for step in self.steps if step.check is not None})


def parse_gold(answer: Any, extra: dict[str, Any]) -> CodeTests:
    """The tests of a gold answer in any of the known shapes.

    Args:
        answer: a dict, a list of tests, either as JSON text, or the text of a program.
        extra: of the sample; holds the tests where the answer is a program.

    Raises:
        ShapeError: it has none of the shapes.
    """
    gold = _flat(_as_dict(answer, extra))
    language = str(gold.get("language", "python")).strip().lower()
    if language not in PYTHON:
        raise ShapeError(f'"language": "python"; {language!r} cannot be executed here')
    entry = str(_first(gold, ENTRY_KEYS) or "")
    if entry and not entry.isidentifier():
        raise ShapeError(f"the name of a function as its entry, not {entry!r}")
    setup = _first(gold, SETUP_KEYS) or ""
    common = {
        "entry": entry,
        "setup": "\n".join(map(str, setup)) if isinstance(setup, list) else str(setup),
        "solution": str(_first(gold, SOLUTION_KEYS) or ""),
    }
    tests = _first(gold, LIST_KEYS)
    if isinstance(tests, str):
        tests = [tests]
    if tests is not None:
        if not (isinstance(tests, list) and tests and all(isinstance(t, str) for t in tests)):
            raise ShapeError(SHAPES)
        return _of_texts(tests, common)
    return _of_cases(gold, common)


def _as_dict(answer: Any, extra: dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, str):
        program, answer = answer, _as_json(answer)
        if answer is None:
            beside = (*TEST_KEYS, *ENTRY_KEYS, *SETUP_KEYS)
            answer = {**{key: extra[key] for key in beside if key in extra}, "solution": program}
    if isinstance(answer, list):
        answer = {"tests": answer}
    if not isinstance(answer, dict):
        raise ShapeError(SHAPES)
    nested = answer.get("input_output")
    if isinstance(nested, str):
        nested = _as_json(nested)
    return {**answer, **nested} if isinstance(nested, dict) else answer


def _flat(gold: dict[str, Any]) -> dict[str, Any]:
    """The gold answer, with tests that are a dict, rows or JSON text as fields of its own."""
    tests = _first(gold, LIST_KEYS)
    if isinstance(tests, str):
        tests = _as_json(tests) or tests
    if isinstance(tests, list) and tests and all(isinstance(test, dict) for test in tests):
        tests = _columns(tests)
    if isinstance(tests, dict):
        return {**gold, **dict.fromkeys(LIST_KEYS), **tests}
    return {**gold, **dict.fromkeys(LIST_KEYS), "tests": tests}


def _as_json(text: str) -> dict | list | None:
    """The JSON object or array that a text is; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _first(gold: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((gold[key] for key in keys if gold.get(key) not in (None, "", [])), None)


def _columns(tests: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows {"input", "output"} as {"inputs", "outputs"}."""
    columns: dict[str, Any] = {"inputs": [], "outputs": []}
    for test in tests:
        if "input" not in test or "output" not in test:
            raise ShapeError('tests with "input" and "output" each')
        columns["inputs"].append(test["input"])
        columns["outputs"].append(test["output"])
        if name := _first(test, ENTRY_KEYS):
            columns["fn_name"] = name
    return columns


def _of_cases(gold: dict[str, Any], common: dict[str, Any]) -> CodeTests:
    inputs, outputs = gold.get("inputs"), gold.get("outputs")
    if not (isinstance(inputs, list) and inputs):
        raise ShapeError(SHAPES)
    if outputs is None and common["solution"] and not common["entry"]:
        outputs = [None] * len(inputs)
    if not (isinstance(outputs, list) and len(outputs) == len(inputs)):
        raise ShapeError('as many "outputs" as "inputs"')
    name = common["entry"]
    if not name:
        return CodeTests(
            **common,
            stdio=tuple(
                Stdio(_lines(i), None if o is None else _lines(o))
                for i, o in zip(inputs, outputs, strict=True)
            ),
        )
    # A function, or a method of a class Solution, as the judges of such data sets have it.
    find = f"try:\n    {CALL} = {name}\nexcept NameError:\n    {CALL} = Solution().{name}"
    steps = [Step(0, find)]
    for number, (arguments, result) in enumerate(zip(inputs, outputs, strict=True)):
        arguments, result = _arguments(arguments), _result(result)
        code = f"{CALL}({', '.join(map(repr, arguments))})"
        steps.append(Step(number, code, partial(_is_result, expected=result)))
    return CodeTests(**common, steps=tuple(steps))


def _lines(value: Any) -> str:
    """A text, or a list of its lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str | int | float) for line in value):
        return "\n".join(str(line) for line in value)
    raise ShapeError("inputs and outputs as texts, or lists of their lines")


def _arguments(value: Any) -> list[Any]:
    """Arguments as a list, or as text with one JSON value a line."""
    if isinstance(value, str):
        try:
            return [json.loads(line) for line in value.splitlines() if line.strip()]
        except ValueError:
            raise ShapeError("arguments as a list, or as JSON with one on each line") from None
    if not isinstance(value, list):
        raise ShapeError("arguments as a list")
    return value


def _result(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _is_result(data: Any, expected: Any) -> bool:
    """As in APPS: a result may be wrapped in a list of one, and tuples count as lists."""
    wrapped = isinstance(expected, list) and len(expected) == 1
    return equals(data, expected, loose=True) or (wrapped and equals(data, expected[0], loose=True))


def _of_texts(texts: list[str], common: dict[str, Any]) -> CodeTests:
    setup = _parsed(common["setup"], "the setup of tests")
    trees = [_parsed(text, f"test {number}") for number, text in enumerate(texts, start=1)]
    _require_standard_library([setup, *trees])
    entry = common["entry"] = common["entry"] or _only_name(trees, setup)
    try:
        steps = [
            step
            for number, tree in enumerate(trees)
            for step in _steps(_inlined(tree.body, entry), number, entry)
        ]
        found = CodeTests(**common, steps=tuple(steps))
        if found.checked:
            return found
    except _OtherForm:
        pass
    if any(_defines(tree, "check") for tree in trees) and not any(map(_calls_check, trees)):
        if not entry:
            raise ShapeError('"entry": the function that the tests\' check(candidate) is given')
        texts = [*texts[:-1], f"{texts[-1]}\ncheck({entry})"]
    return CodeTests(**common, texts=tuple(texts), names=_foreign_names(trees, setup, entry))


def _parsed(text: str, what: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ShapeError(f"Python; {what} is none: {error}") from None


def _require_standard_library(trees: Iterable[ast.Module]) -> None:
    for node in (node for tree in trees for node in ast.walk(tree)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for name in names:
            if name.partition(".")[0] not in sys.stdlib_module_names:
                raise ShapeError(f"tests that import the standard library alone, not {name!r}")


def _only_name(trees: Sequence[ast.Module], setup: ast.Module) -> str:
    """The one name of the answer that tests use; empty where they use several, or are given one."""
    names = _foreign_names(trees, setup, "")
    given = any(_defines(tree, "check") for tree in trees)
    return names[0] if len(names) == 1 and not given else ""


class _OtherForm(Exception):
    """A test that is no run of statements and assertions against constants."""


def _inlined(body: list[ast.stmt], entry: str) -> list[ast.stmt]:
    """The statements of a test; `def check(candidate)` and its call become what they do."""
    checks = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not checks:
        return body
    [check, *others] = checks
    subjects = [subject for node in body if (subject := _checked_by_call(node)) is not None]
    arguments = check.args
    if others or len(arguments.args) != 1 or len(subjects) > 1 or check.decorator_list:
        raise _OtherForm
    subject = subjects[0] if subjects else _name(entry)
    bind = ast.Assign([ast.Name(arguments.args[0].arg, ast.Store())], subject, lineno=1)
    rest = [node for node in body if node is not check and not _checked_by_call(node)]
    return [*rest, bind, *check.body]


def _name(entry: str) -> ast.expr:
    if not entry:
        raise _OtherForm
    return ast.Name(entry, ast.Load())


def _checked_by_call(node: ast.stmt) -> ast.expr | None:
    """Of a statement `check(subject)`: the subject."""
    match node:
        case ast.Expr(ast.Call(ast.Name("check"), [subject], [])):
            return subject
    return None


def _calls_check(tree: ast.Module) -> bool:
    return any(map(_checked_by_call, tree.body))


def _defines(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def _steps(body: Sequence[ast.stmt], test: int, entry: str) -> Iterable[Step]:
    """The steps of a test.

    Raises:
        _OtherForm: it asserts within a function, a loop or a branch, or decides in another way.
    """
    for node in body:
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
            if not node.test.value:
                raise _OtherForm
        elif isinstance(node, ast.Assert):
            code, check = _assertion(node.test, entry)
            yield Step(test, ast.unparse(code), check)
        elif _decides(node):
            raise _OtherForm
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield Step(test, ast.unparse(ast.fix_missing_locations(node)))


def _decides(node: ast.stmt) -> bool:
    """Whether a statement decides, in whole or part, if its test passes."""
    parts = list(ast.walk(node))
    if any(isinstance(part, ast.Assert) or _is_test_case(part) for part in parts):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(
        isinstance(part, ast.Raise | ast.Return)
        or (isinstance(part, ast.Call) and ast.unparse(part.func).endswith(("exit", "main")))
        for part in parts
    )


def _is_test_case(node: ast.AST) -> bool:
    """A test function, or a unittest case."""
    if isinstance(node, ast.ClassDef):
        return any("TestCase" in ast.unparse(base) for base in node.bases)
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _assertion(test: ast.expr, entry: str) -> tuple[ast.expr, Check]:
    """The expression to evaluate in the answer's process, and the check of its value.

    An equality with a constant cannot be met without knowing the constant, so its other side may be
    any expression. Looser checks take the value of a call of the answer alone: in `abs(f(x) - 3) <
    1` the answer might have its own `abs`.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _truth(test.operand, entry), partial(is_exactly, expected=False)
    if isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose"):
        return _isclose(test, entry)
    if not isinstance(test, ast.Compare):
        return _truth(test, entry), partial(is_exactly, expected=True)
    if len(test.ops) != 1:
        raise _OtherForm
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(operator, ast.Eq):
        if (wanted := _constant(right)) is not _NONE:
            return left, partial(equals, expected=wanted)
        if (wanted := _constant(left)) is not _NONE:
            return right, partial(equals, expected=wanted)
    wanted = _constant(right)
    if wanted is _NONE:
        raise _OtherForm
    if isinstance(operator, ast.Is) and (wanted is None or isinstance(wanted, bool)):
        return left, partial(is_exactly, expected=wanted)
    if isinstance(operator, ast.In) and isinstance(wanted, list | tuple | set):
        return _direct(left, entry), partial(is_among, values=list(wanted))
    if isinstance(operator, ast.Lt | ast.LtE):
        return _distance(left, wanted, isinstance(operator, ast.LtE), entry)
    raise _OtherForm


def _truth(node: ast.expr, entry: str) -> ast.expr:
    """Of any object, plain or not, whether it counts as true."""
    return ast.Call(ast.Name("bool", ast.Load()), [_direct(node, entry)], [])


def _direct(node: ast.expr, entry: str) -> ast.expr:
    """`node` if it calls, or is, something of the answer and not a built-in."""
    root = node
    while isinstance(root, ast.Call | ast.Attribute | ast.Subscript):
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name) or (hasattr(builtins, root.id) and root.id != entry):
        raise _OtherForm
    return node


def _distance(node: ast.expr, bound: Any, closed: bool, entry: str) -> tuple[ast.expr, Check]:
    """Of `abs(value - constant) < bound`."""
    inner = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if (
        not isinstance(node, ast.Call)
        or ast.unparse(node.func) not in ("abs", "math.fabs")
        or entry == "abs"
        or not (isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub))
        or not isinstance(bound, int | float)
    ):
        raise _OtherForm
    for value, other in ((inner.left, inner.right), (inner.right, inner.left)):
        wanted = _constant(other)
        if isinstance(wanted, int | float):
            check = partial(is_within, expected=wanted, tolerance=bound, closed=closed)
            return _direct(value, entry), check
    raise _OtherForm


def _isclose(call: ast.Call, entry: str) -> tuple[ast.expr, Check]:
    options = {str(word.arg): _constant(word.value) for word in call.keywords}
    if entry == "isclose" or len(call.args) != 2 or not options.keys() <= {"rel_tol", "abs_tol"}:
        raise _OtherForm
    for value, other in (call.args, reversed(call.args)):
        wanted = _constant(other)
        numbers = [wanted, *options.values()]
        if all(isinstance(number, int | float) for number in numbers):
            return _direct(value, entry), partial(is_close, expected=wanted, **options)
    raise _OtherForm


_NONE: Any = object()
"""That a node is no constant."""


def _constant(node: ast.expr) -> Any:
    """The value of a node of literals and arithmetic on them; `_NONE` if it is anything else."""
    try:
        return _evaluate(node)
    except (_OtherForm, ArithmeticError, TypeError, ValueError, RecursionError):
        return _NONE


def _evaluate(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value) if value is not ...:
            return value
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            kinds = {ast.List: list, ast.Tuple: tuple, ast.Set: set}
            return kinds[type(node)](map(_evaluate, items))
        case ast.Dict(keys, values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_evaluate(key): _evaluate(value) for key, value in pairs if key is not None}
        case ast.Call(ast.Name("set"), [], []):
            return set()
        case ast.Call(ast.Name("set" | "frozenset"), [items], []):
            return set(_evaluate(items))
        case ast.Call(ast.Name("tuple"), [items], []):
            return tuple(_evaluate(items))
        case ast.Call(ast.Name("list"), [items], []):
            return list(_evaluate(items))
        case ast.Call(ast.Name("float"), [ast.Constant(str(text))], []):
            return float(text)
        case ast.UnaryOp(ast.USub(), operand):
            return -_evaluate(operand)
        case ast.UnaryOp(ast.UAdd(), operand):
            return +_evaluate(operand)
        case ast.BinOp(left, operator, right):
            return _arithmetic(operator, _evaluate(left), _evaluate(right))
    raise _OtherForm


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    """Bounded in what it takes: data is not trusted either."""
    numbers = isinstance(left, int | float | complex) and isinstance(right, int | float | complex)
    match operator:
        case ast.Add() if numbers:
            return left + right
        case ast.Sub() if numbers:
            return left - right
        case ast.Div() if numbers:
            return left / right
        case ast.Mult() if numbers and _bits(left) + _bits(right) <= MAX_POWER_BITS:
            return left * right
        case ast.Pow() if numbers and _bits(left) * abs(right) <= MAX_POWER_BITS:
            return left**right
        case ast.Mult() if isinstance(left, str | list | tuple) and isinstance(right, int):
            if len(left) * right <= MAX_REPEATED:
                return left * right
    raise _OtherForm


def _bits(number: Any) -> int:
    return number.bit_length() if isinstance(number, int) else 1


def _foreign_names(trees: Iterable[ast.Module], setup: ast.Module, entry: str) -> tuple[str, ...]:
    """The names that tests use, and that neither they nor their setup define."""
    used = {
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    defined: set[str] = set()
    for node in (node for tree in (*trees, setup) for node in ast.walk(tree)):
        match node:
            case ast.Name(name, ast.Store() | ast.Del()):
                defined.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.arg():
                defined.add(node.arg)
            case ast.alias():
                defined.add(node.asname or node.name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                defined.add(name)
    foreign = {name for name in used - defined if not hasattr(builtins, name)}
    return tuple(sorted(foreign | {entry} - {""}))
