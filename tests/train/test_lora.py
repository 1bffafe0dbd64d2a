"""LoRA: against peft and AdamW alone, against finite weights, through checkpoints and export.

On ranks: the rank tests. The engine: `test_engine_agreement`.
"""

import math
import shutil
from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import folder_bytes, write_json
from easyvideor1.train.algorithm_config import AlgorithmConfig, KlConfig, KlEstimator, KlPlace
from easyvideor1.train.config import (
    FrozenPart,
    LearnerConfig,
    LoraConfig,
    OptimizerConfig,
    RolloutConfig,
)
from easyvideor1.train.export_command import run
from easyvideor1.train.interfaces import SAVED_TRAINING, Position, TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.run_folder import RunFolder
from tests.train.plain_model import plain_logits, sampling_logprobs
from tests.train.policy_cases import (
    CLIPS,
    all_groups,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
    part_of,
    without_memory,
)
from tests.train.rank_cases import (
    SHARES,
    adapted_gradients,
    adapted_learner,
    full_weights,
    run_ranks,
    run_with_adapters,
    share_of,
)
from tests.train.test_learner_families import FAMILIES

LORA = LoraConfig(rank=4, alpha=8)
EVERYWHERE = LoraConfig(rank=4, alpha=8, parts=list(FrozenPart))
ADAM = OptimizerConfig(lr=5e-3, eps=1e-3, weight_decay=0.1, max_grad_norm=math.inf)
"""A gradient that is all rounding does not take a whole step with this `eps`."""


def lora_learner(path: Path, lora: LoraConfig = LORA, **fields: object) -> RankLearner:
    """With the same random adapters each time, and a rate that moves them."""
    torch.manual_seed(7)
    return make_learner(path, **({"lora": lora, "optimizer": ADAM} | fields))  # type: ignore[arg-type]


def adapters_in(learner: RankLearner) -> dict[str, torch.Tensor]:
    return {n: p for n, p in learner.model.hf.named_parameters() if p.requires_grad}


def plain_peft(path: Path, learner: RankLearner) -> peft.PeftModel:
    """peft's own model around transformers' own, with the learner's adapters."""
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    names = [n.removesuffix(".lora_A.default.weight") for n in adapters_in(learner) if "_A." in n]
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=names)
    wrapped = peft.get_peft_model(model, settings)
    state = dict(wrapped.base_model.model.named_parameters())
    with torch.no_grad():
        for name, value in adapters_in(learner).items():
            state[name].copy_(value)
    return wrapped


def examples_of(path: Path) -> list[TrainExample]:
    family = family_at(path)
    return [one for name in ("text", "image and video") for one in group(family, name, (5, 3))]


@pytest.mark.parametrize("lora", [LORA, EVERYWHERE], ids=["language", "everywhere"])
def test_updates_are_those_of_peft_and_adamw_alone(sharp_model_path, lora):
    """Imitation, whose loss is one line: the mean of -log p over all answer tokens."""
    family = family_at(sharp_model_path)
    learner = lora_learner(sharp_model_path, lora)
    plain = plain_peft(sharp_model_path, learner)
    trained = [p for p in plain.parameters() if p.requires_grad]
    assert len(trained) == len(adapters_in(learner)) > 0
    adam = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.1, eps=1e-3)
    examples = examples_of(sharp_model_path)
    for _ in range(3):
        learner.update(examples, "sft")
        loss, count = torch.zeros(()), 0
        for one in examples:
            logprobs = sampling_logprobs(plain_logits(plain, family, one), family)
            answer = torch.tensor(one.completion.token_ids)
            loss = loss - logprobs.gather(1, answer[:, None]).sum()
            count += len(answer)
        (loss / count).backward()
        adam.step()
        adam.zero_grad()
    theirs = dict(plain.base_model.model.named_parameters())
    for name, ours in adapters_in(learner).items():
        torch.testing.assert_close(ours, theirs[name], atol=1e-6, rtol=0)


