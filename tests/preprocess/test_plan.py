"""`job=plan`: predictions beside what caching then makes, their ranges, and the ways out."""

import dataclasses
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import pytest
from PIL import Image

from easyvideor1.preprocess import cache_worker
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.config import Codec, PreprocessConfig, register
from easyvideor1.preprocess.decode import SourceProbe
from easyvideor1.preprocess.engine import cache_all, survey
from easyvideor1.preprocess.estimate import (
    Amount,
    Group,
    Probed,
    Trial,
    clip_shape,
    estimate,
    frame_cap,
    stored_bytes,
    working_seconds,
)
from easyvideor1.preprocess.fitting import Case, fits, settings_that_fit
from easyvideor1.preprocess.headers import Headers, read_headers
from easyvideor1.preprocess.parts import open_parts
from easyvideor1.preprocess.plan import amount_text, bytes_text, hours_text, plan
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.trial import try_clips
from easyvideor1.schema.budget import Budgets, Convention, FrameBudget
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample
from tests.media import REAL_CLIPS, frame_list, image, moving_colours, real_clip, video, write_video

SLOW = pytest.mark.slow
COMMAND = Path(sys.executable).with_name("evr-preprocess")

BUDGETS = Budgets(
    video=FrameBudget(fps=2.0, min_frames=4, max_frames=128, max_pixels=262_144),
    image=FrameBudget(max_pixels=1_048_576),
)


def film(seconds: float, height: int = 720, width: int = 1280, fps: float = 30.0) -> Probed:
    source = SourceProbe(total_frames=round(seconds * fps), fps=fps, height=height, width=width)
    return Probed(media=video("film.mp4"), source=source)


def picture(height: int, width: int) -> Probed:
    source = SourceProbe(total_frames=1, fps=1.0, height=height, width=width)
    return Probed(media=image("picture.png"), source=source)


def group_of(
    probed: list[Probed],
    *,
    count: int | None = None,
    num_unreadable: int = 0,
    validation: bool = False,
    is_cached: bool = False,
) -> Group:
    return Group(
        kind=probed[0].media.kind,
        validation=validation,
        is_cached=is_cached,
        count=count or len(probed) + num_unreadable,
        probed=tuple(probed),
        num_unreadable=num_unreadable,
    )


# The arithmetic, by hand


def test_frames_and_bytes_of_media_that_were_all_looked_at(rules: FamilyRules) -> None:
    # 2 fps: 20 frames of 10 s, 128 at most of an hour. 1280 x 720 within 512 x 512 pixels and
    # multiples of 32 is 672 x 384; 320 x 256 stays.
    films = group_of([film(10), film(3600), film(10, 256, 320)], num_unreadable=1)
    pictures = group_of([picture(512, 512)])
    estimated = estimate([films, pictures], BUDGETS, rules)
    assert estimated.count == 5
    assert estimated.unreadable == Amount(value=1)
    assert estimated.total.clips == Amount(value=4)
    assert estimated.total.frames == Amount(value=20 + 128 + 20 + 1)
    assert estimated.kinds[MediaKind.video].raw_bytes == Amount(
        value=3 * (148 * 672 * 384 + 20 * 320 * 256)
    )
    assert estimated.kinds[MediaKind.image].raw_bytes == Amount(value=3 * 512 * 512)


def test_a_span_counts_as_its_own_length_and_one_without_frames_as_unreadable(
    rules: FamilyRules,
) -> None:
    whole = film(60)
    part = dataclasses.replace(whole, media=video("film.mp4", 10.0, 19.99))
    beyond = dataclasses.replace(whole, media=video("film.mp4", start_s=61.0))
    estimated = estimate([group_of([whole, part, beyond])], BUDGETS, rules)
    assert estimated.total.frames == Amount(value=120 + 20)
    assert estimated.unreadable == Amount(value=1)
    # Every frame of a minute and of 9.99 s is decoded, but an hour from jump to jump.
    assert estimated.total.work.value == pytest.approx(720 * 1280 * (1800 + 299.7))
    hour = estimate([group_of([film(3600)])], BUDGETS, rules)
    assert hour.total.work.value == 720 * 1280 * 128 * 125


def test_a_budget_for_validation_counts_for_its_own_group(rules: FamilyRules) -> None:
    budgets = dataclasses.replace(
        BUDGETS, validation_video=FrameBudget(fps=1.0, min_frames=4, max_frames=16)
    )
    groups = [group_of([film(30)]), group_of([film(30)], validation=True)]
    assert estimate(groups, budgets, rules).total.frames == Amount(value=60 + 16)


