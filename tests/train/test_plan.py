"""The plan against what a run takes: tokens, activations, peaks, checkpoints and the cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families import _ADAPTERS
from easyvideor1.preprocess.families.tiny import build
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.train import cli
from easyvideor1.train.config import (
    BatchLayout,
    FrozenPart,
    LearnerConfig,
    LoraConfig,
    TrainConfig,
    register,
)
from easyvideor1.train.plan import activations, command, engine_memory, learner_memory
from easyvideor1.train.plan.samples import PromptSize
from tests.live_engine import KV_CACHE_BYTES, LiveEngine
from tests.train.plan_peaks import ANSWER_TOKENS, NUM_ANSWERS, clips_of, group_of, learner_config
from tests.train.policy_cases import RandomClips, family_at, make_learner

FAMILIES = sorted(_ADAPTERS)


@pytest.fixture(scope="module")
def wide_models(tmp_path_factory: pytest.TempPathFactory):
    """By family: wide enough for memory to be that of tensors, deep enough for layers to count."""
    built: dict[str, Path] = {}

    def model(family: str) -> Path:
        if family not in built:
            built[family] = tmp_path_factory.mktemp("wide") / family
            sizes = TinyModelConfig(
                family=family, text_hidden=768, text_layers=6, text_heads=12, head_dim=64,
                vision_hidden=384, vision_depth=6, vision_heads=6,
            )  # fmt: skip
            build(sizes, built[family])
        return built[family]

    return model


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_activations_are_those_that_an_update_keeps(sharp_models, name, recomputes):
    path = sharp_models(name)
    costs = activations.measure(
        str(path), LearnerConfig(activation_checkpointing=recomputes), torch.float32
    )
    kind = "video" if name in ("qwen3_vl", "qwen3_5") else "text"  # whose patches fit the clip
    learner = make_learner(
        path, clip_store=RandomClips(clips_of(kind)), activation_checkpointing=recomputes
    )
    examples = group_of(family_at(path), kind)
    metrics = learner.update(examples)
    planned = costs.of(
        metrics["learner/computed_tokens"],
        examples[0].prompt.num_patches,
        metrics["learner/trained_tokens"],
    )
    assert planned == pytest.approx(1e9 * metrics["learner/activation_gb"], rel=0.06)


def planned_peak(path: Path, kind: str, settings: LearnerConfig) -> float:
    config = TrainConfig(output_dir="unused", learner=settings)
    config.model.path = str(path)
    config.rollout.batch_size, config.rollout.group_size = 1, NUM_ANSWERS
    config.rollout.max_new_tokens = ANSWER_TOKENS
    prompt = group_of(family_at(path), kind)[0].prompt
    size = PromptSize(num_tokens=prompt.num_tokens, num_patches=prompt.num_patches)
    sizes = learner_memory.model_sizes(config)
    costs = activations.measure(str(path), settings, torch.float32)
    batch = learner_memory.largest_micro_batch(
        [size], config, patch_tokens=sizes.patch_tokens, costs=costs
    )
    parts = learner_memory.rank_parts(
        config, sizes, costs, batch, dtype=torch.float32, has_group=False
    )
    return sum(part.num_bytes for part in parts)


PEAKS = {
    "a group whole": ("qwen3_vl", "video", {}),
    "a group in parts": ("qwen3_vl", "video", {"micro_batch_tokens": 400}),
    "recomputed": ("qwen3_vl", "video", {"activation_checkpointing": True}),
    "adapters": ("qwen3_vl", "video", {"lora_rank": 8}),
    "padded rows": ("qwen3_vl", "text", {"layout": "padded"}),
    "text and a recurrence": ("qwen3_5", "text", {}),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", PEAKS)
def test_the_planned_peak_of_a_rank_is_within_a_fifth_of_the_measured_one(wide_models, case):
    family, kind, overrides = PEAKS[case]
    path = wide_models(family)
    # Without it glibc keeps blocks that were freed, up to a quarter more than there are tensors.
    keeps_nothing = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.plan_peaks", path, kind, json.dumps(overrides)],
        env=os.environ | keeps_nothing,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])["peak_bytes"]
    planned = planned_peak(path, kind, learner_config(**overrides))
    assert measured > 5e8, "too little to tell tensors from noise"
    assert planned == pytest.approx(measured, rel=0.2)


CHECKPOINTS = {
    "whole": {},
    "frozen": {"freeze": [FrozenPart.vision, FrozenPart.merger]},
    "adapters": {"lora": LoraConfig(rank=4)},
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints_take_what_the_learner_says(sharp_model_path, case):
    config = TrainConfig(output_dir="unused", learner=LearnerConfig(**CHECKPOINTS[case]))
    config.model.path = str(sharp_model_path)
    sizes = learner_memory.model_sizes(config)
    learner = make_learner(sharp_model_path, **CHECKPOINTS[case])
    assert sizes.checkpoint == learner.checkpoint_bytes()
    assert sizes.weights == sum(p.numel() for p in learner.model.parameters())
    assert sizes.patch_tokens == learner.cost_model.patch_tokens


def test_the_engine_has_room_for_as_many_tokens_as_planned(engine: LiveEngine, tiny_model_path):
    """By vLLM's own division of its cache into blocks."""
    config = TrainConfig(output_dir="unused")
    config.model.path = tiny_model_path
    kv = engine_memory.kv_cache(config, 100.0, torch.float32)
    tokens = engine.engine.kv_tokens
    assert tokens * kv.bytes_per_token == pytest.approx(KV_CACHE_BYTES, rel=0.02)
    assert kv.needed_tokens == 8 * 100 + 64 * 1024, "64 answers at once, to 8 prompts"