def test_merged_weights_are_those_that_peft_merges_and_the_base_does_not_move(sharp_model_path):
    original = AutoModelForImageTextToText.from_pretrained(sharp_model_path).state_dict()
    learner = lora_learner(sharp_model_path, EVERYWHERE)
    at_first = full_weights(learner)
    assert at_first.keys() == original.keys()
    assert all(torch.equal(value, original[name]) for name, value in at_first.items())
    for _ in range(2):
        learner.update(examples_of(sharp_model_path))
    ours = full_weights(learner)
    theirs = plain_peft(sharp_model_path, learner).merge_and_unload().state_dict()
    moved = 0
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-6, rtol=0)
        moved += not torch.equal(value, original[name])
    assert moved == len(adapters_in(learner)) / 2
    for name, value in learner.model.hf.state_dict().items():
        if "lora_" not in name:
            assert torch.equal(value, original[name.replace(".base_layer.", ".")])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_adapters_alone(sharp_models, family):
    """In every linear layer of all parts but the head, and however a batch is cut."""
    path = sharp_models(family)
    learner = lora_learner(path, EVERYWHERE)
    plain = AutoModelForImageTextToText.from_pretrained(path)
    linear = {n for n, m in plain.named_modules() if type(m) is torch.nn.Linear} - {"lm_head"}
    assert {name.split(".lora_")[0] for name in adapters_in(learner)} == linear
    examples = all_groups(family_at(path), lengths=(5, 2))
    before = full_weights(learner)
    learner.update(examples)
    after = full_weights(learner)
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved == {f"{name}.weight" for name in linear}
    whole, _ = gradients_of(learner, examples)
    learner.config.micro_batch_tokens = 1
    alone, _ = gradients_of(learner, examples)
    assert largest_difference(alone, whole) < 2e-5


def test_patterns_choose_among_the_layers_of_the_parts(sharp_model_path):
    for modules, parts, expected in (
        (["q_proj", "v_proj"], ["language"], ["self_attn.q_proj", "self_attn.v_proj"]),
        (["layers.0.mlp.*"], ["language"], ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"]),
        (["linear_fc1"], ["merger"], ["visual.merger.linear_fc1"]),
    ):
        lora = LoraConfig(rank=2, parts=[FrozenPart(part) for part in parts], modules=modules)
        names = {n.split(".lora_")[0] for n in adapters_in(lora_learner(sharp_model_path, lora))}
        assert {part_of(name) for name in names} == set(parts)
        assert all(any(name.endswith(end) for name in names) for end in expected)
        assert all(
            name.rsplit(".", 1)[-1] in {e.rsplit(".", 1)[-1] for e in expected} for name in names
        )
        if "layers.0.mlp.*" in modules:
            assert all(".layers.0." in name for name in names)
    typo = LoraConfig(rank=2, modules=["q_proj", "k_prjo"])
    with pytest.raises(UserError, match=r"'k_prjo' matches no linear layer of language.*q_proj"):
        lora_learner(sharp_model_path, typo)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dropout": 0.1}, "another policy than the one that sampled"),
        ({"rank": -1}, "rank >= 0 and alpha > 0"),
        ({"alpha": 0}, "rank >= 0 and alpha > 0"),
        ({"parts": []}, "parts is empty"),
        ({"modules": []}, "null adapts all layers"),
    ],
)
def test_settings_that_make_no_adapter_are_refused(settings, expected):
    with pytest.raises(UserError, match=expected):
        LoraConfig(**({"rank": 4} | settings))


def test_a_part_is_frozen_or_adapted_but_not_both():
    with pytest.raises(UserError, match=r"learner.freeze=\['language'\] names what learner.lora"):
        LearnerConfig(lora=LORA, freeze=[FrozenPart.language])
    LearnerConfig(lora=LORA, freeze=[FrozenPart.vision])
    LearnerConfig(freeze=[FrozenPart.language])


@pytest.mark.parametrize(("rslora", "scale"), [(False, 2.0), (True, 4.0)])
def test_the_scale_of_rank_stabilised_adapters_falls_with_the_root(sharp_model_path, rslora, scale):
    lora = LoraConfig(rank=4, alpha=8, use_rslora=rslora, modules=["q_proj"])
    learner = lora_learner(sharp_model_path, lora)
    name = "model.language_model.layers.0.self_attn.q_proj"
    before = full_weights(learner)[f"{name}.weight"]
    learner.update(examples_of(sharp_model_path))
    a, b = (adapters_in(learner)[f"{name}.lora_{half}.default.weight"] for half in "AB")
    expected = before + scale * (b @ a)
    torch.testing.assert_close(full_weights(learner)[f"{name}.weight"], expected.detach())
    [ours] = learner.logprobs(examples_of(sharp_model_path)[:1])
    assert ours == pytest.approx(exported_logprobs(learner, sharp_model_path), abs=2e-5)


