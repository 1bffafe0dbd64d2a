"""The file of a question's video, under its own or another ending, or a folder of frames."""

from pathlib import Path

from easyvideor1.evaluate.benchmark_config import LayoutConfig
from easyvideor1.schema.records import Media, MediaKind


def find_video(
    root: Path,
    name: str,
    start_s: float | None,
    end_s: float | None,
    layout: LayoutConfig,
    frames_fps: float | None = None,
) -> Media:
    """The part of a video to watch; of one that is missing, under the name it should have.

    Args:
        root: folder of the media.
        name: of the file, below it.
        start_s: where the part begins; None: at the start.
        end_s: where it ends; None: at the end.
        layout: other folders and endings it may have.
        frames_fps: rate of a folder of frames.

    Raises:
        ValueError: the part ends before it begins.
    """
    path = root / name
    if frames_fps is not None and not path.suffix and path.is_dir():
        return _frames(path, start_s, end_s, frames_fps)
    places = [path, *(root / folder / path.name for folder in layout.search)]
    candidates = [
        place.with_suffix(suffix) for place in places for suffix in (path.suffix, *layout.suffixes)
    ]
    found = next((file for file in candidates if file.is_file()), path)
    return Media(kind=MediaKind.video, path=str(found), start_s=start_s, end_s=end_s)


def _frames(folder: Path, start_s: float | None, end_s: float | None, fps: float) -> Media:
    """JPEG frames numbered from 1: those of the part to watch, both ends included.

    Frame `round(t * fps)` is the one at t seconds, as in MVBench's notebook.
    """
    files = sorted(file for file in folder.iterdir() if file.suffix in (".jpg", ".png"))
    first = max(1, round((start_s or 0.0) * fps))
    last = len(files) if end_s is None else min(len(files), round(end_s * fps))
    chosen = files[first - 1 : max(first, last)]
    if not chosen:
        raise ValueError(f"{folder} has {len(files)} frames, none from {start_s} s on")
    return Media(kind=MediaKind.video, frames=tuple(map(str, chosen)), frames_fps=fps)
