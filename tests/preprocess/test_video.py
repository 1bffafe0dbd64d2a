"""Reading by a frame index: any frames in any steps, key frames, varying rates, false promises."""

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode, probe
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.frame_index import FrameIndex, evenly_spaced
from easyvideor1.preprocess.frame_readers import PyavReader, TorchcodecReader
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.scan import scan
from easyvideor1.preprocess.video import VideoFile
from easyvideor1.schema.budget import FrameBudget, Snap
from tests.media import X264, frame_list, image, numbers_in, real_clip, video, write_numbered

PYAV = DecodeConfig(decoder=Decoder.pyav)
OPEN = "open-gop=1:keyint=15:min-keyint=15:bframes=4:b-pyramid=normal:scenecut=0"
CODINGS = {
    "closed groups": ("clip.mp4", *X264),
    "open groups": ("clip.mkv", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-x264-params", OPEN),
    "only key frames": ("clip.mov", "-c:v", "mjpeg"),
    "transport stream": ("clip.ts", *X264),
    "MPEG-2": ("clip.ts", "-c:v", "mpeg2video", "-g", "15", "-bf", "2"),
    "VP9": ("clip.webm", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-g", "15"),
    "counted": ("clip.avi", *X264),
}


def read_numbers(source: VideoFile, positions: list[int]) -> list[int]:
    return numbers_in(np.stack([frame.numpy() for _, frame in source.read(positions)]))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """6 s at 10 frames a second, a key frame at the beginning of every group of 12."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    fixed = ("-sc_threshold", "0", "-keyint_min", "12")
    return str(write_numbered(path, *X264, *fixed))


@pytest.mark.parametrize("coding", CODINGS)
def test_any_frames_can_be_read_in_any_steps(
    coding: str, decode_config: DecodeConfig, tmp_path: Path
) -> None:
    name, *options = CODINGS[coding]
    path = write_numbered(tmp_path / name, *options, count=90)
    source = VideoFile(str(path), decode_config.decoder.value)
    assert len(source.index) == 90
    assert read_numbers(source, list(range(90))) == list(range(90))
    rng = random.Random(0)
    for size in (1, 1, 1, 2, 3, 5, 8, 13, 21):
        positions = sorted(rng.choices(range(90), k=size))  # also the same twice, and backwards
        assert read_numbers(source, positions) == positions


def test_only_what_is_needed_is_decoded(clip: str, decode_config: DecodeConfig) -> None:
    source = VideoFile(clip, decode_config.decoder.value)
    decoded = []
    frames = source._reader.frames
    source._reader.frames = lambda: (decoded.append(frame) or frame for frame in frames())
    assert read_numbers(source, [14, 15, 50]) == [14, 15, 50]
    assert len(decoded) == 3 + 1 + 3, "from the key frames 12 and 48 on, each frame once"


def index_of(times: list[int], *, durations: int = 1, keys: tuple[int, ...] = (0,)) -> FrameIndex:
    """Times in tenths of a second."""
    pts = np.array(times)
    seconds = (pts[-1] + durations - pts[0]) / 10
    return FrameIndex(
        pts=pts,
        durations=np.full(len(pts), durations),
        keys=np.array(keys),
        key_dts=pts[list(keys)],
        time_base=Fraction(1, 10),
        fps=len(pts) / seconds,
    )


def test_at_a_varying_rate_a_time_shows_the_frame_displayed_then() -> None:
    index = index_of([7, 8, 9, 17], durations=3)  # 0, 0.1, 0.2 and 1.0 s; 13 tenths in all
    assert not index.is_constant
    # The nominal times are 0, 0.325, 0.65 and 0.975 s; the last is rounded to tenths of a second.
    assert index.shown_at([0, 1, 2, 3]) == [0, 2, 2, 3]
    assert "variable frame rate: frames follow after 0.1 to 0.8 s" in index.rate_notes()[0]


@pytest.mark.parametrize("fps", [24000 / 1001, 25.0, 30000 / 1001, 60.0, 7.5])
def test_times_rounded_to_milliseconds_do_not_make_a_rate_vary(fps: float) -> None:
    pts = np.round(np.arange(5000) / fps * 1000).astype(np.int64)
    index = FrameIndex(
        pts=pts,
        durations=np.full(5000, round(1000 / fps)),
        keys=np.zeros(1, np.int64),
        key_dts=np.zeros(1, np.int64),
        time_base=Fraction(1, 1000),
        fps=5000 / (int(pts[-1] + round(1000 / fps)) / 1000),
    )
    assert index.is_constant
    assert index.shown_at(range(5000)) == list(range(5000))
    assert index.rate_notes() == ()


@pytest.mark.parametrize(
    ("times_s", "span", "expected"),
    [
        ([0.0, 0.9, 2.9], (None, None), [0, 10, 30]),
        ([0.4, 0.5, 0.6, 1.4], (None, None), [0, 10]),  # 0.5 s is as near to either
        ([1.2, 1.3], (1.1, None), [20]),
        ([0.9], (None, 0.9), [0]),
        ([1.0], (1.0, 1.0), [10]),
        ([1.2], (1.1, 1.9), []),
        ([9.0], (None, None), [30]),
    ],
)
def test_the_nearest_key_frames_of_a_span(
    times_s: list[float], span: tuple, expected: list[int]
) -> None:
    index = index_of(list(range(40)), keys=(0, 10, 20, 30))
    assert index.nearest_keys(times_s, *span) == expected
    assert index.counted().nearest_keys(times_s, *span) == []


def test_snapping_shows_key_frames_at_their_own_times(
    clip: str, decode_config: DecodeConfig, rules: FamilyRules
) -> None:
    budget = FrameBudget(fps=2.0, snap=Snap.keyframe)
    exact = decode(video(clip), FrameBudget(fps=2.0), rules, decode_config)
    snapped = decode(video(clip), budget, rules, decode_config)
    metadata = snapped.metadata
    assert numbers_in(snapped.frames) == [0, 12, 24, 36, 48] == list(metadata.frame_indices)
    assert metadata.timestamps_s == pytest.approx((0.0, 1.2, 2.4, 3.6, 4.8))
    assert metadata.snapped and not exact.metadata.snapped
    assert metadata.sample_fps == pytest.approx(5 / 6)
    assert metadata.total_frames == 60


def test_snapping_stays_within_the_span(
    clip: str, decode_config: DecodeConfig, rules: FamilyRules
) -> None:
    budget = FrameBudget(fps=2.0, snap=Snap.keyframe)
    snapped = decode(video(clip, 1.3, 4.0), budget, rules, decode_config)
    assert numbers_in(snapped.frames) == [24, 36]
    without = decode(video(clip, 1.3, 2.3), budget, rules, decode_config)
    assert numbers_in(without.frames) == [13, 16, 20, 23]
    assert not without.metadata.snapped
    assert without.metadata.repairs == ("has no key frame to snap to: the very frames are shown",)


def test_snapping_decodes_only_key_frames(clip: str, decode_config: DecodeConfig) -> None:
    source = VideoFile(clip, decode_config.decoder.value)
    decoded = []
    frames = source._reader.frames
    source._reader.frames = lambda: (decoded.append(frame) or frame for frame in frames())
    assert read_numbers(source, [12, 24, 36]) == [12, 24, 36]
    assert len(decoded) == 3


def test_a_decoder_with_other_times_than_the_container_counts_frames(
    clip: str, decode_config: DecodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions of FFmpeg may disagree about a file; then the order of the frames decides."""
    for reader in (TorchcodecReader, PyavReader):
        original = reader.frames
        monkeypatch.setattr(
            reader,
            "frames",
            lambda self, original=original: (
                frame._replace(pts=frame.pts + 7) for frame in original(self)
            ),
        )
    source = VideoFile(clip, decode_config.decoder.value)
    assert read_numbers(source, [0, 13, 30, 59]) == [0, 13, 30, 59]
    assert source.repairs == ("its frames have other times than its packets: they are counted",)


def test_the_index_of_a_file_is_what_the_encoder_wrote(clip: str) -> None:
    index = scan(clip)
    assert np.allclose(index.times_s, np.arange(60) / 10)
    assert index.keys.tolist() == [0, 12, 24, 36, 48]
    assert (index.fps, index.is_timed, index.notes) == (10.0, True, ())


def test_pictures_are_evenly_spaced_and_all_key_frames() -> None:
    index = evenly_spaced(5, 29.97)
    assert np.allclose(index.times_s, np.arange(5) / 29.97)
    assert index.nearest_keys([0.0, 2 / 29.97], None, None) == [0, 2]


def test_a_probe_reads_the_header(tmp_path: Path) -> None:
    found = probe(video(real_clip("bigbuckbunny.mp4")), "pyav")
    assert (found.total_frames, found.fps, found.height, found.width) == (132, 25.0, 720, 1280)
    bare = write_numbered(tmp_path / "bare.h264", *X264)  # its header says nothing
    assert probe(video(bare), "torchcodec").total_frames == 60
    with pytest.raises(DecodeError, match=r"absent\.mp4: No such file"):
        probe(video(tmp_path / "absent.mp4"), "pyav")


def test_a_probe_of_pictures_does_not_decode_them(tmp_path: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (96, 64)).save(tmp_path / "turned.jpg", exif=exif)
    path = tmp_path / "turned.jpg"
    path.write_bytes(path.read_bytes()[:-50])  # too short to be decoded
    found = probe(image(path), "pillow")
    assert (found.total_frames, found.fps, found.height, found.width) == (1, 1.0, 96, 64)
    found = probe(frame_list([path, path], fps=3.0), "pillow")
    assert (found.total_frames, found.fps) == (2, 3.0)