def exported_logprobs(learner: RankLearner, path: Path) -> list[float]:
    """Of the first example, under the merged weights in a plain model of transformers."""
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    model.load_state_dict(full_weights(learner))
    [one, *_] = examples_of(path)
    with torch.no_grad():
        logprobs = sampling_logprobs(plain_logits(model, family_at(path), one), family_at(path))
    answer = torch.tensor(one.completion.token_ids)
    return logprobs.gather(1, answer[:, None])[:, 0].tolist()


def test_recomputed_activations_have_the_same_gradients(sharp_model_path):
    examples = examples_of(sharp_model_path)
    plain = lora_learner(sharp_model_path, EVERYWHERE)
    recomputing = lora_learner(sharp_model_path, EVERYWHERE, activation_checkpointing=True)
    for learner in (plain, recomputing):
        learner.update(examples)
    expected, _ = gradients_of(plain, examples)
    assert all(value.any() for value in expected.values())
    gradients, _ = gradients_of(recomputing, examples)
    assert largest_difference(gradients, expected) < 1e-6


@pytest.mark.parametrize("estimator", [KlEstimator.k3, KlEstimator.full])
def test_the_reference_is_the_base_and_after_a_warm_start_what_that_made_of_it(
    sharp_model_path, tmp_path, estimator
):
    """Against peft's model with its adapters disabled; no second copy of the weights is there."""
    kl = KlConfig(place=KlPlace.loss, estimator=estimator)
    algorithm = AlgorithmConfig(kl=kl)
    learner = lora_learner(sharp_model_path, algorithm=algorithm)
    examples = examples_of(sharp_model_path)
    size = sum(p.numel() for p in learner.reference.model.parameters())
    assert learner.reference.model is learner.model
    num_adapters = sum(value.numel() for value in adapters_in(learner).values())
    assert size == sum(v.numel() for v in plain_weights(sharp_model_path)) + 2 * num_adapters
    assert largest_divergence(learner, examples) < 1e-6
    for _ in range(2):
        learner.update(examples, kl_coefficient=0.1)
    expected = plain_divergences(learner, sharp_model_path, estimator, examples)
    assert max(map(max, expected)) > 1e-2
    for ours, theirs in zip(learner.divergences(examples), expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-5)

    learner.begin(ADAM, total_updates=None)
    assert largest_divergence(learner, examples) < 1e-6
    learner.update(examples, kl_coefficient=0.1)
    learner.save(tmp_path / "learner")
    again = lora_learner(sharp_model_path, algorithm=algorithm)
    again.load(tmp_path / "learner")
    assert again.divergences(examples) == learner.divergences(examples)
    assert largest_divergence(again, examples) > 1e-3
    ours, theirs = (
        without_memory(one.update(examples, kl_coefficient=0.1)) for one in (again, learner)
    )
    assert ours == theirs


def largest_divergence(learner: RankLearner, examples: list[TrainExample]) -> float:
    return max(value for row in learner.divergences(examples) for value in row or ())


def plain_weights(path: Path) -> list[torch.Tensor]:
    return list(AutoModelForImageTextToText.from_pretrained(path).parameters())


def plain_divergences(
    learner: RankLearner, path: Path, estimator: KlEstimator, examples: list[TrainExample]
) -> list[list[float]]:
    plain, family = plain_peft(path, learner), family_at(path)
    found = []
    for one in examples:
        answer = torch.tensor(one.completion.token_ids)[:, None]
        with torch.no_grad():
            policy = sampling_logprobs(plain_logits(plain, family, one), family)
            with plain.disable_adapter():
                reference = sampling_logprobs(plain_logits(plain, family, one), family)
        if estimator is KlEstimator.full:
            terms = torch.where(policy.isinf(), 0.0, policy.exp() * (policy - reference))
            found.append(terms.sum(-1).tolist())
        else:
            difference = (reference - policy).gather(1, answer)[:, 0]
            found.append((difference.exp() - difference - 1).tolist())
    return found


