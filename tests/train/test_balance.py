"""Dividing examples over ranks: cases worked by hand, and what holds for every division."""

import random
from collections import Counter

import pytest

from easyvideor1.schema.records import Completion, Segment
from easyvideor1.train.balance import CostModel, Division, divide, divide_steps, group_costs
from easyvideor1.train.interfaces import Prompt, TrainExample

UNIT = CostModel(flops_per_token=1.0, flops_per_patch=1.0)


def group_of(
    table, name: int, lengths: list[int], *, prompt_tokens: int = 0, patches: int = 0
) -> list[TrainExample]:
    """Answers of these lengths to one prompt."""
    prompt = Prompt(
        sample=table.sample(name), token_ids=[1], num_tokens=prompt_tokens, num_patches=patches
    )
    return [
        TrainExample(
            prompt=prompt,
            completion=Completion(
                segments=(Segment(token_ids=(0,) * length),), text="", finish_reason="stop"
            ),
            advantages=[],
        )
        for length in lengths
    ]


def ranks_of(division: Division, name: str) -> int:
    """On how many ranks answers to that sample lie."""
    return sum(any(e.prompt.sample.id == name for e in share) for share in division.shares)


def loads_of(division: Division, cost_model: CostModel) -> list[float]:
    """The loads, computed anew from the shares."""
    return [sum(g.total for g in group_costs(share, cost_model)) for share in division.shares]


def whole_groups(examples: list[TrainExample], num_ranks: int, cost_model: CostModel) -> float:
    """Makespan of the longest-processing-time rule without splitting."""
    loads = [0.0] * num_ranks
    for total in sorted((g.total for g in group_costs(examples, cost_model)), reverse=True):
        loads[loads.index(min(loads))] += total
    return max(loads)


def test_flops_count_forward_and_backward_of_what_is_trained():
    model = CostModel.of_sizes(
        language_weights=100,
        trained_language_weights=100,
        vision_weights=30,
        passed_vision_weights=10,
        trained_vision_weights=10,
    )
    assert model == CostModel(flops_per_token=600.0, flops_per_patch=100.0)


def test_a_group_pays_its_patches_once_and_its_prompt_per_answer(table):
    examples = group_of(table, 0, [5, 7], prompt_tokens=10, patches=40)
    (cost,) = group_costs(examples, CostModel(flops_per_token=3.0, flops_per_patch=0.5))
    assert (cost.shared, cost.own, cost.total) == (20.0, (45.0, 51.0), 116.0)


def test_answers_that_share_their_prompt_pay_it_once(table):
    examples = group_of(table, 0, [5, 7], prompt_tokens=10, patches=40)
    costs = CostModel(flops_per_token=3.0, flops_per_patch=0.5, shares_prompts=True)
    (cost,) = group_costs(examples, costs)
    assert (cost.shared, cost.own, cost.total) == (50.0, (15.0, 21.0), 86.0)


def test_the_costliest_group_goes_first_and_to_the_least_loaded_rank(table):
    examples = [e for i, length in enumerate([5, 4, 3, 3, 3]) for e in group_of(table, i, [length])]
    division = divide(examples, 2, UNIT)
    # 5 | 4, then 3 to the second, 3 to the first, 3 to the second: 8 and 10.
    assert sorted(division.loads) == [8, 10]
    assert division.makespan_over_mean == pytest.approx(10 / 9)


def test_the_steps_of_an_update_do_not_depend_on_the_number_of_ranks(table):
    """Groups whose answers a division alone would send to different steps."""
    lengths = ((5, 6), (90, 91), (7, 8), (9, 10))
    examples = [e for i, of_group in enumerate(lengths) for e in group_of(table, i, [*of_group])]
    for num_ranks in (1, 2, 4):
        division = divide_steps(examples, 2, num_ranks, UNIT)
        for step, expected in enumerate((examples[:4], examples[4:])):
            found: list[TrainExample] = []
            for rank in range(num_ranks):
                share, (cut,) = division.share(rank), division.cuts(rank)
                found += share[cut:] if step else share[:cut]
            assert sorted(map(id, found)) == sorted(map(id, expected))
    assert divide_steps(examples, 3, 1, UNIT).cuts(0) == [2, 5]
    # Two answers on four ranks in two steps: one works in each, the others wait.
    assert divide_steps(examples[:2], 2, 4, UNIT).makespan_over_mean == 4.0


def test_patches_count_as_well_as_tokens(table):
    video = group_of(table, 0, [1], patches=900)
    texts = [e for i in (1, 2, 3) for e in group_of(table, i, [300])]
    division = divide([*texts, *video], 2, UNIT)
    assert division.shares == [video, texts]