def test_a_group_that_nobody_looked_at_is_refused(rules: FamilyRules) -> None:
    unseen = dataclasses.replace(group_of([film(10)], count=7), probed=())
    with pytest.raises(ValueError, match="none of 7 media"):
        estimate([unseen], BUDGETS, rules)


# Ranges


def films_at_random(count: int, seed: int) -> list[Probed]:
    """Of many lengths and sizes, as a collection from the web."""
    rng = random.Random(seed)
    sizes = [(720, 1280), (360, 640), (1080, 1920), (1280, 720), (240, 320)]
    return [
        film(min(7200, rng.lognormvariate(3, 1.2)), *rng.choice(sizes), fps=rng.choice([24, 30]))
        for _ in range(count)
    ]


def test_the_range_of_an_extrapolation_holds_the_truth_in_nineteen_of_twenty_samples(
    rules: FamilyRules,
) -> None:
    films = films_at_random(3_000, seed=1)
    shapes = {id(f): clip_shape(f, BUDGETS.video, rules) for f in films}
    truth = sum(math.prod(shape) for shape in shapes.values())
    held = 0
    for seed in range(100):
        sample = random.Random(seed).sample(films, 150)
        found = estimate([group_of(sample, count=3_000)], BUDGETS, rules).total.raw_bytes
        held += found.low <= truth <= found.high
        assert 0.02 < (found.high - found.low) / 2 / truth < 0.2
    assert 88 <= held <= 100


def test_unreadable_media_of_a_sample_stand_for_their_share(rules: FamilyRules) -> None:
    sample = group_of([film(10)] * 30, num_unreadable=10, count=400)
    estimated = estimate([sample], BUDGETS, rules)
    assert estimated.total.clips.value == 300
    assert estimated.unreadable.value == 100
    assert estimated.unreadable.low < 100 < estimated.unreadable.high
    assert estimated.total.frames.value == 20 * 300
    whole = dataclasses.replace(sample, count=40)
    assert estimate([whole], BUDGETS, rules).total.frames == Amount(value=600)


def trial(
    ratio: float, *, part_bytes: int = 1_000_000, work: float = 1e8, decoding_s: float = 1.0
) -> Trial:
    return Trial(
        kind=MediaKind.video,
        work=work,
        decoding_s=decoding_s,
        part_bytes=part_bytes,
        encoded_bytes={Codec.jpeg: round(ratio * part_bytes)},
        encoding_s={Codec.jpeg: 0.5},
    )


def test_encoded_bytes_and_seconds_are_those_of_the_trials_if_all_were_tried(
    rules: FamilyRules,
) -> None:
    films = [film(10, 256, 320), film(20, 256, 320)]
    estimated = estimate([group_of(films)], BUDGETS, rules)
    raw = [20 * 3 * 256 * 320, 40 * 3 * 256 * 320]
    assert estimated.total.raw_bytes == Amount(value=sum(raw))
    work = [256 * 320 * 300, 256 * 320 * 600]
    trials = [
        trial(0.25, part_bytes=raw[0], work=work[0], decoding_s=1.0),
        trial(0.1, part_bytes=raw[1], work=work[1], decoding_s=4.0),
    ]
    jpeg = stored_bytes(estimated, trials, Codec.jpeg)
    assert jpeg is not None and jpeg.is_exact
    assert jpeg.value == pytest.approx(raw[0] * 0.25 + raw[1] * 0.1)
    assert stored_bytes(estimated, trials, Codec.h264) is None
    assert working_seconds(estimated, trials, Codec.raw) == Amount(value=pytest.approx(5.0))
    assert working_seconds(estimated, trials, Codec.jpeg) == Amount(value=pytest.approx(6.0))
    assert working_seconds(estimated, [], Codec.raw) is None


def test_the_range_of_encoded_bytes_holds_the_truth_in_nineteen_of_twenty_trials(
    rules: FamilyRules,
) -> None:
    films = films_at_random(800, seed=2)
    estimated = estimate([group_of(films)], BUDGETS, rules)
    rng = random.Random(3)
    trials = [
        trial(rng.uniform(0.05, 0.15), part_bytes=math.prod(clip_shape(f, BUDGETS.video, rules)))
        for f in films
    ]
    truth = sum(t.encoded_bytes[Codec.jpeg] for t in trials)
    held = 0
    for seed in range(100):
        found = stored_bytes(estimated, random.Random(seed).sample(trials, 20), Codec.jpeg)
        assert found is not None
        held += found.low <= truth <= found.high
    assert 85 <= held <= 100