def test_checkpoints_hold_the_adapters_alone_and_continue_to_the_last_bit(
    sharp_model_path, tmp_path
):
    examples = examples_of(sharp_model_path)
    straight = lora_learner(sharp_model_path, EVERYWHERE)
    straight.update(examples)
    straight.save(tmp_path / "at_once")
    straight.begin_save(tmp_path / "meanwhile")
    said = straight.checkpoint_bytes()
    metrics = without_memory(straight.update(examples))
    straight.finish_save()
    for name in ("at_once", "meanwhile"):
        torch.manual_seed(99)
        resumed = make_learner(sharp_model_path, lora=EVERYWHERE, optimizer=ADAM)
        resumed.load(tmp_path / name)
        assert without_memory(resumed.update(examples)) == metrics
        assert same_adapters(straight, resumed)
        # Small tensors: more of it than usual is what lies around them, which is rounded up.
        weights = folder_bytes(tmp_path / name / "weights")
        assert 0.95 * said.weights < weights <= said.weights
        training = folder_bytes(tmp_path / name / "training")
        assert 0.95 * said.training < training <= said.training
    whole = make_learner(sharp_model_path)
    assert said.weights < 0.4 * whole.checkpoint_bytes().weights
    assert said.export == whole.checkpoint_bytes().export