def test_one_giant_group_of_eight_is_split_over_four_ranks(table):
    examples = group_of(table, 0, [100] * 8, patches=50)
    division = divide(examples, 4, UNIT)
    assert [len(share) for share in division.shares] == [2, 2, 2, 2]
    assert division.loads == [250] * 4  # 850 before: a fall of 600 for 150 computed again


def test_a_group_whose_media_cost_more_than_its_answers_stays_whole(table):
    examples = group_of(table, 0, [10] * 8, patches=100)
    # Halving it would save 40 and compute 100 again.
    division = divide(examples, 4, UNIT)
    assert sorted(division.loads) == [0, 0, 0, 180]
    assert division.makespan_over_mean == 4.0


@pytest.mark.parametrize("num_groups", [4, 8])
def test_equal_groups_are_not_split(table, num_groups):
    examples = [e for i in range(num_groups) for e in group_of(table, i, [10] * 8, patches=1)]
    division = divide(examples, 4, UNIT)
    assert division.makespan_over_mean == 1.0
    assert all(ranks_of(division, f"s{i}") == 1 for i in range(num_groups))


def test_two_giant_groups_on_four_ranks_are_both_split(table):
    examples = [e for i in (0, 1) for e in group_of(table, i, [10] * 8, patches=4)]
    division = divide(examples, 4, UNIT)
    assert division.loads == [44] * 4
    assert ranks_of(division, "s0") == ranks_of(division, "s1") == 2


def test_text_is_split_to_the_last_answer_since_nothing_is_computed_again(table):
    examples = group_of(table, 0, [10, 10, 20])
    division = divide(examples, 2, UNIT)
    assert division.loads == [20, 20]


def test_fewer_examples_than_ranks_leave_ranks_without_work(table):
    division = divide(group_of(table, 0, [3]), 3, UNIT)
    assert [len(share) for share in division.shares] == [1, 0, 0]
    assert divide([], 2, UNIT).makespan_over_mean == 1.0


@pytest.mark.parametrize("seed", range(60))
def test_what_holds_for_every_division(table, seed):
    draw = random.Random(seed)
    cost_model = CostModel(
        flops_per_token=draw.choice([1.0, 6.0]),
        flops_per_patch=draw.choice([0.0, 1.0, 30.0]),
        shares_prompts=draw.choice([False, True]),
    )
    examples = [
        example
        for i in range(draw.randint(1, 24))
        for example in group_of(
            table,
            i,
            [draw.randint(1, draw.choice([20, 2_000])) for _ in range(draw.randint(1, 8))],
            prompt_tokens=draw.randint(0, 500),
            patches=draw.choice([0, draw.randint(1, 3_000)]),
        )
    ]
    draw.shuffle(examples)
    num_ranks = draw.choice([1, 2, 3, 4, 8])
    division = divide(examples, num_ranks, cost_model)

    placed = [id(example) for share in division.shares for example in share]
    assert len(division.shares) == num_ranks
    assert Counter(placed) == Counter(id(example) for example in examples)
    assert division.loads == pytest.approx(loads_of(division, cost_model))

    groups = group_costs(examples, cost_model)
    repeated = sum(division.loads) - sum(group.total for group in groups)
    lpt = whole_groups(examples, num_ranks, cost_model)
    assert repeated >= -1e-6
    assert max(division.loads) + repeated <= lpt * (1 + 1e-9)
    names = {e.prompt.sample.id for e in examples}
    if any(ranks_of(division, name) > 1 for name in names):
        assert max(division.loads) + repeated < lpt
    # No split can beat the mean, nor an answer that cannot be cut.
    longest = max(group.shared + max(group.own) for group in groups)
    mean = sum(group.total for group in groups) / num_ranks
    assert max(division.loads) >= max(longest, mean) * (1 - 1e-9)


def test_a_division_is_the_same_every_time(table):
    examples = [e for i in range(9) for e in group_of(table, i, [3 * i + 1] * 8, patches=5 * i)]
    assert divide(examples, 4, UNIT) == divide(examples, 4, UNIT)


def test_a_large_update_is_divided_at_once(table):
    draw = random.Random(0)
    examples = [
        e
        for i in range(512)
        for e in group_of(table, i, [draw.randint(10, 4_000) for _ in range(8)], patches=9_000)
    ]
    division = divide(examples, 64, CostModel(flops_per_token=6.0, flops_per_patch=1.0))
    assert division.makespan_over_mean < 1.05
