"""Frames: equal from both decoders, equal to the model's own processor, errors with reasons."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor, Qwen3VLVideoProcessor
from transformers.image_utils import PILImageResampling, SizeDict

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.decoders import open_source
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.frame_index import clean_rate
from easyvideor1.preprocess.geometry import video_volume_limits
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind
from tests.media import REAL_CLIPS, frame_list, image, moving_colours, real_clip, video, write_video

BUDGETS = {
    "two a second": FrameBudget(fps=2.0, max_pixels=65_536),
    "dense": FrameBudget(fps=100.0, max_frames=40, max_pixels=30_000),
    "five": FrameBudget(min_frames=5, max_frames=5, max_pixels=262_144),
}
TORCHCODEC = DecodeConfig(decoder=Decoder.torchcodec)
PYAV = DecodeConfig(decoder=Decoder.pyav)


def assert_same(one: Clip, other: Clip) -> None:
    assert np.array_equal(one.frames, other.frames)
    ignored = {"decoder", "decoder_version"}
    first, second = one.metadata.as_dict(), other.metadata.as_dict()
    assert {k: v for k, v in first.items() if k not in ignored} == {
        k: v for k, v in second.items() if k not in ignored
    }


@pytest.mark.usefixtures("torchcodec")
@pytest.mark.parametrize("name", REAL_CLIPS)
@pytest.mark.parametrize(
    ("span", "budget"),
    [((None, None), "dense"), ((1.0, 3.3), "two a second"), ((2.5, None), "five")],
    ids=str,
)
def test_both_decoders_give_equal_frames_of_real_clips(
    name: str, span: tuple, budget: str, rules: FamilyRules
) -> None:
    media = video(real_clip(name), *span)
    by_torchcodec = decode(media, BUDGETS[budget], rules, TORCHCODEC)
    by_pyav = decode(media, BUDGETS[budget], rules, PYAV)
    assert_same(by_torchcodec, by_pyav)
    assert (by_torchcodec.metadata.decoder, by_pyav.metadata.decoder) == ("torchcodec", "pyav")


GENERATED = {
    "key frame every 6": {"options": {"g": "6"}},
    "one group, B-frames": {"options": {"g": "250", "bf": "3"}, "num_frames": 60},
    "only key frames": {"options": {"g": "1"}},
    "open groups": {"options": {"x264-params": "open-gop=1:keyint=10:bframes=3"}, "num_frames": 50},
    "29.97 fps": {"fps": 30000 / 1001, "num_frames": 50},
    "one frame": {"num_frames": 1},
    "two frames": {"num_frames": 2},
    "odd size": {"codec": "libx264", "pixel_format": "yuv444p", "height": 97, "width": 131},
    "mpeg4": {"codec": "mpeg4"},
    "vp9": {"codec": "libvpx-vp9", "num_frames": 10},
    "BT.709, full range": {"options": {"x264-params": "fullrange=on:colormatrix=bt709"}},
    "turned by 90": {"rotation": 90},
    "turned by 180": {"rotation": 180},
    "turned by -90": {"rotation": -90},
}


@pytest.mark.usefixtures("torchcodec")
@pytest.mark.parametrize("settings", GENERATED.values(), ids=GENERATED.keys())
def test_both_decoders_give_equal_frames_of_generated_clips(
    settings: dict, rules: FamilyRules, tmp_path: Path
) -> None:
    path = write_video(tmp_path / "clip.mp4", **settings)
    for budget in (FrameBudget(fps=100, max_frames=64), FrameBudget(fps=2.0)):
        assert_same(
            decode(video(path), budget, rules, TORCHCODEC), decode(video(path), budget, rules, PYAV)
        )


def test_a_turned_video_is_shown_upright(
    decode_config: DecodeConfig, rules: FamilyRules, tmp_path: Path
) -> None:
    lying = write_video(tmp_path / "lying.mp4", height=64, width=128)
    turned = write_video(tmp_path / "turned.mp4", height=64, width=128, rotation=90)
    budget = FrameBudget(max_frames=4, min_frames=4, min_pixels=64 * 128)
    straight = decode(video(lying), budget, rules, decode_config)
    upright = decode(video(turned), budget, rules, decode_config)
    assert upright.shape == (4, 3, 128, 64)
    assert (upright.metadata.height, upright.metadata.width) == (128, 64)
    assert np.array_equal(upright.frames, np.rot90(straight.frames, axes=(2, 3)))


@pytest.mark.parametrize("name", ["bigbuckbunny.mp4", "bikes.mp4", "carphone_pristine.mp4"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS.keys())
def test_video_pixels_are_those_of_the_hugging_face_processor(
    name: str, budget: FrameBudget, decode_config: DecodeConfig, rules: FamilyRules
) -> None:
    clip = decode(video(real_clip(name)), budget, rules, decode_config)
    source = open_source(video(real_clip(name)), decode_config.decoder.value)
    frames = torch.stack([frame for _, frame in source.read(clip.metadata.frame_indices)])
    smallest, largest = video_volume_limits(len(frames), budget)
    expected = Qwen3VLVideoProcessor().resize(
        frames[None],
        size=SizeDict(shortest_edge=smallest, longest_edge=largest),
        resample=PILImageResampling.BICUBIC,
        factor=rules.factor,
        temporal_factor=rules.temporal_patch_size,
    )
    assert expected.dtype == torch.uint8
    assert np.array_equal(clip.frames, expected[0].numpy())


def test_image_pixels_are_those_of_the_hugging_face_processor(
    rules: FamilyRules, tmp_path: Path
) -> None:
    pixels = moving_colours(1, 211, 333)[0]
    Image.fromarray(pixels).save(tmp_path / "image.png")
    budget = FrameBudget(min_pixels=4_096, max_pixels=40_000)
    clip = decode(image(tmp_path / "image.png"), budget, rules, PYAV)
    processor = Qwen2VLImageProcessor(
        patch_size=16, min_pixels=4_096, max_pixels=40_000, do_normalize=False, do_rescale=False
    )
    expected = processor(Image.fromarray(pixels), return_tensors="pt")
    ours = processor(
        Image.fromarray(clip.frames[0].transpose(1, 2, 0)), do_resize=False, return_tensors="pt"
    )
    assert clip.kind is MediaKind.image
    assert torch.equal(ours["image_grid_thw"], expected["image_grid_thw"])
    assert torch.equal(ours["pixel_values"], expected["pixel_values"])


@pytest.mark.usefixtures("torchcodec")
@pytest.mark.parametrize("settings", GENERATED.values(), ids=GENERATED.keys())
def test_full_frames_are_those_of_torchcodecs_ordinary_decoder(
    settings: dict, tmp_path: Path
) -> None:
    from torchcodec.decoders import VideoDecoder

    path = write_video(tmp_path / "clip.mp4", **settings)
    source = open_source(video(path), "torchcodec")
    expected = VideoDecoder(path).get_frames_at(list(range(len(source.index)))).data
    assert torch.equal(torch.stack([f for _, f in source.read(range(len(expected)))]), expected)


def test_metadata_say_where_the_frames_are_from(
    decode_config: DecodeConfig, rules: FamilyRules
) -> None:
    budget = FrameBudget(min_frames=4, max_frames=4)
    clip = decode(video(real_clip("bigbuckbunny.mp4")), budget, rules, decode_config)
    metadata = clip.metadata
    assert metadata.frame_indices == (0, 44, 87, 131)
    assert metadata.timestamps_s == (0.0, 1.76, 3.48, 5.24)
    assert (metadata.width, metadata.height) == (1280, 720)
    assert (metadata.total_frames, metadata.source_fps, metadata.duration_s) == (132, 25.0, 5.28)
    assert metadata.decoder == decode_config.decoder.value
    assert metadata.decoder_version
    assert clip.frames.flags.c_contiguous


def test_an_image_is_turned_as_its_exif_data_say(rules: FamilyRules, tmp_path: Path) -> None:
    pixels = moving_colours(1, 64, 96)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned clockwise by 90 degrees
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    clip = decode(image(tmp_path / "turned.png"), FrameBudget(), rules, PYAV)
    assert np.array_equal(clip.frames[0].transpose(1, 2, 0), np.rot90(pixels, k=-1))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK"])
def test_images_of_other_modes_become_rgb(mode: str, rules: FamilyRules, tmp_path: Path) -> None:
    path = tmp_path / "image.tiff"
    Image.fromarray(moving_colours(1, 64, 64)[0]).convert(mode).save(path)
    assert decode(image(path), FrameBudget(), rules, PYAV).shape == (1, 3, 64, 64)


def test_a_list_of_frames_is_sampled_as_a_video(rules: FamilyRules, tmp_path: Path) -> None:
    frames = moving_colours(12, 64, 64)
    paths = [tmp_path / f"{i:03d}.png" for i in range(12)]
    for path, frame in zip(paths, frames, strict=True):
        Image.fromarray(frame).save(path)
    media = frame_list(paths, fps=4.0)
    clip = decode(media, FrameBudget(fps=2.0), rules, PYAV)
    assert clip.metadata.frame_indices == (0, 2, 4, 7, 9, 11)
    assert clip.metadata.decoder == "pillow"
    assert np.array_equal(clip.frames[1].transpose(1, 2, 0), frames[2])


def test_frames_of_different_sizes_are_refused(rules: FamilyRules, tmp_path: Path) -> None:
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    Image.new("RGB", (64, 64)).save(paths[0])
    Image.new("RGB", (32, 64)).save(paths[1])
    with pytest.raises(DecodeError, match=r"1\.png is 32x64, the first frame 64x64"):
        decode(frame_list(paths, fps=2.0), FrameBudget(), rules, PYAV)


def test_what_cannot_be_decoded_says_which_file_and_why(
    decode_config: DecodeConfig, rules: FamilyRules, tmp_path: Path
) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("this is no video " * 100)
    for media in (video(text), image(text), video(tmp_path / "absent.mp4"), video(tmp_path)):
        with pytest.raises(DecodeError) as caught:
            decode(media, FrameBudget(), rules, decode_config)
        assert str(caught.value).startswith(f"cannot decode {media.path}: ")
        assert caught.value.reason
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_span_behind_the_end_is_refused_by_name(
    decode_config: DecodeConfig, rules: FamilyRules
) -> None:
    media = video(real_clip("bikes.mp4"), 20.0, 30.0)
    with pytest.raises(DecodeError, match=r"bikes\.mp4 from 20 s to 30 s: .* source of 10\.00 s"):
        decode(media, FrameBudget(), rules, decode_config)


@pytest.mark.parametrize(
    ("noisy", "clean"),
    [
        (12.000000000000002, 12.0),
        (120 / 4.004, 30000 / 1001),
        (23.976023976023978, 24000 / 1001),
        (12.5, 12.5),
        (1 / 3, 1 / 3),
    ],
)
def test_the_rate_is_free_of_floating_point_noise(noisy: float, clean: float) -> None:
    assert clean_rate(noisy) == clean


def test_every_call_is_counted(
    rules: FamilyRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = Media(kind=MediaKind.image, path=str(tmp_path / "absent.png"))
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    assert decode_counter.total(tmp_path / "counts") == 0
    for _ in range(3):
        with pytest.raises(DecodeError):
            decode(media, FrameBudget(), rules, PYAV)
    assert decode_counter.total(tmp_path / "counts") == 3
