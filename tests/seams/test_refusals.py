"""What is wrong with single samples: kept as text, refused by name or rescaled, and never the end.

The pieces of a run are real: data files, reader, cache, prompts of each family, offline reader,
learner. What stands after a bad sample is still trained.
"""

import json
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheMode,
    DataConfig,
    ModelConfig,
    Overlong,
    RayConfig,
)
from easyvideor1.preprocess.families import FamilyAdapter
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.schema import jsonl
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Sample
from easyvideor1.train import cli
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.config import LearnerConfig, RolloutConfig, TrainConfig
from easyvideor1.train.inputs import Inputs, open_store
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from tests.media import write_numbered, write_video
from tests.seams.cases import FAMILIES
from tests.train.policy_cases import family_at

EVERY_FAMILY = pytest.mark.parametrize("name", FAMILIES)
TRAJECTORY = "It is red. <answer>A</answer>"


def row(number: int, **changes: Any) -> dict[str, Any]:
    """A question about a video, with an offline answer."""
    return {
        "id": f"s{number}",
        "problem": "Which colour?",
        "answer": "A",
        "problem_type": "multiple_choice",
        "options": ["red", "blue"],
        "media": [{"kind": "video", "path": "good.mp4"}],
        "offline": [{"text": TRAJECTORY}],
    } | changes


class Case:
    """A data file with its media and cache, and a run's config for it."""

    def __init__(self, folder: Path, model: Path, name: str):
        self.folder = folder
        self.family: FamilyAdapter = family_at(model / name)
        self.model_path = str(model / name)
        write_video(folder / "good.mp4", num_frames=24, height=96, width=128)
        Image.new("RGB", (64, 96), "green").save(folder / "good.png")
        video = FrameBudget(min_frames=4, max_frames=4, min_pixels=1024, max_pixels=11_760)
        self.config = TrainConfig(
            output_dir=str(folder / "run"),
            model=ModelConfig(path=self.model_path),
            data=DataConfig(name="bad"),
            cache=CacheConfig(dir=str(folder / "cache")),
            budget=Budgets(video=video, image=FrameBudget(min_pixels=1024, max_pixels=8192)),
            rollout=RolloutConfig(max_prompt_tokens=400, max_new_tokens=80),
        )

    def read(self, rows: Sequence[dict[str, Any]]) -> list[Sample]:
        """The rows as a run reads them, with the default `data.on_bad_row=raise`."""
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        return list(read_samples(path, cache_dir=self.folder / "converted", progress=False))

    def cache(self, samples: Sequence[Sample], validation: Sequence[Sample] = ()) -> None:
        """As the command does before it trains."""
        cli.cache_clips(self.config, cli.Datasets(train=samples, validation=validation))

    def inputs(self) -> Inputs:
        return Inputs(self.config, self.family)

    def report(self) -> list[tuple[str, str]]:
        """Id and reason of the samples that the run's report names."""
        rows = jsonl.read(self.folder / "run" / "data_report.jsonl")
        return [(row["id"], row["reason"]) for row in rows]

    def train_on(self, samples: Sequence[Sample], count: int) -> tuple[set[str], dict[str, float]]:
        """One supervised update on the next prompts: whose they were, and what was counted."""
        inputs = self.inputs()
        data = inputs.training(samples)
        prompts = data.take(count)
        learner = RankLearner(
            config=LearnerConfig(),
            algorithm=AlgorithmConfig(),
            model_path=self.model_path,
            family=self.family,
            clip_store=open_store(self.config, self.family, validation=False),
        )
        examples = []
        for prompt in prompts:
            chosen = inputs.reader.choose(prompt.sample, seed=0, step=1)
            assert chosen is not None
            examples.append(
                TrainExample(
                    prompt=prompt,
                    completion=chosen.completion,
                    advantages=[1.0] * len(chosen.completion.token_ids),
                )
            )
        learned = learner.update(examples, "sft")
        assert learned["learner/grad_norm"] > 0
        assert learned["learner/refused_completions"] == 0
        return {p.sample.id for p in prompts}, data.metrics() | inputs.reader.metrics()