# The ways out


GIGABYTE = 10**9


def case_of(groups: list[Group], rules: FamilyRules, budgets: Budgets = BUDGETS) -> Case:
    return Case(
        groups=tuple(groups), budgets=budgets, rules=rules, codec=Codec.raw, trials=(trial(0.1),)
    )


def needed_with(case: Case, overrides: tuple[str, ...], factor: float) -> float:
    """Bytes with other settings, worked out from the shapes of all clips."""
    budgets, ratio = case.budgets, 1.0
    for override in overrides:
        name, value = override.split("=")
        if name == "cache.codec":
            ratio = factor
            continue
        _, kind, field = name.split(".")
        changed = dataclasses.replace(getattr(budgets, kind), **{field: int(value)})
        budgets = dataclasses.replace(budgets, **{kind: changed})
    shapes = [
        clip_shape(p, budgets.of(g.kind.value, validation=g.validation), case.rules)
        for g in case.groups
        for p in g.probed
    ]
    return ratio * sum(math.prod(shape) for shape in shapes)


def test_a_twentieth_more_than_the_need_must_be_free() -> None:
    assert fits(Amount(value=100), 105)
    assert not fits(Amount(value=100), 104.9)
    assert not fits(Amount(value=100, variance=1.0), 105)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.12])
def test_every_setting_that_is_named_fits_and_no_larger_one_would(
    rules: FamilyRules, share: float
) -> None:
    case = case_of([group_of(films_at_random(300, seed=4)), group_of([picture(900, 1600)])], rules)
    free = share * case.needed().value
    assert not fits(case.needed(), free)
    options = settings_that_fit(case, free)
    assert "cache.codec=jpeg" in {option.overrides[0] for option in options}
    assert "budget.video.max_pixels" in {option.overrides[0].split("=")[0] for option in options}
    for option in options:
        needed = needed_with(case, option.overrides, factor=0.1)
        assert option.num_bytes == pytest.approx(needed)
        assert needed * 1.05 <= free
        name, value = option.overrides[0].split("=")
        if name != "cache.codec":
            step = 1024 if name.endswith("max_pixels") else 2
            assert int(value) % step == 0
            larger = (f"{name}={int(value) + step}",)
            assert needed_with(case, larger, factor=0.1) * 1.05 > free


def test_other_settings_make_cached_clips_again_where_they_change_the_frames(
    rules: FamilyRules,
) -> None:
    films = [group_of([film(60)]), group_of([film(60)] * 3, is_cached=True)]
    pictures = [group_of([picture(512, 512)], is_cached=True)]
    case = dataclasses.replace(
        case_of([*films, *pictures], rules), trials=(dataclasses.replace(trial(0.1)),)
    )
    one_film = case.needed().value
    assert one_film == math.prod(clip_shape(film(60), BUDGETS.video, rules))
    one_picture = 3 * 512 * 512
    assert case.with_codec(Codec.jpeg).needed().value == pytest.approx(
        0.1 * (4 * one_film + one_picture)
    )
    same = case.with_codec(Codec.zstd)
    assert [group.is_cached for group in same.groups] == [False, True, True]
    fewer = dataclasses.replace(BUDGETS.video, max_frames=60)
    assert case.with_budget("video", fewer).needed().value == 4 * one_film / 2
    # Four films of half the frames need more than the one that is missing of all.
    options = settings_that_fit(case, 0.9 * one_film)
    frames = [o for o in options if o.overrides[0].startswith("budget.video.max_frames=")]
    assert frames and int(frames[0].overrides[0].split("=")[1]) <= 0.9 / 1.05 / 4 * 120


def test_settings_are_paired_where_none_alone_is_enough(rules: FamilyRules) -> None:
    case = case_of([group_of([film(60), film(90)])], rules)
    options = settings_that_fit(case, 0.003 * case.needed().value)
    assert [o.overrides[0] for o in options] == ["cache.codec=jpeg"] * len(options)
    assert {o.overrides[1].split("=")[0] for o in options} == {"budget.video.max_pixels"}
    for option in options:
        assert needed_with(case, option.overrides, factor=0.1) * 1.05 <= (
            0.003 * case.needed().value
        )
    assert settings_that_fit(case, 1_000) == []


