"""Trees from examples, micro-batches from trees, tensors from micro-batches."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Role, Segment, Source
from easyvideor1.train.failures import SampleFailedError
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.token_tree import build_trees, idle_forest, pack, to_batch
from tests.train.policy_cases import (
    CLIPS,
    RandomClips,
    all_groups,
    answer_ids,
    example,
    family_at,
    group,
)


@pytest.fixture(scope="module")
def family(sharp_model_path: Path) -> FamilyAdapter:
    return family_at(sharp_model_path)


def trees_of(examples: list[TrainExample], family: FamilyAdapter) -> list:
    return list(build_trees(examples, family, RandomClips()))


def test_a_group_is_one_tree_whose_branches_share_the_prompt(family):
    examples = group(family, "video", (5, 9, 2))
    [tree] = trees_of(examples, family)
    assert len(tree.segments) == 4
    assert [segment.parent for segment in tree.segments] == [None, 0, 0, 0]
    prompt = family.learner_inputs(examples[0].prompt.token_ids, CLIPS["video"])
    for leaf, one in zip(tree.leaves(), examples, strict=True):
        tokens = torch.cat([segment.token_ids for segment in tree.branch(leaf)]).tolist()
        assert tokens == [*prompt.token_ids, *one.completion.token_ids]


def test_answers_of_one_prompt_meet_in_one_tree_wherever_they_stand(family):
    videos, texts = group(family, "video", (3, 4)), group(family, "text", (3, 4))
    mixed = [videos[0], texts[0], videos[1], texts[1]]
    trees = trees_of(mixed, family)
    assert [[tree.segments[leaf].example for leaf in tree.leaves()] for tree in trees] == [
        [0, 2],
        [1, 3],
    ]


def test_every_answer_continues_the_positions_of_the_prompt(family):
    [tree] = trees_of(group(family, "image and video", (5, 9)), family)
    after = int(tree.segments[0].position_ids.max()) + 1
    for answer in tree.segments[1:]:
        count = len(answer.token_ids)
        assert torch.equal(answer.position_ids, torch.arange(after, after + count).expand(3, -1))


def test_segments_of_a_completion_are_a_chain_and_keep_mask_weights_and_log_probs(family):
    [one] = group(family, "text", (6,))
    ids = one.completion.token_ids
    segments = (
        Segment(token_ids=tuple(ids[:2]), logprobs=(-0.5, -0.25)),
        Segment(token_ids=tuple(ids[2:3]), role=Role.tool, trainable=False),
        Segment(token_ids=tuple(ids[3:]), logprobs=(-1.0, -2.0, -3.0)),
    )
    one = replace(
        one,
        completion=replace(one.completion, segments=segments, source=Source.offline),
        token_weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    )
    [tree] = trees_of([one], family)
    assert [segment.parent for segment in tree.segments] == [None, 0, 1, 2]
    assert tree.leaves() == [3]
    batch = to_batch((tree,), pad_token_id=0)
    assert batch.target_ids.tolist() == [*ids[:2], *ids[3:]]
    assert batch.weights.tolist() == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert batch.sampler_logprobs.tolist() == [-0.5, -0.25, -1.0, -2.0, -3.0]
    assert batch.is_offline.all()
    prompt_length = len(tree.segments[0].token_ids)
    offsets = torch.tensor([0, 1, 3, 4, 5])
    assert torch.equal(batch.target_columns, prompt_length - 1 + offsets)


def test_token_weights_of_another_length_are_refused(family):
    one = example(family, "text", answer_ids(family, 4, 0), token_weights=[1.0])
    with pytest.raises(SampleFailedError, match=r"4 tokens but 1 weights.*at sample text"):
        trees_of([one], family)


@pytest.mark.parametrize("max_tokens", [1, 100, 250, 10_000])
def test_packing_keeps_the_budget_and_every_branch_once(family, max_tokens):
    examples = all_groups(family, lengths=(5, 9, 2, 30, 1))
    seen: list[int] = []
    for forest in pack(trees_of(examples, family), max_tokens):
        batch = to_batch(forest, pad_token_id=0)
        rows, columns = batch.input_ids.shape
        assert rows == 1 or rows * columns <= max_tokens
        for tree in forest:
            for leaf in tree.leaves():
                index = tree.segments[leaf].example
                assert index is not None
                seen.append(index)
                tail = tree.branch(leaf)[-1].token_ids.tolist()
                assert tail == examples[index].completion.token_ids
    assert sorted(seen) == list(range(len(examples)))


def test_packing_reads_no_further_than_the_micro_batch_it_makes(family):
    read = []

    def trees():
        for tree in trees_of(all_groups(family), family):
            read.append(tree)
            yield tree

    next(pack(trees(), max_tokens=1))
    assert len(read) == 1


def test_a_shared_medium_is_in_the_batch_once(family):
    examples = [*group(family, "video", (3, 4, 5)), *group(family, "image and video", (3,))]
    batch = to_batch(tuple(trees_of(examples, family)), pad_token_id=0)
    assert [slot.key for slot in batch.media] == [
        clip.key for clip in (*CLIPS["video"], *CLIPS["image and video"])
    ]
    assert batch.branch_media == ((0,), (0,), (0,), (1, 2))
    placeholders = int((batch.input_ids[0] == family.processor.video_token_id).sum())
    assert len(batch.media[0].pixel_values) == 4 * placeholders


def test_an_idle_forest_has_no_weight_and_no_example():
    batch = to_batch(idle_forest(7), pad_token_id=7)
    assert batch.weights.sum() == 0
    assert batch.examples.tolist() == [-1]