@pytest.fixture(scope="module", autouse=True)
def our_ray() -> Generator[None]:
    """One Ray for all tests of this file; the cache is filled by it because it is there."""
    with ray_session(RayConfig(), num_cpus=2):
        yield


@pytest.fixture
def case(tmp_path: Path, sharp_models: Callable[[str], Path]) -> Case:
    return Case(tmp_path, sharp_models("qwen2_5_vl").parent, "qwen2_5_vl")


# --- text that reads like a control token --------------------------------------------------------


@EVERY_FAMILY
def test_control_text_is_plain_text_and_counted(
    tmp_path: Path, sharp_models: Callable[[str], Path], name: str
) -> None:
    case = Case(tmp_path, sharp_models(name).parent, name)
    family = case.family
    case.config.cache.mode = CacheMode.live
    loud = "<|im_end|><|vision_start|><|video_pad|>"
    plain, spelt = case.read(
        [
            row(0),
            row(
                1,
                problem=f"What does {loud} mean?",
                options=["red", "<|image_pad|>"],
                offline=[
                    {"text": f"{loud}<answer>A</answer><|im_end|>"},
                    {"text": "<answer>A</answer>"},
                ],
            ),
        ]
    )
    asked, metrics = case.train_on([plain, spelt], 2)
    assert asked == {"s0", "s1"}
    assert metrics["data/control_text"] == metrics["offline/refused/control_text"] == 1.0
    assert metrics["data/refused"] == 0.0

    special = {*family.forbidden_token_ids, *family.eos_token_ids}
    inputs = case.inputs()
    prompts = {p.sample.id: p for p in inputs.training([plain, spelt]).take(2)}
    # The control tokens of the template are the only ones, in a loud prompt as in a plain one.
    expected = [token for token in prompts["s0"].token_ids if token in special]
    assert [token for token in prompts["s1"].token_ids if token in special] == expected
    assert prompts["s1"].token_ids.count(family.processor.video_token_id) == 1
    assert f"What does {loud} mean?" in family.tokenizer.decode(prompts["s1"].token_ids)

    # In the completion of a trajectory it would be plain text as well, which nobody is to learn.
    text = spelt.offline[0].text
    tokens = family.text_tokens(text).token_ids
    assert not special & set(tokens) and family.tokenizer.decode(tokens) == text
    (usable,) = inputs.reader.read(spelt)
    assert usable.completion.text == "<answer>A</answer>"
    assert inputs.reader.refused == {"s1#0": "control_text"}


# --- samples that cannot be used ------------------------------------------------------------------


def test_placeholders_that_do_not_match_refuse_the_sample(case: Case) -> None:
    samples = case.read(
        [
            row(0, problem="<video><video>Which colour?"),
            row(1, problem="<image>Which colour?"),
            *(row(number) for number in range(2, 6)),
        ]
    )
    case.config.cache.mode = CacheMode.live
    asked, metrics = case.train_on(samples, 8)
    assert asked == {"s2", "s3", "s4", "s5"}
    assert metrics["data/refused"] == metrics["data/refused/placeholders"] == 2.0
    assert sorted(case.report()) == [("s0", "placeholders"), ("s1", "placeholders")]


@pytest.mark.parametrize("mode", list(CacheMode))
def test_media_that_give_no_frames_refuse_the_sample(case: Case, mode: CacheMode) -> None:
    (case.folder / "broken.mp4").write_bytes(b"no video" * 1000)
    # Its header is whole and its frames are not: only decoding tells.
    write_numbered(case.folder / "hollow.avi", "-c:v", "mjpeg", count=40)
    content = bytearray((case.folder / "hollow.avi").read_bytes())
    start = content.index(b"movi")
    content[start + 4 :] = bytes(len(content) - start - 4)
    (case.folder / "hollow.avi").write_bytes(bytes(content))
    bad = ["broken.mp4", "absent.mp4", "hollow.avi"][: 2 if mode is CacheMode.live else 3]
    samples = case.read(
        [row(i, media=[{"kind": "video", "path": path}]) for i, path in enumerate(bad)]
        + [row(number) for number in range(5, 9)]
    )
    if mode is not CacheMode.live:
        case.config.cache.mode = CacheMode.prefer
        case.cache(samples)
    case.config.cache.mode = mode
    asked, metrics = case.train_on(samples, 8)
    assert asked == {"s5", "s6", "s7", "s8"}
    assert metrics["data/refused"] == metrics["data/refused/not_decodable"] == len(bad)
    assert sorted(case.report()) == [(f"s{i}", "not_decodable") for i in range(len(bad))]


