"""Which sample is drawn when: shares of sources, easy before hard, and positions that stay."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easyvideor1.preprocess.config import CurriculumConfig
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples, write_samples
from easyvideor1.train.config import TrainConfig, register
from easyvideor1.train.data import TrainingData
from easyvideor1.train.orders import Order, apportion, order_of

SHUFFLED = CurriculumConfig()
SORTED = CurriculumConfig(epochs=1, jitter=0.0)


@pytest.fixture
def mixed(table):
    """40 samples of `web`, 10 of `math`, 10 without a source; the harder the later."""
    sources = ["web"] * 40 + ["math"] * 10 + [""] * 10
    return [
        replace(table.sample(index), source=source, pass_rate=1 - index / 60)
        for index, source in enumerate(sources)
    ]


def drawn(order: Order, start: int, stop: int) -> list[int]:
    return [order[position].index for position in range(start, stop)]


def test_without_weights_every_sample_is_drawn_once_an_epoch_in_the_order_of_the_seed(table):
    samples = [table.sample(index) for index in range(12)]
    order = order_of(samples, seed=3, weights={}, curriculum=SHUFFLED)
    assert sorted(drawn(order, 0, 12)) == sorted(drawn(order, 12, 24)) == list(range(12))
    # What earlier runs drew, which go on in it.
    assert drawn(order, 12, 24) == np.random.default_rng((3, 1)).permutation(12).tolist()


def test_sources_are_drawn_by_weight_and_each_goes_through_its_own_epochs(mixed):
    weights = {"web": 1.0, "math": 3.0, "": 0.0}
    order = order_of(mixed, seed=0, weights=weights, curriculum=SHUFFLED)
    for epoch in range(4):
        counts = Counter(mixed[i].source for i in drawn(order, 60 * epoch, 60 * (epoch + 1)))
        assert counts == {"web": 15, "math": 45}
    math = [i for i in drawn(order, 0, 240) if mixed[i].source == "math"]
    assert len(math) == 180
    for start in range(0, 180, 10):
        assert sorted(math[start : start + 10]) == list(range(40, 50))
    web = [i for i in drawn(order, 0, 240) if mixed[i].source == "web"]
    assert sorted(web[:40]) == list(range(40))
    firsts = [order[position].index for position in range(240) if order[position].is_first]
    assert sorted(firsts) == list(range(50))


def test_easy_samples_come_first_as_far_as_asked_for_and_for_so_many_epochs(mixed):
    def order(jitter, epochs=1):
        config = CurriculumConfig(jitter=jitter, epochs=epochs)
        return order_of(mixed, seed=0, weights={}, curriculum=config)

    assert drawn(order(jitter=0.0), 0, 60) == list(range(60))
    assert sorted(drawn(order(jitter=0.0), 60, 120)) == list(range(60))
    assert drawn(order(jitter=0.0), 60, 120) != list(range(60))
    assert drawn(order(jitter=0.0, epochs=2), 60, 120) == list(range(60))

    def rank_correlation(jitter: float) -> float:
        return float(np.corrcoef(drawn(order(jitter=jitter), 0, 60), np.arange(60))[0, 1])

    assert 1 > rank_correlation(0.2) > 0.9 > rank_correlation(0.6) > abs(rank_correlation(1.0))


def test_equally_hard_samples_are_shuffled(table):
    samples = [replace(table.sample(i), pass_rate=float(i < 20)) for i in range(40)]
    draws = drawn(order_of(samples, seed=0, weights={}, curriculum=SORTED), 0, 40)
    assert sorted(draws[:20]) == list(range(20)) and draws[:20] != list(range(20))


def test_each_source_has_a_curriculum_of_its_own(mixed):
    weights = {"web": 1.0, "math": 1.0, "": 1.0}
    order = order_of(mixed, seed=0, weights=weights, curriculum=SORTED)
    math = [i for i in drawn(order, 0, 30) if mixed[i].source == "math"]
    assert math == list(range(40, 40 + len(math))) and len(math) > 5


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    weights=st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    position=st.integers(0, 100),
)
def test_distinct_samples_are_counted_as_they_are_drawn(sizes, weights, position):
    from tests.train.conftest import make_sample

    sources = [f"source {number}" for number, size in enumerate(sizes) for _ in range(size)]
    samples = [replace(make_sample(i), source=source) for i, source in enumerate(sources)]
    shares = {f"source {n}": w for n, w in zip(range(len(sizes)), weights, strict=False)}
    order = order_of(samples, seed=1, weights=shares, curriculum=SHUFFLED)
    draws = drawn(order, 0, position)
    assert order.num_distinct(position) == len(set(draws))
    assert sum(order[p].is_first for p in range(position)) == len(set(draws))


@given(
    weights=st.dictionaries(st.text(max_size=3), st.floats(1e-3, 1e3), min_size=1, max_size=8),
    total=st.integers(8, 500),
)
def test_shares_are_whole_numbers_next_to_the_exact_ones(weights, total):
    counts = apportion(weights, total)
    assert sum(counts.values()) == total and min(counts.values()) >= 1
    exact = {name: weight * total / sum(weights.values()) for name, weight in weights.items()}
    if min(exact.values()) >= 1:
        assert all(abs(counts[name] - exact[name]) < 1 for name in weights)


def test_a_stream_with_weights_and_curriculum_goes_on_where_it_was(mixed, table):
    def stream():
        weights = {"web": 1.0, "math": 2.0, "": 0.5}
        order = order_of(mixed, seed=5, weights=weights, curriculum=CurriculumConfig(epochs=2))
        return TrainingData(mixed, table.prompt, order=order, left_out=table.left_out())

    straight = [prompt.sample.id for prompt in stream().take(200)]
    for stop in (1, 59, 60, 61, 130):
        first, second = stream(), stream()
        first.take(stop)
        second.load_state(first.state())
        assert second.metrics() == first.metrics()
        assert [prompt.sample.id for prompt in second.take(200 - stop)] == straight[stop:]


def test_the_columns_of_a_table_are_read_without_its_records(mixed, tmp_path):
    write_samples(tmp_path / "mixed.jsonl", mixed)
    read = read_samples(tmp_path / "mixed.jsonl", cache_dir=tmp_path / "cache")
    settings = {"seed": 2, "weights": {"web": 1, "math": 1, "": 0}}
    from_table = order_of(read, curriculum=SORTED, **settings)
    assert drawn(from_table, 0, 90) == drawn(order_of(mixed, curriculum=SORTED, **settings), 0, 90)


def test_mistakes_name_the_source_and_what_there_is(mixed):
    there = r"\(none\) \(10\), math \(10\), web \(40\)"
    with pytest.raises(UserError, match=rf"lacks the source 'math'; the data have {there}: give"):
        order_of(mixed, seed=0, weights={"web": 1.0, "": 1.0}, curriculum=SHUFFLED)
    with pytest.raises(UserError, match=rf"the source 'wbe', which no sample has; .* {there}"):
        order_of(
            mixed, seed=0, weights=dict.fromkeys(["", "math", "web", "wbe"], 1), curriculum=SHUFFLED
        )
    unrated = [replace(sample, pass_rate=None) for sample in mixed[:3]] + mixed[3:]
    with pytest.raises(UserError, match=r"pass_rate, which 3 of 60 lack; .*data.filter='pass_rate"):
        order_of(unrated, seed=0, weights={}, curriculum=SORTED)


def test_the_settings_are_composed_and_checked():
    register()
    given_both = ["+data.weights={web: 1, math: 3}", "data.curriculum.epochs=2"]
    data = compose("train", given_both, TrainConfig).data
    assert data.weights == {"web": 1.0, "math": 3.0}
    assert data.curriculum == CurriculumConfig(epochs=2)
    for wrong in ("+data.weights.web=-1", "+data.weights.web=0", "data.curriculum.jitter=2"):
        with pytest.raises(UserError, match=r"data\.(weights|curriculum)"):
            compose("train", [wrong], TrainConfig)
