"""The .pt cache: one file per clip, mapped by `torch.load(weights_only=True, mmap=True)`.

For tools that read tensors by file name; the arrow format is quicker to list and to write.
"""

from pathlib import Path
from typing import Any

import numpy as np

from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.preprocess.frame_cache import ClipWriter, FrameCache, StoredClip, frames_digest
from easyvideor1.preprocess.sealed_file import SealedFile
from easyvideor1.schema.records import MediaKind

VERSION = 1


class PtCache(FrameCache):
    def __init__(self, folder: Path):
        self._folder = folder / "clips"

    def has(self, key: str) -> bool:
        return _path(self._folder, key).exists()

    def keys(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob("??/*.pt"))

    def read(self, key: str) -> StoredClip:
        import torch

        path = _path(self._folder, key)
        if not path.exists():
            raise KeyError(key)
        try:
            return _from_dict(torch.load(path, weights_only=True, mmap=True))
        # torch.load raises what unzipping and unpickling damaged bytes raise.
        except Exception as error:
            raise DamagedCacheError(
                f"{path} cannot be read ({error}); delete it and run evr-preprocess again"
            ) from error

    def writer(self, drafts: Path) -> ClipWriter:
        return PtWriter(self._folder, drafts)

    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("??/*.pt"))


class PtWriter(ClipWriter):
    """Seals every clip at once, so nothing is ever left to seal or discard."""

    def __init__(self, folder: Path, drafts: Path):
        self._folder, self._drafts = folder, drafts

    def add(self, stored: StoredClip) -> None:
        import torch

        file = SealedFile(_path(self._folder, stored.clip.key), self._drafts)
        torch.save(_to_dict(stored), file.file)
        file.seal()

    def seal(self) -> None:
        pass

    def discard(self) -> None:
        pass


def _path(folder: Path, key: str) -> Path:
    """Fanned out over 256 folders: some file systems are slow with a million names in one."""
    return folder / key[:2] / f"{key}.pt"


def _to_dict(stored: StoredClip) -> dict[str, Any]:
    import torch

    clip = stored.clip
    return {
        "version": VERSION,
        "key": clip.key,
        "kind": clip.kind.value,
        "source": stored.source,
        "settings": stored.settings,
        "metadata": clip.metadata.as_dict(),
        "digest": frames_digest(clip.frames),
        "frames": torch.from_numpy(np.ascontiguousarray(clip.frames)),
    }


def _from_dict(values: dict[str, Any]) -> StoredClip:
    if values["version"] != VERSION:
        raise ValueError(f"clip version {values['version']}, this easyvideor1 reads {VERSION}")
    frames = values["frames"].numpy()
    frames.flags.writeable = False
    clip = Clip(
        kind=MediaKind(values["kind"]),
        frames=frames,
        metadata=ClipMetadata.from_dict(values["metadata"]),
        key=values["key"],
    )
    return StoredClip(
        clip=clip,
        settings=values["settings"],
        source=values["source"],
        digest=values["digest"],
    )