def same_adapters(one: RankLearner, other: RankLearner) -> bool:
    ours, theirs = adapters_in(one), adapters_in(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.fixture(scope="module")
def checkpoint(sharp_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of adapters in the language model, after an update; beside it what the learner exports."""
    folder = tmp_path_factory.mktemp("lora")
    learner = lora_learner(sharp_model_path)
    learner.update(examples_of(sharp_model_path))
    learner.save(folder / "learner")
    learner.export(folder / "export", RolloutConfig())
    return folder


def test_a_checkpoint_goes_on_only_where_it_belongs(checkpoint, sharp_model_path, tmp_path):
    """Refused by name: another base, other adapters, whole weights for adapters and the reverse."""
    other_base = shifted(sharp_model_path, tmp_path / "other")
    with pytest.raises(UserError, match=r"adapters of another model than model.path=.*other"):
        lora_learner(other_base).load(checkpoint / "learner")
    with pytest.raises(UserError, match=r"rank 4 with a scale of 2.*makes rank 8 and 1"):
        lora_learner(sharp_model_path, LoraConfig(rank=8, alpha=8)).load(checkpoint / "learner")
    with pytest.raises(UserError, match=r"holds adapters of rank 4, but learner.lora.rank=0"):
        make_learner(sharp_model_path).load(checkpoint / "learner")
    make_learner(sharp_model_path).save(tmp_path / "whole")
    with pytest.raises(UserError, match=r"holds whole weights, but learner.lora.rank=4"):
        lora_learner(sharp_model_path).load(tmp_path / "whole")


def shifted(path: Path, folder: Path) -> Path:
    """The same model, but for one matrix."""
    model = AutoModelForImageTextToText.from_pretrained(path)
    with torch.no_grad():
        model.model.visual.merger.linear_fc2.weight.mul_(1.01)
    model.save_pretrained(folder)
    family_at(path).processor.save_pretrained(folder)
    return folder


def test_a_copy_of_the_base_in_other_files_is_the_base(checkpoint, sharp_model_path, tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(sharp_model_path)
    model.save_pretrained(tmp_path / "copy", max_shard_size="100KB")
    family_at(sharp_model_path).processor.save_pretrained(tmp_path / "copy")
    assert len(list((tmp_path / "copy").glob("*.safetensors"))) > 1
    learner = lora_learner(tmp_path / "copy")
    learner.load(checkpoint / "learner")
    exported = AutoModelForImageTextToText.from_pretrained(checkpoint / "export").state_dict()
    assert all(torch.equal(exported[name], v) for name, v in full_weights(learner).items())


def test_the_exported_folder_is_an_ordinary_model_that_answers_as_the_learner(
    checkpoint, sharp_model_path
):
    learner = lora_learner(sharp_model_path)
    learner.load(checkpoint / "learner")
    family = family_at(sharp_model_path)
    model = AutoModelForImageTextToText.from_pretrained(checkpoint / "export")
    assert model.state_dict().keys() == full_weights(learner).keys()
    examples = [one for name in CLIPS for one in group(family, name, (6,))]
    for one, ours in zip(examples, learner.logprobs(examples), strict=True):
        with torch.no_grad():
            logprobs = sampling_logprobs(plain_logits(model, family, one), family)
        answer = torch.tensor(one.completion.token_ids)
        expected = logprobs.gather(1, answer[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(ours), expected, atol=2e-5, rtol=0)


def test_a_checkpoint_is_exported_as_the_run_itself_would(
    table, checkpoint, sharp_model_path, tmp_path
):
    folder = RunFolder(tmp_path / "run")
    draft = folder.draft(Position(step=1), {})
    shutil.copytree(checkpoint / "learner", draft.path / "learner")
    shutil.rmtree(draft.path / "learner" / SAVED_TRAINING)  # as one of the best
    draft.seal()
    model = {"path": str(sharp_model_path), "dtype": "auto", "trust_remote_code": False}
    write_json(folder.path / "config.json", {"model": model, "rollout": {}})
    config = table.config(folder.path)
    config.export.adapter = True
    exported = run(config)
    plain = AutoModelForImageTextToText.from_pretrained(sharp_model_path, dtype=torch.float32)
    loaded = peft.PeftModel.from_pretrained(plain, exported / "adapter").merge_and_unload()
    shutil.rmtree(exported / "adapter")
    assert files_of(exported) == files_of(checkpoint / "export")
    expected = AutoModelForImageTextToText.from_pretrained(exported).state_dict()
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, expected[name], atol=1e-6, rtol=0)
    config.export.model = str(shifted(sharp_model_path, tmp_path / "other"))
    config.export.folder = str(tmp_path / "again")
    with pytest.raises(UserError, match=r"step_000001 holds adapters of another model"):
        run(config)
    assert not (tmp_path / "again").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_no_adapter_touches_is_not_sent(sharp_model_path):
    """Prefixes end at whole blocks, since engines fuse layers within them."""
    lora = LoraConfig(rank=2, modules=["layers.1.self_attn.q_proj"])
    learner = lora_learner(sharp_model_path, lora)
    sent = {name for name, _ in learner.gather_weights(learner.frozen_prefixes)}
    assert sent == {n for n in full_weights(learner) if ".language_model.layers.1." in n}


@pytest.mark.slow
def test_two_ranks_train_adapters_as_one_does(sharp_model_path, tmp_path):
    """Gradients with a reference, an update, checkpoints read by one rank, merged weights."""
    run_ranks(run_with_adapters, sharp_model_path, tmp_path, num_ranks=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]
    together = share_of(sharp_model_path, sum(SHARES["image / text"], ()))
    for estimator, expected in (
        (KlEstimator.k3, adapted_gradients(sharp_model_path, together, KlEstimator.k3)),
        (KlEstimator.full, adapted_gradients(sharp_model_path, together, KlEstimator.full)),
    ):
        for rank in ranks:
            gradients, metrics = rank["gradients"][estimator]
            assert largest_difference(gradients, expected[0]) < 1e-5
            assert metrics == pytest.approx(expected[1], rel=1e-4, abs=1e-8)
    alone = adapted_learner(sharp_model_path, KlEstimator.k3)
    for _ in range(3):
        alone.update(together, kl_coefficient=0.1)
    continued = adapted_learner(sharp_model_path, KlEstimator.k3)
    continued.load(tmp_path / "checkpoint")
    continued.update(together, kl_coefficient=0.1)
    for name, value in full_weights(alone).items():
        for other in (ranks[0]["weights"], ranks[1]["weights"], full_weights(continued)):
            torch.testing.assert_close(other[name], value, atol=2e-5, rtol=0)
    said = ranks[0]["said_bytes"]
    assert folder_bytes(tmp_path / "checkpoint" / "weights") <= said.weights
