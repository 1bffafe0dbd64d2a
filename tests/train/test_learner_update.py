"""One update on one rank: what it computes, what it refuses, what it reports."""

import json
import shutil
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Source
from easyvideor1.train.algorithm_config import Aggregation, AlgorithmConfig
from easyvideor1.train.config import BatchLayout, FrozenPart, LoraConfig, OptimizerConfig, Schedule
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.optimizer import learning_rate
from tests.train.policy_cases import (
    all_groups,
    answer_ids,
    example,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
    part_of,
)

FAST = OptimizerConfig(lr=1e-3, max_grad_norm=inf)


@pytest.fixture(scope="module")
def family(sharp_model_path: Path) -> FamilyAdapter:
    return family_at(sharp_model_path)


@pytest.fixture
def learner(sharp_model_path: Path) -> RankLearner:
    return make_learner(sharp_model_path, optimizer=FAST)


def sampled(learner: RankLearner, examples: list[TrainExample], shift: float = 0.0):
    """The examples as an engine with these weights returns them, its log-probs off by `shift`."""
    return [
        replace(
            one,
            completion=replace(
                one.completion,
                segments=(
                    replace(one.completion.segments[0], logprobs=tuple(x + shift for x in values)),
                ),
            ),
        )
        for one, values in zip(examples, learner.logprobs(examples), strict=True)
    ]


def weights_of(learner: RankLearner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.gather_weights()}


def test_the_gradient_does_not_depend_on_the_micro_batches(learner, family):
    examples = all_groups(family)
    whole, metrics = gradients_of(learner, examples)
    for max_tokens in (1, 90, 300):
        learner.config.micro_batch_tokens = max_tokens
        cut, cut_metrics = gradients_of(learner, examples)
        assert largest_difference(cut, whole) < 1e-5
        assert cut_metrics == pytest.approx(metrics, rel=1e-5)


@pytest.mark.parametrize("aggregation", Aggregation)
def test_the_loss_by_hand(sharp_model_path, family, aggregation):
    """At a ratio of 1 the loss of a token is minus its advantage."""
    algorithm = AlgorithmConfig(aggregation=aggregation, constant_length=40)
    learner = make_learner(sharp_model_path, algorithm=algorithm)
    examples = all_groups(family, lengths=(12, 1, 3))
    _, metrics = gradients_of(learner, examples)
    tokens = [len(one.completion.token_ids) for one in examples]
    advantages = [one.advantages[0] for one in examples]
    total = sum(a * n for a, n in zip(advantages, tokens, strict=True))
    expected = {
        Aggregation.token_mean: -total / sum(tokens),
        Aggregation.sequence_mean: -sum(advantages) / len(advantages),
        Aggregation.constant: -total / (40 * len(advantages)),
    }
    assert metrics["learner/loss"] == pytest.approx(expected[aggregation])
    assert metrics["learner/trained_tokens"] == sum(tokens)


