"""Numbers of a step that come from several processes."""

from easyvideor1.preprocess.store import LoadCounts
from easyvideor1.train.metrics import CacheMetrics, rates


def test_the_hit_rate_is_that_of_all_processes_since_the_last_step() -> None:
    metrics = CacheMetrics("rollout")
    first = [LoadCounts(hits=6, misses=2), LoadCounts(hits=0, misses=0)]
    assert metrics.since_last(first) == {
        "cache/hit_rate/rollout": 0.75,
        "cache/misses/rollout": 2.0,
    }
    second = [LoadCounts(hits=9, misses=2), LoadCounts(hits=0, misses=1)]
    assert metrics.since_last(second) == {
        "cache/hit_rate/rollout": 0.75,
        "cache/misses/rollout": 1.0,
    }
    assert metrics.since_last(second) == {}, "a step without media has no hit rate"


def test_a_rate_is_tokens_over_the_seconds_of_its_phase_alone() -> None:
    seconds = {"seconds/rollout": 40.0, "seconds/update": 8.0, "seconds/step": 50.0}
    counted = {"learner/tokens": 2000.0, "rollout/tokens": 400.0}
    assert rates(counted, seconds) == {
        "learner/tokens_per_s": 250.0,
        "rollout/tokens_per_s": 10.0,
    }
    assert rates({"rollout/tokens": 0.0}, seconds) == {}, "a step without an update has no rate"
