"""The .pt cache: one file per clip, mapped by `torch.load(weights_only=True, mmap=True)`.

For tools that read tensors by file name: `frames` of a raw clip is the tensor itself, other codecs
have a `payload`. The arrow format is quicker to list and to write. The time of a file is when its
clip was last used.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.clip import ClipMetadata
from easyvideor1.preprocess.codecs import EncodedFrames
from easyvideor1.preprocess.config import CacheConfig, Codec
from easyvideor1.preprocess.frame_cache import (
    CacheFile,
    ClipWriter,
    EncodedClip,
    FrameCache,
    damaged_error,
    total_bytes,
)
from easyvideor1.preprocess.sealed_file import SealedFile
from easyvideor1.schema.files import sync_entry
from easyvideor1.schema.records import MediaKind

VERSION = 2


class PtCache(FrameCache):
    def __init__(self, folder: Path, config: CacheConfig, *, notes_use: bool = True):
        self._folder = folder / "clips"
        self._config, self._notes_use = config, notes_use
        self._noted: set[str] = set()

    def has(self, key: str) -> bool:
        return _path(self._folder, key).exists()

    def keys(self) -> list[str]:
        return [path.stem for path in self.paths()]

    def read_encoded(self, key: str) -> EncodedClip:
        path = _path(self._folder, key)
        try:
            clip = _load(path)
        except FileNotFoundError:
            raise KeyError(key) from None
        if self._notes_use and key not in self._noted:
            self._noted.add(key)
            # A cache may be read-only, or another user's.
            with contextlib.suppress(OSError):
                os.utime(path)
        return clip

    def writer(self, drafts: Path) -> ClipWriter:
        return PtWriter(self._folder, drafts, self._config)

    def paths(self) -> list[Path]:
        return sorted(self._folder.glob("??/*.pt"))

    def file(self, path: Path) -> CacheFile:
        status = path.stat()
        return CacheFile(
            path=path,
            num_bytes=status.st_size,
            used_s=status.st_mtime,
            entries=(_load(path).entry(),),
        )

    def clips(self, path: Path) -> Iterator[EncodedClip]:
        yield _load(path)

    def shrink(self, path: Path, keep: Collection[str], drafts: Path) -> None:
        if path.stem not in keep:
            path.unlink(missing_ok=True)
            sync_entry(path.parent)

    def num_bytes(self) -> int:
        return total_bytes(self.paths())


class PtWriter(ClipWriter):
    """Seals every clip at once, so nothing is ever left to seal or discard."""

    def __init__(self, folder: Path, drafts: Path, config: CacheConfig):
        super().__init__(config)
        self._folder, self._drafts = folder, drafts

    def add_encoded(self, clip: EncodedClip) -> None:
        import torch

        with SealedFile(_path(self._folder, clip.key), self._drafts) as file:
            torch.save(_to_dict(clip), file.file)
            file.seal()

    def seal(self) -> None:
        pass

    def discard(self) -> None:
        pass


def _path(folder: Path, key: str) -> Path:
    """Fanned out over 256 folders: some file systems are slow with a million names in one."""
    return folder / key[:2] / f"{key}.pt"


def _load(path: Path) -> EncodedClip:
    """One clip; its payload is a view of the mapped file.

    Raises:
        FileNotFoundError: if it is gone.
        DamagedCacheError: if it cannot be read.
    """
    import torch

    try:
        clip = _from_dict(torch.load(path, weights_only=True, mmap=True), str(path))
        if clip.key != path.stem:
            raise ValueError(f"it holds the clip {clip.key}")
    except FileNotFoundError:
        raise
    # torch.load raises what unzipping and unpickling damaged bytes raise.
    except Exception as error:
        raise damaged_error(path, error) from error
    return clip


def _to_dict(clip: EncodedClip) -> dict[str, Any]:
    import torch

    frames = clip.frames
    payload = frames.payload
    # torch warns of read-only memory; only frames fresh from the decoder are large, and writable.
    payload = torch.from_numpy(payload if payload.flags.writeable else payload.copy())
    is_raw = frames.codec is Codec.raw
    return {
        "version": VERSION,
        "key": clip.key,
        "kind": clip.kind.value,
        "source": clip.source,
        "settings": clip.settings,
        "metadata": clip.metadata.as_dict(),
        "codec": frames.codec.value,
        "parameters": frames.parameters,
        "shape": frames.shape,
        "digest": frames.digest,
        "psnr_db": frames.psnr_db,
        "frame_bytes": frames.frame_bytes,
        "frames" if is_raw else "payload": payload.view(frames.shape) if is_raw else payload,
    }


def _from_dict(values: dict[str, Any], place: str) -> EncodedClip:
    if values["version"] != VERSION:
        raise ValueError(
            f"its format has version {values['version']}, this easyvideor1 reads {VERSION}"
        )
    codec = Codec(values["codec"])
    payload = values["frames" if codec is Codec.raw else "payload"].numpy().reshape(-1)
    payload.flags.writeable = False
    return EncodedClip(
        key=values["key"],
        kind=MediaKind(values["kind"]),
        source=values["source"],
        settings=values["settings"],
        metadata=ClipMetadata.from_dict(values["metadata"]),
        frames=EncodedFrames(
            codec=codec,
            parameters=values["parameters"],
            shape=tuple(values["shape"]),
            payload=payload,
            frame_bytes=tuple(values["frame_bytes"]),
            digest=values["digest"],
            psnr_db=values["psnr_db"],
        ),
        place=place,
    )