def test_the_imitation_loss_weighs_each_token(learner, family):
    ids = answer_ids(family, 5, seed=3)
    weights = [0.0, 1.0, 8.0, 1.0, 0.5]
    one = example(family, "video", ids, token_weights=weights, source=Source.offline)
    other = example(family, "text", ids[:2])
    [ours, theirs] = learner.logprobs([one, other])
    expected = -(sum(w * x for w, x in zip(weights, ours, strict=True)) + sum(theirs)) / 12.5
    _, metrics = gradients_of(learner, [one, other], "sft")
    assert metrics["learner/loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["learner/offline_share"] == pytest.approx(10.5 / 12.5)
    assert metrics["learner/trained_tokens"] == 6
    assert "learner/ratio_mean" not in metrics


def test_on_policy_the_ratio_is_one_and_nothing_is_clipped(learner, family):
    metrics = learner.update(sampled(learner, all_groups(family)))
    assert metrics["learner/ratio_mean"] == 1.0
    assert metrics["learner/clip_low_fraction"] == 0
    assert metrics["learner/clip_high_fraction"] == 0
    assert metrics["learner/mismatch_kl"] < 1e-8
    assert metrics["learner/mismatch_max"] < 1e-4


def test_old_log_probs_that_differ_show_in_ratio_and_clipping(learner, family):
    plain = group(family, "video", (4, 4), advantage=1.0)
    examples = [
        replace(one, old_logprobs=[value - 0.5 for value in values])
        for one, values in zip(plain, learner.logprobs(plain), strict=True)
    ]
    metrics = learner.update(examples)
    assert metrics["learner/ratio_mean"] == pytest.approx(torch.tensor(0.5).exp().item(), rel=1e-4)
    assert metrics["learner/clip_high_fraction"] == 1.0
    assert "learner/mismatch_kl" not in metrics  # no engine's log-probs are known


def test_offline_answers_without_log_probs_count_as_just_sampled(learner, family):
    policy = sampled(learner, group(family, "video", (4, 6)))
    offline = group(family, "video", (10,), seed=7, source=Source.offline)
    metrics = learner.update([*policy, *offline])
    assert metrics["learner/offline_share"] == pytest.approx(0.5)
    assert metrics["learner/ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["learner/mismatch_max"] < 1e-4  # of sampled tokens alone


def test_several_updates_per_rollout_keep_the_old_log_probs(sharp_model_path, family):
    learner = make_learner(sharp_model_path, optimizer=FAST)
    first = sampled(learner, group(family, "video", (6, 6), seed=1, advantage=1.0))
    second = group(family, "video", (6, 6), seed=2, advantage=1.0, source=Source.offline)
    before = torch.tensor(learner.logprobs(second))
    metrics = learner.update([*first, *second], cuts=[2])
    assert learner.num_updates == 2

    one_step = make_learner(sharp_model_path, optimizer=FAST)
    one_step.update(first)
    ratio = (torch.tensor(one_step.logprobs(second)) - before).exp()
    assert (ratio - 1).abs().max() > 1e-2
    # The second step sees the weights of the first; in the first all ratios are 1.
    assert metrics["learner/ratio_mean"] == pytest.approx((1 + ratio.mean().item()) / 2, rel=1e-4)


def test_answers_with_tokens_that_may_not_be_sampled_are_left_out_by_name(learner, family, caplog):
    good = group(family, "video", (4,))
    placeholder = family.processor.video_token_id
    bad = [
        example(family, "text", [placeholder, *answer_ids(family, 3, 1)]),
        example(family, "image", [10**7]),
        example(family, "other text", []),
    ]
    metrics = learner.update([*good, *bad])
    assert metrics["learner/refused_completions"] == 3
    assert metrics["learner/trained_tokens"] == 4
    assert f"sample text is left out: token id {placeholder} may not stand in it" in caplog.text
    assert "sample image is left out: token id 10000000" in caplog.text
    assert "sample other text is left out: it has no token to train on" in caplog.text


def test_a_batch_of_which_nothing_is_left_is_skipped_and_counted(learner, family, caplog):
    before = weights_of(learner)
    metrics = learner.update([example(family, "text", [])])
    assert metrics["learner/refused_completions"] == 1
    assert metrics["learner/skipped_updates"] == 1
    assert "learner/loss" not in metrics
    assert "none of its completions can be trained on" in caplog.text
    after = weights_of(learner)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert learner.num_updates == 0


def test_fewer_completions_than_updates_skip_the_rest(sharp_model_path, family):
    learner = make_learner(sharp_model_path, optimizer=FAST)
    metrics = learner.update(group(family, "video", (4,)), cuts=[0, 0])
    assert learner.num_updates == 1
    assert metrics["learner/skipped_updates"] == 2
    assert metrics["learner/trained_tokens"] == 4


def test_weights_that_sum_to_nothing_are_the_callers_fault(learner, family):
    with pytest.raises(ValueError, match="the token weights of this step sum to 0"):
        learner.update([example(family, "text", [5, 6], token_weights=[0.0, 0.0])])
    with pytest.raises(ValueError, match="no rank was given an example"):
        learner.update([])


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(learner, family, caplog):
    before = weights_of(learner)
    metrics = learner.update(group(family, "video", (4,), advantage=float("inf")))
    assert metrics["learner/skipped_updates"] == 1
    assert "update skipped: the loss is" in caplog.text and "at sample video" in caplog.text
    after = weights_of(learner)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert learner.update(group(family, "video", (4,)))["learner/skipped_updates"] == 1
    assert learner.num_updates == 1


def test_too_many_updates_in_a_row_that_are_not_finite_end_the_run(learner, family):
    sick = group(family, "video", (4,), advantage=float("nan"))
    learner.config.max_skipped_updates = 2
    learner.begin(OptimizerConfig(lr=1e-3), None)
    for _ in range(2):
        for _ in range(2):
            learner.update(sick)
        learner.update(group(family, "video", (4,)))  # one that is healthy, and they count anew
    for _ in range(2):
        learner.update(sick)
    reason = "3 updates in a row were skipped, the last because the loss is nan, at sample video; "
    with pytest.raises(UserError, match=f"{reason}more than learner.max_skipped_updates"):
        learner.update(sick)


def test_the_gradient_is_clipped_to_the_norm_asked_for(sharp_model_path, family):
    learner = make_learner(sharp_model_path, optimizer=OptimizerConfig(lr=1e-3, max_grad_norm=0.5))
    gradients, metrics = gradients_of(learner, all_groups(family))
    norm = torch.stack([g.norm() for g in gradients.values()]).norm()
    assert metrics["learner/grad_norm"] > 0.5
    assert norm.item() == pytest.approx(0.5, rel=1e-4)


def test_an_update_raises_what_had_an_advantage_and_lowers_the_rest(learner, family):
    examples = group(family, "image", (6, 6))  # advantages 1 and -1
    before = learner.logprobs(examples)
    learner.update(sampled(learner, examples))
    after = learner.logprobs(examples)
    assert sum(after[0]) > sum(before[0])
    assert sum(after[1]) < sum(before[1])


def test_imitation_learns_the_answers(learner, family):
    learner.begin(OptimizerConfig(lr=3e-3, warmup_updates=2), total_updates=None)
    examples = [
        example(family, name, answer_ids(family, 4, seed), source=Source.offline)
        for seed, name in enumerate(("video", "image", "text"))
    ]
    losses = [learner.update(examples, "sft")["learner/loss"] for _ in range(30)]
    assert losses[-1] < 0.2 * losses[0]


def test_recomputed_activations_give_the_same_gradients_and_names(
    sharp_model_path, family, learner
):
    examples = all_groups(family)
    recomputing = make_learner(sharp_model_path, activation_checkpointing=True)
    stored, _ = gradients_of(learner, examples)
    recomputed, _ = gradients_of(recomputing, examples)
    assert largest_difference(recomputed, stored) < 1e-6
    assert dict(recomputing.gather_weights()).keys() == dict(learner.gather_weights()).keys()


def test_weights_have_the_names_of_the_checkpoint_and_the_tied_head(learner, sharp_model_path):
    weights = dict(learner.gather_weights())
    assert weights.keys() == learner.model.hf.state_dict().keys()
    assert torch.equal(
        weights["lm_head.weight"], weights["model.language_model.embed_tokens.weight"]
    )


def test_a_model_with_dropout_is_refused_by_field(sharp_model_path, tmp_path):
    folder = tmp_path / "dropout"
    shutil.copytree(sharp_model_path, folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["attention_dropout"] = 0.1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"text_config\.attention_dropout is 0\.1"):
        make_learner(folder)


def test_low_precision_without_a_process_group_is_refused(sharp_model_path):
    from easyvideor1.train.sharding import shard

    learner = make_learner(sharp_model_path)
    with pytest.raises(UserError, match=r"model\.dtype"):
        shard(learner.model, torch.device("cpu"), "bfloat16", learner.config)
    with pytest.raises(UserError, match="float16 cannot be trained"):
        shard(learner.model, torch.device("cpu"), "float16", learner.config)


def test_the_learning_rate_warms_up_and_follows_the_cosine():
    config = OptimizerConfig(lr=1.0, warmup_updates=4, schedule=Schedule.cosine, min_lr_ratio=0.1)
    rates = [learning_rate(config, update, total_updates=14) for update in range(16)]
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[9] == pytest.approx(0.55)  # half-way between 1 and 0.1
    assert rates[14:] == pytest.approx([0.1, 0.1])
    constant = OptimizerConfig(lr=2.0, warmup_updates=2)
    assert [learning_rate(constant, u, None) for u in range(4)] == [1.0, 2.0, 2.0, 2.0]


def test_a_cosine_without_an_end_is_refused_when_the_phase_begins(learner):
    with pytest.raises(UserError, match="schedule=cosine needs the total number of updates"):
        learner.begin(OptimizerConfig(schedule=Schedule.cosine), total_updates=None)


def test_the_cost_model_counts_the_weights_of_both_parts(sharp_model_path):
    plain = AutoModelForImageTextToText.from_pretrained(sharp_model_path)
    weights = {name: value.numel() for name, value in plain.named_parameters()}
    patch = sum(v for n, v in weights.items() if ".patch_embed." in n)
    mergers = sum(v for n, v in weights.items() if part_of(n) == "merger") / 4
    blocks = sum(v for n, v in weights.items() if ".visual.blocks." in n)
    vision = patch + blocks + mergers  # a merged token is four patches; positions are looked up
    language = sum(count for name, count in weights.items() if ".language_model.layers." in name)
    language += weights["model.language_model.norm.weight"]

    def costs(**fields: object) -> tuple[float, float]:
        model = make_learner(sharp_model_path, **fields).cost_model
        assert model.shares_prompts is (fields.get("layout") is not BatchLayout.packed)
        return model.flops_per_token, model.flops_per_patch

    whole = 6.0 * language, 6.0 * vision - 2.0 * patch  # pixels need no gradient
    assert costs() == costs(layout=BatchLayout.packed) == pytest.approx(whole)
    tower = [FrozenPart.vision, FrozenPart.merger]
    assert costs(freeze=tower) == pytest.approx((6.0 * language, 2.0 * vision))
    merger_alone = 4.0 * language, 2.0 * vision + 4.0 * mergers
    assert costs(freeze=[FrozenPart.vision, FrozenPart.language]) == pytest.approx(merger_alone)
    adapted = make_learner(sharp_model_path, lora=LoraConfig(rank=1)).cost_model
    assert 4 * language < adapted.flops_per_token < 4.2 * language
    assert adapted.flops_per_patch == pytest.approx(2.0 * vision)