def test_a_cache_entry_of_other_settings_refuses_the_sample(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    write_video(case.folder / "other.mp4", num_frames=24, seed=1)
    other = row(0, media=[{"kind": "video", "path": "other.mp4"}])
    samples = case.read([other, *(row(number) for number in range(1, 5))])
    budget = case.config.budget.video
    case.config.budget.video = replace(budget, max_pixels=4096)
    case.cache(samples[:1])
    case.config.budget.video = budget
    case.cache(samples[1:])

    case.config.cache.mode = CacheMode.require
    case.cache(samples)  # nothing is decoded, and nothing ends
    told = capsys.readouterr().out
    assert "training sample 's0': not_cached: sample s0: the frames of" in told
    assert "budget.max_pixels=4096 (this run: 11760)" in told
    asked, metrics = case.train_on(samples, 8)
    assert asked == {"s1", "s2", "s3", "s4"}
    assert metrics["data/refused"] == metrics["data/refused/not_cached"] == 1.0
    assert case.report() == [("s0", "not_cached")]

    wrong = replace(case.config.budget, video=replace(budget, max_pixels=8192))
    case.config.budget = wrong
    with pytest.raises(UserError, match=r"no usable sample among 5:\n  not_cached +5 .*\n.*8192"):
        case.cache(samples)


# --- prompts that are too long --------------------------------------------------------------------


def long_and_short(case: Case) -> list[Sample]:
    """One question about six videos, where three more than one would fit, and four about one."""
    for number in range(6):
        write_video(case.folder / f"long{number}.mp4", num_frames=24, seed=number)
    media = [{"kind": "video", "path": f"long{number}.mp4"} for number in range(6)]
    samples = case.read([row(0, media=media), *(row(number) for number in range(1, 5))])
    short = case.inputs().training(samples[1:]).take(4)
    # A video takes 30 tokens and its two markers.
    case.config.rollout.max_prompt_tokens = max(p.num_tokens for p in short) + 3 * 32
    return samples


def test_what_is_too_long_is_dropped_before_it_is_decoded(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = long_and_short(case)
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    case.cache(samples)
    assert decode_counter.total(tmp_path / "counts") == 1, "one video, of all the short ones"
    asked, metrics = case.train_on(samples, 8)
    assert asked == {"s1", "s2", "s3", "s4"}
    assert metrics["data/dropped"] == metrics["data/dropped/prompt_too_long"] == 1.0
    assert metrics["data/dropped_share"] == 0.2
    assert metrics["data/refused"] == 0.0
    assert case.report() == [("s0", "prompt_too_long")]


def test_what_is_too_long_is_rescaled_to_what_fits(case: Case) -> None:
    samples = long_and_short(case)
    case.config.data.overlong = Overlong.rescale
    case.cache(samples)
    # What the plan decoded is what the streams, the engine's store and the learner's ask for.
    case.config.cache.mode = CacheMode.require
    asked, metrics = case.train_on(samples, 5)
    assert asked == {f"s{number}" for number in range(5)}
    assert metrics["data/rescaled"] == 1.0
    assert metrics["data/dropped"] == metrics["data/refused"] == 0.0
    assert case.report() == [("s0", "rescaled")]

    limit = case.config.rollout.max_prompt_tokens
    prompts = {p.sample.id: p for p in case.inputs().training(samples).take(5)}
    store = open_store(case.config, case.family, validation=False)
    for sample in samples:
        clips = store.load(sample)
        expanded = case.family.learner_inputs(prompts[sample.id].token_ids, clips)
        assert prompts[sample.id].num_tokens == len(expanded.token_ids) <= limit
        assert all(len(clip.frames) == 4 for clip in clips), "frames lose pixels first"
    assert store.misses == 0
    usual = store.budget(samples[0].media[0])
    smaller = store.smaller_budgets(samples[0])
    assert smaller is not None
    # One step of pixels more would not fit.
    step = replace(smaller.video, max_pixels=smaller.video.max_pixels + 28 * 28)
    more = store.under(replace(smaller, video=step)).announced(samples[0])
    assert smaller.video.max_pixels < step.max_pixels <= usual.max_pixels
    assert case.family.num_prompt_tokens(prompts["s0"].token_ids, more) > limit


def test_a_header_that_promised_too_little_is_found_out(case: Case) -> None:
    """Frames that a header forgets are found by decoding; the exact length then counts."""
    modest = write_numbered(case.folder / "modest.mkv", count=60)
    set_duration(modest, 0.4)
    media = [{"kind": "video", "path": "modest.mkv"}]
    samples = case.read([row(0, media=media), *(row(number) for number in range(1, 5))])
    case.config.budget.video = replace(case.config.budget.video, min_frames=2, max_frames=40, fps=8)
    store = open_store(case.config, case.family, validation=False)
    (shape,) = store.announced(samples[0])
    assert shape.shape[0] <= 4
    limit = max(prompt.num_tokens for prompt in case.inputs().training(samples[1:]).take(4))
    case.config.rollout.max_prompt_tokens = limit
    case.cache(samples)
    asked, metrics = case.train_on(samples, 8)
    assert asked == {"s1", "s2", "s3", "s4"}
    assert metrics["data/dropped"] == metrics["data/dropped/longer_than_announced"] == 1.0


def set_duration(path: Path, duration_s: float) -> None:
    """Change what a Matroska header says of the length of its file."""
    content = bytearray(path.read_bytes())
    at = content.index(b"\x44\x89\x88")  # the element Duration, of 8 bytes
    content[at + 3 : at + 11] = struct.pack(">d", duration_s * 1000)
    # Tags that tell the duration a second time, as text.
    while (tag := content.find(b"DURATION")) >= 0:
        content[tag : tag + 8] = b"XURATION"
    path.write_bytes(bytes(content))


# --- budgets --------------------------------------------------------------------------------------


def test_images_videos_and_validation_have_budgets_of_their_own(case: Case) -> None:
    image = [{"kind": "image", "path": "good.png"}]
    both = [*image, {"kind": "video", "path": "good.mp4"}]
    samples = case.read([row(0, media=image), row(1), row(2, media=both)])
    budget = case.config.budget
    budget.validation_video = replace(budget.video, min_frames=2, max_frames=2)
    budget.validation_image = replace(budget.image, max_pixels=4096)
    case.cache(samples, samples)
    case.config.cache.mode = CacheMode.require
    inputs = case.inputs()
    training = {p.sample.id: p.num_tokens for p in inputs.training(samples).take(3)}
    validation = {p.sample.id: p.num_tokens for p in inputs.validation(samples)}
    assert all(validation[name] < training[name] for name in training)

    stores = [open_store(case.config, case.family, validation=v) for v in (False, True)]
    shapes = [[clip.shape for clip in store.load(samples[2])] for store in stores]
    # 96x64 pixels become 3 x 2 squares of 28, under half the budget 2 x 1; 96x128 become 3 x 5.
    assert shapes[0] == [(1, 3, 84, 56), (4, 3, 84, 140)]
    assert shapes[1] == [(1, 3, 56, 28), (2, 3, 84, 140)]
    keys = [store.key(media) for store in stores for media in samples[2].media]
    assert len(set(keys)) == 4
    assert all(store.misses == 0 for store in stores)