def test_only_budgets_that_rule_missing_clips_are_named(rules: FamilyRules) -> None:
    own = dataclasses.replace(BUDGETS, validation_video=FrameBudget(max_frames=64))
    groups = [group_of([film(60)] * 4, validation=True), group_of([picture(512, 512)])]
    case = case_of(groups, rules, own)
    options = settings_that_fit(case, 0.5 * case.needed().value)
    names = {option.overrides[0].split("=")[0] for option in options}
    assert names == {
        "cache.codec",
        "budget.validation_video.max_pixels",
        "budget.validation_video.max_frames",
    }


# The cap of qwen-vl-utils


def test_the_cap_of_qwen_vl_utils_is_told_where_it_binds(rules: FamilyRules) -> None:
    budget = FrameBudget(max_frames=768, max_pixels=1_048_576, convention=Convention.qwen_vl_utils)
    films = [film(10), film(30, 2160, 3840)]
    # 768 tokens of 32 x 32 pixels: a square of 27.7 tokens, so of 27.
    assert frame_cap(films, budget, rules) == (60, (27 * 32) ** 2)
    # 0.9 x 128,000 tokens of two frames each, over 768 frames: 300 tokens, a square of 17.
    assert frame_cap([*films, film(3600)], budget, rules) == (768, (17 * 32) ** 2)
    small = dataclasses.replace(budget, max_pixels=262_144)
    assert frame_cap([film(10)], small, rules) is None
    as_transformers = dataclasses.replace(budget, convention=Convention.transformers)
    assert frame_cap(films, as_transformers, rules) is None


# Beside what caching makes


@dataclasses.dataclass(frozen=True)
class Made:
    """What caching made of the data of a config."""

    clips: int
    frames: int
    raw_bytes: int
    stored_bytes: int
    failures: int


def config_of(folder: Path, samples: list[Sample], *overrides: str) -> PreprocessConfig:
    register()
    write_samples(folder / "rows.jsonl", samples)
    always = ["data=files", f"data.train=[{folder}/rows.jsonl]", f"cache.dir={folder}/cache"]
    return compose("preprocess", [*always, "decode.workers=2", *overrides], PreprocessConfig)


def sample(number: int, *media: Media) -> Sample:
    return Sample(
        id=f"s/{number}",
        problem="Why?",
        answer="B",
        problem_type=ProblemType.open_ended,
        media=media,
    )


def planned(config: PreprocessConfig) -> tuple[Case, Headers]:
    """What a plan knows of what is missing, without trials."""
    parts = open_parts(config)
    headers = read_headers(survey(parts).pending, config, is_cached=False)
    case = Case(
        groups=headers.groups,
        budgets=config.budget,
        rules=parts[0][1].rules,
        codec=config.cache.codec,
        trials=(),
    )
    return case, headers


def make(config: PreprocessConfig) -> Made:
    report = cache_all(open_parts(config), progress=False)
    cache = open_cache(config.cache)
    clips = [cache.read_encoded(key).frames for key in sorted(cache.keys())]
    return Made(
        clips=len(clips),
        frames=sum(clip.shape[0] for clip in clips),
        raw_bytes=sum(math.prod(clip.shape) for clip in clips),
        stored_bytes=sum(clip.payload.size for clip in clips),
        failures=report.failed,
    )


PYAV = "decode.decoder=pyav"
"""Where any decoder will do: its processes start in half the time."""


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path, pixels in zip(paths, moving_colours(6, 300, 500), strict=True):
        Image.fromarray(pixels).save(path)
    return paths


