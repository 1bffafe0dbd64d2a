"""Trees from examples, micro-batches from trees, tensors from micro-batches; and their executors.

Shared prompts are held against transformers on each sequence alone, and against the padded layout,
which runs transformers' own attention and recurrence.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families import _ADAPTERS
from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Role, Segment, Source
from easyvideor1.train.batches import packed_batch, padded_batch
from easyvideor1.train.config import BatchLayout
from easyvideor1.train.failures import SampleFailedError
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.packing import pack_padded, pack_trees, tree_tokens
from easyvideor1.train.token_tree import TokenTree, build_trees, idle_forest
from easyvideor1.train.tree_shape import TreeShape
from tests.seams.cases import forward_inputs
from tests.train.policy_cases import (
    CLIPS,
    RandomClips,
    all_groups,
    answer_ids,
    clips_for,
    example,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
)
from tests.train.rank_cases import (
    SHARED_ON_RANKS,
    SHARED_SHARES,
    run_ranks,
    run_shared_prefix,
    shared_share,
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
    batch = padded_batch((tree,), pad_token_id=0)
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
def test_padded_micro_batches_keep_the_budget_and_have_every_branch_once(family, max_tokens):
    examples = all_groups(family, lengths=(5, 9, 2, 30, 1))
    seen: list[int] = []
    for forest in pack_padded(trees_of(examples, family), max_tokens):
        batch = padded_batch(forest, pad_token_id=0)
        rows, columns = batch.input_ids.shape
        assert rows == 1 or rows * columns <= max_tokens
        seen += leaves_of(forest, examples)
    assert sorted(seen) == list(range(len(examples)))


@pytest.mark.parametrize("max_tokens", [1, 100, 250, 10_000])
def test_packed_micro_batches_keep_the_budget_and_have_every_branch_once(family, max_tokens):
    examples = all_groups(family, lengths=(5, 9, 2, 30, 1))
    seen: list[int] = []
    for forest in pack_trees(trees_of(examples, family), max_tokens, patch_tokens=0.5):
        size = sum(tree_tokens(tree, 0.5) for tree in forest)
        if size > max_tokens:
            [tree] = forest
            own = [tree.own_tokens(leaf) for leaf in tree.leaves()]
            assert len(own) == 1 or sum(own) <= max_tokens / 2
        seen += leaves_of(forest, examples)
    assert sorted(seen) == list(range(len(examples)))


def leaves_of(forest: Sequence[TokenTree], examples: list[TrainExample]) -> list[int]:
    """Which examples end in the forest, with all of their tokens."""
    found = []
    for tree in forest:
        for leaf in tree.leaves():
            index = tree.segments[leaf].example
            assert index is not None
            assert tree.branch(leaf)[-1].token_ids.tolist() == examples[index].completion.token_ids
            found.append(index)
    return found


def test_a_group_that_is_too_large_is_cut_into_as_few_parts_as_possible(family):
    [tree] = trees_of(group(family, "text", (30, 30, 20, 10, 10, 10, 10)), family)
    root = len(tree.segments[0].token_ids)
    for budget, parts in ((root + 120, 1), (root + 119, 2), (root + 60, 2), (root + 59, 3)):
        forests = list(pack_trees([tree], budget))
        assert len(forests) == parts
        sizes = [tree_tokens(one) for (one,) in forests]
        assert max(sizes) <= budget and sum(sizes) == parts * root + 120


def test_packing_reads_no_further_than_the_micro_batch_it_makes(family):
    read = []

    def trees():
        for tree in trees_of(all_groups(family), family):
            read.append(tree)
            yield tree

    next(pack_padded(trees(), max_tokens=1))
    assert len(read) == 1


def test_a_shared_medium_is_in_the_batch_once(family):
    examples = [*group(family, "video", (3, 4, 5)), *group(family, "image and video", (3,))]
    trees = tuple(trees_of(examples, family))
    padded, packed = padded_batch(trees, pad_token_id=0), packed_batch(trees)
    for batch in (padded, packed):
        assert [slot.key for slot in batch.media] == [
            clip.key for clip in (*CLIPS["video"], *CLIPS["image and video"])
        ]
    assert padded.row_media == ((0,), (0,), (0,), (1, 2))
    assert packed.row_media == ((0, 1, 2),)
    placeholders = int((padded.input_ids[0] == family.processor.video_token_id).sum())
    assert len(padded.media[0].pixel_values) == 4 * placeholders


def test_an_idle_forest_has_no_weight_and_no_example():
    for batch in (padded_batch(idle_forest(7), pad_token_id=7), packed_batch(idle_forest(7))):
        assert batch.weights.sum() == 0
        assert batch.examples.tolist() == [-1]


def test_a_packed_batch_has_each_prompt_once_and_answers_that_continue_it(family):
    """The first target of every answer is predicted by the last token of its prompt."""
    alone, shared = group(family, "text", (3,)), group(family, "video", (4, 2))
    trees = tuple(trees_of([*alone, *shared], family))
    batch = packed_batch(trees)
    text, video = (len(tree.segments[0].token_ids) for tree in trees)
    assert batch.tree == TreeShape(roots=(video, text + 3), branches=((4, 2),))
    assert batch.num_computed == video + text + 3 + 4 + 2 == batch.input_ids.shape[1]
    assert batch.num_tokens == batch.num_computed + video == padded_batch(trees, 0).num_tokens
    of_video = [video - 1, *range(video + text + 3, video + text + 6)]
    of_second = [video - 1, video + text + 7]
    assert batch.target_columns.tolist() == [
        *range(video + text - 1, video + text + 2),
        *of_video,
        *of_second,
    ]
    answers = [token for one in (*alone, *shared) for token in one.completion.token_ids]
    assert batch.target_ids.tolist() == answers
    assert batch.examples.tolist() == [0] * 3 + [1] * 4 + [2] * 2


def test_branches_that_part_below_the_root_are_refused(family):
    [tree] = trees_of(group(family, "text", (3, 4)), family)
    below = replace(tree.segments[2], parent=1)
    deeper = replace(tree, segments=(*tree.segments, below, below))
    with pytest.raises(ValueError, match="branches of sample text part below the root"):
        packed_batch((deeper,))


PACKED = (BatchLayout.shared_prefix, BatchLayout.packed)
FAMILIES = sorted(_ADAPTERS)
LENGTHS = (5, 70, 2)
"""Of answers; the second is longer than a chunk of the recurrence."""


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_shared_prompts_are_those_of_transformers_on_each_sequence(sharp_models, name):
    """Of text, image, video and both in one packed batch."""
    path = sharp_models(name)
    adapter, learner = family_at(path), make_learner(path)
    examples = all_groups(adapter, LENGTHS)
    trees = build_trees(examples, adapter, RandomClips(clips_for(adapter)))
    plain = AutoModelForImageTextToText.from_pretrained(path)
    with torch.no_grad():
        batch = packed_batch(tuple(trees))
        logits = learner.model.hf.lm_head(learner.model.target_states(batch))
        for index, one in enumerate(examples):
            clips = clips_for(adapter)[one.prompt.sample.id]
            inputs = adapter.learner_inputs(one.prompt.token_ids, clips)
            answer = one.completion.token_ids
            alone = plain(**forward_inputs(inputs, answer, family=adapter), use_cache=False)
            expected = alone.logits[0, len(inputs.token_ids) - 1 : -1]
            torch.testing.assert_close(logits[batch.examples == index], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_of_shared_prompts_are_those_of_separate_sequences(sharp_models, name):
    path = sharp_models(name)
    examples = all_groups(family_at(path), LENGTHS)
    padded = make_learner(path, layout=BatchLayout.padded)
    expected, expected_metrics = gradients_of(padded, examples)
    norms = {name: value.norm() for name, value in expected.items()}
    # Below it is noise of float32: the padded layout differs as much from itself when cut anew.
    noise = 1e-6 * max(norms.values())
    for layout in PACKED:
        # In one micro-batch, and with groups that are cut.
        for max_tokens in (16_384, 120):
            learner = make_learner(path, layout=layout, micro_batch_tokens=max_tokens)
            gradients, metrics = gradients_of(learner, examples)
            assert gradients.keys() == expected.keys()
            for weight, value in gradients.items():
                error = (value - expected[weight]).norm()
                assert error <= 1e-4 * norms[weight] + noise, weight
            assert metrics == pytest.approx(expected_metrics, rel=1e-4, abs=1e-6)


def test_two_ranks_share_prompts_as_one_process_computes_them_apart(sharp_models, tmp_path):
    """Groups of unequal lengths, one rank with a video and one with none."""
    paths = {name: sharp_models(name) for name in SHARED_ON_RANKS}
    run_ranks(run_shared_prefix, paths, tmp_path, num_ranks=2)
    for rank in range(2):
        seen = torch.load(tmp_path / f"shared{rank}.pt", weights_only=False)
        for name, path in paths.items():
            together = [e for of_rank in SHARED_SHARES for e in shared_share(path, of_rank)]
            padded = make_learner(path, layout=BatchLayout.padded)
            expected, expected_metrics = gradients_of(padded, together)
            gradients, metrics = seen[name]
            assert largest_difference(gradients, expected) < 1e-5
            assert metrics == pytest.approx(expected_metrics, rel=1e-4, abs=1e-6)
