import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyvideor1.rewards.json_in_text import MAX_STARTS, find_json


def values(text: str) -> list:
    return [found.value for found in find_json(text)]


def test_json_is_found_in_prose_and_fences_in_order():
    text = 'First [1] and\n```json\n{"time": [2, 6]}\n``` then {"a": {"b": 1}} and {broken'
    assert values(text) == [[1], {"time": [2, 6]}, {"a": {"b": 1}}]
    assert [text[f.start : f.end] for f in find_json(text)][1] == '{"time": [2, 6]}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"time": [2, 6,],}', {"time": [2, 6]}),
        ("{'time': [2, 6]}", {"time": [2, 6]}),
        ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ("{'a': '\\u00e9\\n'}", {"a": "é\n"}),
        ("{0: [1, 2], 1.5: [3]}", {"0": [1, 2], "1.5": [3]}),
        ("[(1, 2), (3, 4,)]", [[1, 2], [3, 4]]),
        ("[True, False, None, true, null]", [True, False, None, True, None]),
        ("[.5, 1., -3e2]", [0.5, 1.0, -300.0]),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{"a": 1, "a": 1}', {"a": 1}),
        ("[[], {}, ()]", [[], {}, []]),
    ],
)
def test_json_as_models_write_it_is_read(text: str, value: object):
    assert values(f"So {text} it is.") == [value]


@pytest.mark.parametrize(
    "text",
    [
        "", "no", "{", "[", "{1, 2}", "[a]", "{a: 1}", "[1 2]", "[1,,2]", "[,]", "[01]", "[1_000]",
        "{'a' 1}", "{'a': 1 'b': 2}", "[NaN]", "[Infinity, 1]", "['a]", "[“a”]", "[1.2.3]",
        '{"a": 1, "a": 2}', "{'a': 1, 'a': 2}", "[" + "9" * 10_000 + "]", "[" * 100_000,
        "{'a':" * 60 + "1" + "}" * 60, "[" * MAX_STARTS + "1", "\\{1,2\\}",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_or_none_is_not_read(text: str):
    assert values(text) == []


def test_a_value_in_a_broken_one_is_found():
    assert values('{"time": [2, 6}, [3, 4]') == [[3, 4]]
    assert values("\ud800 [1]") == [[1]]


@pytest.mark.timeout(60)  # quadratic time would take far longer
@pytest.mark.parametrize("unit", ["[", "{", "['", "[1,", "{'a':", '{"a":"', "[(", "['a',", '["\\'])
def test_hostile_texts_take_little_time(unit: str):
    assert isinstance(values(unit * (1_000_000 // len(unit))), list)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=15,
)  # fmt: skip


@settings(deadline=None, derandomize=True)
@given(st.lists(PLAIN, max_size=4) | st.dictionaries(st.text(max_size=5), PLAIN))
def test_any_json_is_read_as_the_standard_library_does(value: object):
    assert values(f"prose {json.dumps(value)} prose") == [value]
    assert values(f"{json.dumps(value, ensure_ascii=False, indent=1)}") == [value]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(), st.text("ab'\"\\\n é", max_size=8)), max_size=5))
def test_any_python_literal_is_read_as_python_does(value: list):
    expected = [list(item) for item in ast.literal_eval(repr(value))]
    assert values(f"so {value!r}.") == [expected]