@pytest.mark.usefixtures("our_ray")
def test_frames_and_bytes_of_real_and_generated_media_are_predicted_exactly(
    tmp_path: Path, pictures: list[Path]
) -> None:
    real = [video(real_clip(name)) for name in REAL_CLIPS]
    made = [
        video(write_video(tmp_path / "short.mp4", num_frames=3)),
        video(write_video(tmp_path / "tall.mp4", num_frames=60, height=640, width=360)),
        video(write_video(tmp_path / "odd.mkv", num_frames=50, fps=30000 / 1001)),
        video(write_video(tmp_path / "turned.mp4", num_frames=24, rotation=90)),
    ]
    spans = [video(real[1].path, 1.0, 3.5), video(real[0].path, start_s=2.0)]
    lists = [frame_list(pictures, 2.0), frame_list(pictures[:3], 1.0)]
    images = [image(path) for path in pictures]
    samples = [sample(i, medium) for i, medium in enumerate([*real, *made, *spans, *lists])]
    samples += [sample(90), sample(91, *images, real[2]), sample(92, video(tmp_path / "absent"))]
    config = config_of(tmp_path, samples, "budget.video.max_frames=12")

    case, headers = planned(config)
    assert headers.failures == ()
    expected = estimate(case.groups, case.budgets, case.rules)
    found = make(config)
    assert expected.total.clips == Amount(value=found.clips) == Amount(value=12 + 6)
    assert expected.total.frames == Amount(value=found.frames)
    assert expected.total.raw_bytes == Amount(value=found.raw_bytes)
    assert case.needed() == Amount(value=found.stored_bytes)
    assert found.failures == 1

    again, _ = planned(config)
    assert again.groups == ()


def copied(path: str, target: Path, *options: str) -> Path:
    """The packets of a video in another container."""
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-v", "error", "-i", path, "-c", "copy", *options, str(target)]
    subprocess.run(command, check=True)
    return target


def cut(path: Path, share: float) -> Path:
    """The first part of a file, whose header still announces the whole."""
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    return path


