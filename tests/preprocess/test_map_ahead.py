"""The bounded map on threads."""

import threading
import time

import pytest

from easyvideor1.preprocess.map_ahead import map_ahead


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0.0)
        return number

    assert list(map_ahead(slow_first, range(20), threads=4)) == list(range(20))
    assert list(map_ahead(slow_first, [], threads=4)) == []


def test_no_more_items_are_begun_than_threads_allow() -> None:
    begun = 0
    lock = threading.Lock()

    def begin(number: int) -> int:
        nonlocal begun
        with lock:
            begun += 1
        return number

    for done, number in enumerate(map_ahead(begin, range(50), threads=3)):
        assert number == done
        time.sleep(0.002)
        assert begun <= done + 3


def test_an_error_comes_where_its_result_would() -> None:
    def fail_at_two(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    results = map_ahead(fail_at_two, range(5), threads=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)


def test_a_consumer_may_stop_early() -> None:
    begun: list[int] = []

    def begin(number: int) -> int:
        begun.append(number)
        return number

    results = map_ahead(begin, range(1000), threads=2)
    next(results)
    results.close()
    assert len(begun) <= 3
