"""FLOPs of an update against torch's own counter, and what is made of them."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from easyvideor1.preprocess.families import _ADAPTERS
from easyvideor1.train.batches import packed_batch, padded_batch
from easyvideor1.train.config import FrozenPart
from easyvideor1.train.flops import peak_of, peak_tflops, utilization
from easyvideor1.train.token_tree import build_trees
from tests.train.policy_cases import RandomClips, clips_for, family_at, group, make_learner

FAMILIES = sorted(_ADAPTERS)


@pytest.mark.parametrize("frozen", [[], [FrozenPart.vision, FrozenPart.merger]])
@pytest.mark.parametrize("name", FAMILIES)
def test_products_of_weights_are_those_that_torch_counts(sharp_models, name, frozen):
    """Those of the head that are computed anew are not counted; attention is no matrix product."""
    path = sharp_models(name)
    learner = make_learner(path, freeze=frozen)
    examples = group(family_at(path), "image and video", (40, 64, 24))
    with FlopCounterMode(display=False) as counter:
        metrics = learner.update(examples)
    [batch] = learner._batches(examples, learner.clip_store)
    by_kind = counter.get_flop_counts()["Global"]
    head = learner.model.hf.lm_head.weight.numel()
    counted = by_kind[torch.ops.aten.mm] + by_kind[torch.ops.aten.addmm]
    counted -= 2 * head * len(batch.target_ids)
    no_attention = replace(learner._flops, per_pair=0.0, per_patch_pair=0.0, per_windowed_patch=0.0)
    assert no_attention.of_batch(batch) == pytest.approx(counted, rel=0.02)
    whole = learner._flops.of_batch(batch)
    assert whole > no_attention.of_batch(batch)
    assert 1e12 * metrics["learner/tflops"] == pytest.approx(whole)


def test_attention_counts_every_pair_that_is_seen(sharp_model_path):
    """4 heads of 32 in 3 layers; forward 4, backward 8 per pair and dimension."""
    learner = make_learner(sharp_model_path)
    flops = learner._flops
    assert flops.per_pair == 12 * 4 * 32 * 3
    family = family_at(sharp_model_path)
    trees = tuple(
        build_trees(group(family, "text", (3, 5)), family, RandomClips(clips_for(family)))
    )
    root = len(trees[0].segments[0].token_ids)
    shared, padded = packed_batch(trees), padded_batch(trees, 0)
    assert shared.num_pairs == sum(n * (n + 1) // 2 for n in (root, 3, 5)) + root * 8
    assert padded.num_pairs == sum(n * (n + 1) // 2 for n in (root + 3, root + 5))
    frozen = make_learner(sharp_model_path, freeze=[FrozenPart.vision, FrozenPart.merger])
    assert 3 * frozen._flops.per_patch_pair == flops.per_patch_pair == 12 * 96 * 2
    assert 2 * flops.per_target == 3 * 4 * learner.model.hf.lm_head.weight.numel()


def test_utilization_is_what_is_reached_over_the_peak_of_all_ranks():
    assert peak_tflops(torch.device("cpu")) is None
    assert peak_of("NVIDIA H100 80GB HBM3") == 989.0
    assert peak_of("NVIDIA H100 PCIe") == 756.0
    assert peak_of("NVIDIA A100-SXM4-80GB") == peak_of("NVIDIA A100 80GB PCIe") == 312.0
    assert peak_of("NVIDIA GeForce RTX 4090") == 165.0
    assert peak_of("NVIDIA A1000") is None
    seconds = {"seconds/update": 4.0}
    learned = {"learner/tflops": 400.0, "learner/peak_tflops": 100.0}
    assert utilization(learned, seconds, num_ranks=2) == {"learner/mfu": 0.5}
    assert utilization({"learner/tflops": 400.0}, seconds, num_ranks=2) == {}
    assert utilization({}, seconds, num_ranks=2) == {}