@pytest.mark.usefixtures("our_ray")
def test_headers_that_are_wrong_put_a_plan_off_by_no_more_than_they_are(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.mp4", num_frames=240, options={"g": "12"})
    # A transport stream does not say how many frames it holds.
    stream = copied(whole, tmp_path / "stream.ts")
    header_first = ("-movflags", "+faststart")
    tail_lost = [
        cut(copied(whole, tmp_path / f"{share}.mp4", *header_first), share) for share in (0.9, 0.8)
    ]
    media = [video(path) for path in (whole, stream, *tail_lost)]
    config = config_of(tmp_path, [sample(i, medium) for i, medium in enumerate(media)])

    case, _ = planned(config)
    needed = case.needed()
    found = make(config)
    assert found.failures == 0 and found.clips == 4
    # All four announce 20 s; two of them end after about 18 s and 16 s.
    assert needed.value == 4 * 40 * 3 * 96 * 128
    assert 1.02 * found.raw_bytes <= needed.value <= 1.12 * found.raw_bytes


@pytest.mark.usefixtures("our_ray")
@pytest.mark.parametrize(
    "codec",
    [Codec.jpeg, pytest.param(Codec.zstd, marks=SLOW), pytest.param(Codec.h264, marks=SLOW)],
)
def test_encoded_bytes_are_predicted_exactly_where_all_clips_were_tried(
    tmp_path: Path, pictures: list[Path], codec: Codec
) -> None:
    media = [video(real_clip(name)) for name in REAL_CLIPS[1:3]]
    media += [image(path) for path in pictures[:3]]
    samples = [sample(i, medium) for i, medium in enumerate(media)]
    config = config_of(
        tmp_path, samples, f"cache.codec={codec.value}", "budget.video.max_frames=16", PYAV
    )
    case, headers = planned(config)
    tried = try_clips(headers.probed, config.decode, config.cache, num_workers=2, progress=False)
    assert len(tried.done) == 5 and not tried.failures
    needed = dataclasses.replace(case, trials=tried.done).needed()
    assert needed.is_exact
    assert needed.value == pytest.approx(make(config).stored_bytes, abs=0.5)
    seconds = working_seconds(estimate(case.groups, BUDGETS, case.rules), tried.done, codec)
    assert seconds is not None and seconds.value > 0


# The job


def lines_of(text: str) -> dict[str, str]:
    """What a plan printed, by the word in front."""
    return {line.split()[0]: line for line in text.splitlines()}


@pytest.mark.usefixtures("our_ray")
def test_a_plan_says_what_there_is_to_do_and_does_none_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(write_video(tmp_path / "broken.mp4", num_frames=48))
    data = bytearray(broken.read_bytes())
    start, end = data.find(b"mdat") + 4, data.find(b"moov")
    data[start:end] = bytes(end - start)
    broken.write_bytes(data)
    (tmp_path / "text.mp4").write_text("no video")
    films = [write_video(tmp_path / f"{n}.mp4", num_frames=48, seed=n) for n in range(3)]
    media = [video(path) for path in (*films, broken, tmp_path / "text.mp4", tmp_path / "absent")]
    samples = [sample(i, medium) for i, medium in enumerate(media)] + [sample(90)]
    config = config_of(tmp_path, samples, PYAV)

    plan(config)
    printed = capsys.readouterr().out
    lines = lines_of(printed)
    assert str(tmp_path / "cache") in lines["cache"] and "(arrow, raw)" in lines["cache"]
    assert lines["clips"].endswith("of 7 samples: 5 missing, 0 in the cache, 1 unreadable")
    assert lines["headers"].endswith("5 of 5 read, 1 in vain; 3 clips decoded for a try")
    assert lines["frames"].split()[1] == "32"  # 4 s at 2 fps of the three and of the broken one
    assert f"bytes     raw   {bytes_text(32 * 3 * 96 * 128)} (cache.codec)" in printed
    assert re.search(r"bytes     jpeg  .* kB.*, lossy", printed)
    assert re.fullmatch(r"time      about .* seconds.* on 2 workers", lines["time"])
    assert f"no frames {tmp_path}/absent: No such file or directory" in printed
    assert f"no frames {tmp_path}/text.mp4: " in printed
    assert f"no frames {broken}: " in printed
    assert open_cache(config.cache).keys() == []

    made = make(config)
    assert (made.clips, made.frames, made.failures) == (3, 24, 3)
    plan(config)
    assert "0 missing, 3 in the cache, 3 unreadable" in capsys.readouterr().out


def test_what_does_not_fit_is_refused_with_settings_under_which_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [sample(i, video(real_clip(name))) for i, name in enumerate(REAL_CLIPS)]
    config = config_of(tmp_path, samples, PYAV)
    case, _ = planned(config)
    raw = case.needed().value
    # What a disk of this size would answer; nothing else of the plan is another than in use.
    monkeypatch.setattr(cache_worker, "free_disk_bytes", lambda folder: int(raw / 2))
    with pytest.raises(UserError) as error:
        plan(config)
    text = str(error.value)
    assert f"the missing frames need {bytes_text(raw)} as raw" in text
    assert f"{tmp_path}/cache has {bytes_text(raw / 2)} free" in text
    assert "name another disk by cache.dir" in text
    assert "bytes     raw" in capsys.readouterr().out  # the plan itself is printed all the same
    named = re.findall(r"(cache\.codec|budget\.[a-z.]+_[a-z]+)=(\w+) \(about", text)
    assert {"cache.codec", "budget.video.max_pixels", "budget.video.max_frames"} == {
        name for name, _ in named
    }
    for name, value in named:
        if name == "cache.codec":
            continue
        other = config_of(tmp_path, samples, f"{name}={value}")
        assert planned(other)[0].needed().value * 1.05 <= raw / 2


def test_the_command_prints_a_plan(tmp_path: Path, tiny_model_path: str) -> None:
    write_samples(tmp_path / "rows.jsonl", [sample(0, video(write_video(tmp_path / "clip.mp4")))])
    arguments = [
        *("job=plan", "data=files", f"data.train=[{tmp_path}/rows.jsonl]", PYAV),
        *(f"model.path={tiny_model_path}", "model.build=null"),
        f"cache.dir={tmp_path}/new/cache",
    ]
    result = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    assert lines_of(result.stdout)["cache"].startswith(
        f"cache     {tmp_path}/new/cache (arrow, raw)"
    )
    assert not (tmp_path / "new/cache/shards").exists()


# Words


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    {
        0: "0 B",
        999: "999 B",
        999.6: "1 kB",
        1_000: "1 kB",
        12_345: "12.3 kB",
        999_499: "999 kB",
        999_500: "1 MB",
        90_597_949_440: "90.6 GB",
        1_100_000_000_000: "1.10 TB",
        2_345_000_000_000_000: "2,340 TB",
    }.items(),
)
def test_bytes_in_words(num_bytes: float, text: str) -> None:
    assert bytes_text(num_bytes) == text


def test_ranges_and_hours_in_words() -> None:
    assert amount_text(Amount(value=90.6e9), bytes_text) == "90.6 GB"
    about = Amount(value=90e9, variance=(1e9 / 1.96) ** 2)
    assert amount_text(about, bytes_text) == "about 90 GB (89 GB to 91 GB)"
    assert [hours_text(hours) for hours in (2.34, 0.25, 0.02, 0.002)] == [
        *("2.3 hours", "15 minutes", "72 seconds", "7 seconds")
    ]