def composed(toybox_dir: Path, model: str, folder: Path, *overrides: str) -> TrainConfig:
    register()
    return compose(
        "train",
        [
            f"model.path={model}",
            "model.build=null",
            f"data.train=[{toybox_dir / 'train.jsonl'}]",
            f"data.validation=[{toybox_dir / 'validation.jsonl'}]",
            "data.toybox=null",
            f"cache.dir={folder / 'cache'}",
            f"output_dir={folder / 'run'}",
            "job=plan",
            *overrides,
        ],
        TrainConfig,
    )


def test_tokens_and_clips_are_those_of_the_run(toybox_dir, tiny_model_path, tmp_path, capsys):
    config = composed(toybox_dir, tiny_model_path, tmp_path)
    assert cli.run(config) is None
    planned = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert "largest micro-batch" in capsys.readouterr().out
    assert not (tmp_path / "cache" / "shards").exists(), "nothing was decoded"

    from easyvideor1.preprocess.cache import open_cache
    from easyvideor1.preprocess.families import family_of
    from easyvideor1.train.inputs import Inputs

    datasets = cli.read_data(config)
    cli.cache_clips(config, datasets)
    family = family_of(config.model)
    prompter = Inputs(config, family).prompter(validation=False)
    lengths = sorted(
        len(
            family.learner_inputs(
                prompter(sample).token_ids, prompter.store.load(sample), sample_id=sample.id
            ).token_ids
        )
        for sample in datasets.train
    )
    assert planned["tokens"]["prompt_max"] == lengths[-1]
    assert planned["tokens"]["prompt_p50"] == lengths[(len(lengths) + 1) // 2 - 1]
    (disk,) = [need for need in planned["needs"] if need["name"] == "disk"]
    cache = open_cache(config.cache)
    frames = sum(cache.get(key).frames.nbytes for key in list(cache.keys()))
    assert disk["parts"][0]["num_bytes"] == frames


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "plan.gpu_gb=0.1",
            r"GPU of a learner rank needs .* and has 0\.10 GB: lower learner\.micro",
        ),
        ("plan.host_gb=0.1", r"host memory needs .* and has 0\.10 GB"),
        ("plan.disk_gb=0.001", r"disk needs .* and has 0\.00 GB: free space, lower learner\.keep_"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_way_out(
    toybox_dir, tiny_model_path, tmp_path, override, message
):
    config = composed(toybox_dir, tiny_model_path, tmp_path, override)
    with pytest.raises(UserError, match=message):
        cli.run(config)
    assert (tmp_path / "run" / "plan.json").is_file(), "the numbers are there all the same"


def test_taking_turns_on_gpus_needs_the_learners_share_in_host_memory(
    toybox_dir, tiny_model_path, tmp_path
):
    settings = ("rollout.colocated=true", "rollout.weight_transfer=ipc", "plan.gpu_gb=80")
    config = composed(toybox_dir, tiny_model_path, tmp_path, *settings)
    datasets = cli.read_data(config)
    found = command.plan(config, train=datasets.train, validation=[])
    (host,) = [need for need in found.needs if need.name == "host memory"]
    weights = learner_memory.model_sizes(config).weights
    (offloaded,) = [p for p in host.parts if p.name == "learner's during rollouts"]
    assert offloaded.num_bytes == 12 * weights, "float32 weights and two moments"


def test_a_long_prompt_takes_half_the_budget_for_its_answers():
    config = TrainConfig(output_dir="unused")
    config.rollout.batch_size, config.rollout.group_size = 4, 8
    config.rollout.max_new_tokens = 100
    config.learner.micro_batch_tokens = 1_000
    costs = activations.ActivationCosts(per_token=1.0, per_patch=0.0, per_layer_token=0.0)

    def tokens(prompt: int, patches: int = 0) -> float:
        size = PromptSize(num_tokens=prompt, num_patches=patches)
        batch = learner_memory.largest_micro_batch([size], config, patch_tokens=0.5, costs=costs)
        return batch.num_tokens

    assert tokens(50) == 850, "one group of 50 + 800"
    assert tokens(150) == 950
    assert tokens(150, 100) == 150 + 800, "its patches cost 50 tokens, and all of it fits"
    assert tokens(150, 200) == 150 + 750, "cut, beside patches that cost 100"
    assert tokens(900) == 900 + 500
    config.rollout.group_size = 2
    assert tokens(50) == 4 * 250, "four groups"
    config.learner.layout = BatchLayout.packed
    assert tokens(50) == 6 * 150
