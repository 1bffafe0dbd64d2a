"""Codecs of the cache, beside Pillow, torchvision, the ffmpeg program and arithmetic by hand."""

import io
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.io import decode_jpeg
from torchvision.transforms.v2 import functional as tv

from easyvideor1.preprocess.codecs import IDENTICAL_DB, EncodedFrames, checksum, encode
from easyvideor1.preprocess.config import CacheConfig, Codec
from easyvideor1.schema.errors import UserError
from tests.media import REAL_CLIPS, moving_colours, real_clip

LOSSY = [Codec.jpeg, Codec.h264]
LOSSLESS = [Codec.raw, Codec.zstd]


def frames_of(images: np.ndarray) -> np.ndarray:
    """uint8 [T, 3, H, W] from [T, H, W, 3]."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def smooth(num_frames: int = 4, height: int = 64, width: int = 96) -> np.ndarray:
    return frames_of(moving_colours(num_frames, height, width))


def noise(num_frames: int = 4, height: int = 64, width: int = 96) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (num_frames, 3, height, width), dtype=np.uint8)


def saturated() -> np.ndarray:
    """One frame of each corner of the RGB cube."""
    corners = np.array([[r, g, b] for r in (0, 255) for g in (0, 255) for b in (0, 255)], np.uint8)
    return np.ascontiguousarray(np.broadcast_to(corners[:, :, None, None], (8, 3, 64, 96)))


def footage(name: str, num_frames: int = 128, side: int = 512) -> np.ndarray:
    """A real clip, repeated to its length and scaled to a square."""
    with av.open(real_clip(name)) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    frames = torch.from_numpy(frames_of(np.stack(shown[:num_frames])))
    mode = tv.InterpolationMode.BICUBIC
    scaled = tv.resize(frames, [side, side], interpolation=mode, antialias=True).numpy()
    return np.ascontiguousarray(scaled[np.arange(num_frames) % len(scaled)])


def psnr_by_hand(one: np.ndarray, other: np.ndarray) -> float:
    return 10 * math.log10(255**2 / np.mean((one.astype(np.float64) - other) ** 2))


def parts(encoded: EncodedFrames) -> list[bytes]:
    ends = np.cumsum(encoded.frame_bytes)
    payload = encoded.payload.tobytes()
    return [payload[end - size : end] for end, size in zip(ends, encoded.frame_bytes, strict=True)]


@pytest.mark.parametrize("codec", LOSSLESS)
def test_lossless_codecs_give_every_frame_back(codec: Codec) -> None:
    for frames in (smooth(), noise(), saturated()):
        encoded = encode(frames, CacheConfig(codec=codec))
        assert np.array_equal(encoded.decode(), frames)
        assert encoded.digest == checksum(frames)
        assert encoded.psnr_db is None


def test_raw_frames_are_not_copied() -> None:
    frames = noise()
    encoded = encode(frames, CacheConfig(codec=Codec.raw))
    assert np.shares_memory(encoded.payload, frames)
    assert np.shares_memory(encoded.decode(), frames)


def test_frames_that_are_not_contiguous_are_stored_as_they_look() -> None:
    frames = noise(num_frames=6)[::2, :, ::-1]
    for codec in LOSSLESS:
        assert np.array_equal(encode(frames, CacheConfig(codec=codec)).decode(), frames)


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("num_frames", [1, 2, 3, 17])
@pytest.mark.parametrize("size", [(28, 28), (56, 308), (64, 96)])
def test_lossy_codecs_give_as_many_frames_of_the_same_size(
    codec: Codec, num_frames: int, size: tuple[int, int]
) -> None:
    frames = smooth(num_frames, *size)
    decoded = encode(frames, CacheConfig(codec=codec)).decode()
    assert decoded.shape == frames.shape
    # Frames in their order: each is nearest to its own original.
    distances = [[psnr_by_hand(one, other) for other in frames] for one in decoded]
    assert np.argmax(distances, axis=1).tolist() == list(range(num_frames))


@pytest.mark.parametrize("codec", LOSSY)
def test_the_psnr_recorded_is_that_of_the_frames_read(codec: Codec) -> None:
    for frames in (smooth(), noise(), saturated()):
        encoded = encode(frames, CacheConfig(codec=codec))
        assert encoded.psnr_db == pytest.approx(psnr_by_hand(frames, encoded.decode()), abs=1e-9)


@pytest.mark.parametrize("codec", LOSSY)
def test_frames_that_come_back_exactly_have_a_finite_psnr(codec: Codec) -> None:
    black = np.zeros((2, 3, 32, 32), np.uint8)
    encoded = encode(black, CacheConfig(codec=codec))
    assert np.array_equal(encoded.decode(), black)
    assert encoded.psnr_db == IDENTICAL_DB


@pytest.mark.parametrize("codec", LOSSY)
def test_saturated_colours_come_back(codec: Codec) -> None:
    frames = saturated()
    encoded = encode(frames, CacheConfig(codec=codec))
    assert np.abs(encoded.decode().astype(int) - frames).max() <= 1
    assert encoded.psnr_db is not None and encoded.psnr_db > 55


@pytest.mark.parametrize("codec", LOSSY)
def test_no_colour_drifts_by_more_than_the_rounding_of_a_level(codec: Codec) -> None:
    config = CacheConfig(codec=codec, h264_crf=0)
    for frames in (smooth(8, 128, 128), footage("bikes.mp4", num_frames=16, side=256)):
        drift = (encode(frames, config).decode().astype(int) - frames).mean(axis=(0, 2, 3))
        assert np.abs(drift).max() < 0.5, drift


@pytest.mark.parametrize("quality", [10, 50, 95])
def test_the_jpeg_quality_is_the_one_asked_for(quality: int) -> None:
    encoded = encode(smooth(2), CacheConfig(codec=Codec.jpeg, jpeg_quality=quality))
    # The first row of the luminance table of ITU T.81, Annex K, scaled as libjpeg does.
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    first_row = [16, 11, 10, 16, 24, 40, 51, 61]
    expected = [min(255, max(1, (value * scale + 50) // 100)) for value in first_row]
    for part in parts(encoded):
        with Image.open(io.BytesIO(part)) as image:
            assert image.quantization[0][:8] == expected
    assert encoded.parameters == {"quality": quality}


def test_stored_jpegs_are_read_alike_by_torchvision() -> None:
    encoded = encode(smooth(), CacheConfig(codec=Codec.jpeg))
    for part, frame in zip(parts(encoded), encoded.decode(), strict=True):
        other = decode_jpeg(torch.frombuffer(bytearray(part), dtype=torch.uint8)).numpy()
        assert np.array_equal(frame, other)


def ffmpeg_yuv(path: Path, *options: str) -> bytes:
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-v", "error", *options, "-f", "h264", "-i", str(path)]
    output = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-fps_mode", "passthrough", "-"]
    return subprocess.run([*command, *output], check=True, capture_output=True).stdout


def test_the_ffmpeg_program_finds_only_key_frames_of_bt601_in_limited_range(
    tmp_path: Path,
) -> None:
    frames = saturated()
    encoded = encode(frames, CacheConfig(codec=Codec.h264))
    path = tmp_path / "payload.h264"
    path.write_bytes(encoded.payload.tobytes())
    yuv = ffmpeg_yuv(path)
    frame_bytes = 64 * 96 * 3 // 2
    assert len(yuv) == len(frames) * frame_bytes
    assert ffmpeg_yuv(path, "-skip_frame", "nokey") == yuv
    for number, frame in enumerate(frames):
        planes = yuv[number * frame_bytes :]
        red, green, blue = (float(frame[channel, 0, 0]) for channel in range(3))
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        expected = (
            16 + 219 / 255 * luma,
            128 + 224 / 255 * (blue - luma) / 1.772,
            128 + 224 / 255 * (red - luma) / 1.402,
        )
        found = (planes[0], planes[64 * 96], planes[64 * 96 * 5 // 4])
        assert np.abs(np.subtract(found, expected)).max() <= 1, (number, found, expected)


def test_every_stored_frame_can_be_decoded_alone() -> None:
    frames = smooth(5)
    encoded = encode(frames, CacheConfig(codec=Codec.h264))
    whole = encoded.decode()
    for number, part in enumerate(parts(encoded)):
        alone = replace(
            encoded,
            shape=(1, *encoded.shape[1:]),
            payload=np.frombuffer(part, np.uint8),
            frame_bytes=(len(part),),
        )
        assert np.array_equal(alone.decode()[0], whole[number])


def test_encoding_the_same_frames_again_gives_the_same_bytes() -> None:
    for codec in Codec:
        config = CacheConfig(codec=codec)
        assert encode(smooth(), config).digest == encode(smooth(), config).digest


@pytest.mark.parametrize("height,width", [(63, 96), (64, 95)])
def test_h264_refuses_odd_sides_and_names_the_way_out(height: int, width: int) -> None:
    with pytest.raises(UserError, match=rf"{height} x {width}; use cache\.codec=jpeg"):
        encode(noise(2, height, width), CacheConfig(codec=Codec.h264))


@pytest.mark.parametrize("codec", Codec)
def test_a_changed_byte_anywhere_is_found(codec: Codec) -> None:
    encoded = encode(smooth(2, 32, 32), CacheConfig(codec=codec))
    assert encoded.problem() == ""
    for position in range(0, encoded.payload.size, max(1, encoded.payload.size // 97)):
        payload = encoded.payload.copy()
        payload[position] ^= 0x55
        changed = replace(encoded, payload=payload)
        # zstd's own frame header has bits that change nothing.
        if codec is not Codec.zstd or not np.array_equal(_frames(changed), encoded.decode()):
            assert changed.problem() != "", position


def _frames(encoded: EncodedFrames) -> np.ndarray | None:
    try:
        return encoded.decode()
    except ValueError:
        return None


@pytest.mark.parametrize("codec", Codec)
def test_a_payload_of_another_shape_is_refused(codec: Codec) -> None:
    encoded = encode(smooth(3), CacheConfig(codec=codec))
    t, c, h, w = encoded.shape
    for shape in ((t + 1, c, h, w), (t, c, h + 32, w), (t, c, h, w // 2)):
        with pytest.raises(ValueError, match=f"its {codec.value} payload does not decode"):
            replace(encoded, shape=shape).decode()


@pytest.mark.parametrize("codec", [Codec.zstd, *LOSSY])
def test_a_payload_cut_short_is_refused(codec: Codec) -> None:
    encoded = encode(smooth(3), CacheConfig(codec=codec))
    with pytest.raises(ValueError, match="does not decode"):
        replace(encoded, payload=encoded.payload[: encoded.payload.size // 2]).decode()


@pytest.mark.parametrize("name", REAL_CLIPS)
@pytest.mark.parametrize("codec,least_db", [(Codec.jpeg, 40), (Codec.h264, 34)])
def test_128_frames_of_512_x_512_real_footage_take_at_most_15_mb(
    codec: Codec, least_db: float, name: str
) -> None:
    encoded = encode(footage(name), CacheConfig(codec=codec))
    assert encoded.payload.size <= 15e6
    assert encoded.psnr_db is not None and encoded.psnr_db >= least_db
