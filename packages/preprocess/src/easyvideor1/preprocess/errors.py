"""Errors of media and of the frame cache. They cross process boundaries by pickle."""

import functools

from easyvideor1.schema.errors import UserError

_WAYS_OUT = (
    "Run evr-preprocess with the same model, data, budget, decode and cache settings and "
    "cache.dir={cache_dir}, or set cache.mode=prefer to decode what is missing, or live to do "
    "without a cache"
)
_SHOWN = 3
"""Missing clips that a message names."""


class DecodeError(UserError):
    """A medium that gives no frames; `engine` sets it aside with its reason.

    Example:
        >>> print(DecodeError("a.mp4", "no video stream"))
        cannot decode a.mp4: no video stream
    """

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"cannot decode {path}: {reason}")

    def __reduce__(self):
        """Rebuild from the fields."""
        return type(self), (self.path, self.reason)


class MissingClipError(UserError):
    """A sample whose frames are not in the cache while `cache.mode=require` forbids decoding."""

    def __init__(self, sample_id: str, path: str, cache_dir: str, explanation: str):
        self.sample_id, self.path, self.cache_dir = sample_id, path, cache_dir
        self.explanation = explanation
        super().__init__(
            f"sample {sample_id}: the frames of {path} are not in the cache {cache_dir}: "
            f"{explanation}. {_WAYS_OUT.format(cache_dir=cache_dir)}"
        )

    def __reduce__(self):
        """Rebuild from the fields."""
        return type(self), (self.sample_id, self.path, self.cache_dir, self.explanation)


class MissingClipsError(UserError):
    """Data of which clips are not in the cache while `cache.mode=require` forbids decoding."""

    def __init__(
        self,
        num_clips: int,
        sample_ids: tuple[str, ...],
        paths: tuple[str, ...],
        cache_dir: str,
        explanation: str,
    ):
        self.fields = (num_clips, sample_ids, paths, cache_dir, explanation)
        shown = ", ".join(paths[:_SHOWN])
        super().__init__(
            f"{num_clips} clips of {len(sample_ids)} samples are not in the cache {cache_dir}, "
            f"among them {shown} of sample {sample_ids[0]}: {explanation}. "
            f"{_WAYS_OUT.format(cache_dir=cache_dir)}"
        )

    def __reduce__(self):
        """Rebuild from the fields."""
        return type(self), self.fields


class DiskFullError(UserError):
    """No room for the frames of a clip; what was sealed before stays in the cache."""

    def __init__(
        self, cache_dir: str, free_bytes: int, *, num_clips: int = 0, frame_bytes: int = 0
    ):
        self.cache_dir, self.free_bytes = cache_dir, free_bytes
        self.num_clips, self.frame_bytes = num_clips, frame_bytes
        super().__init__(
            f"no room for frames in the cache {cache_dir}: {free_bytes / 1e9:.3f} GB are free "
            f"after this run added {num_clips} clips with {frame_bytes / 1e9:.3f} GB of frames, "
            "which stay. evr-preprocess job=plan says what the data need; cache.codec=zstd needs "
            "less, jpeg and h264 far less at a small loss, and cache.dir may name a larger disk"
        )

    def __reduce__(self):
        """Rebuild from the fields."""
        fields = {"num_clips": self.num_clips, "frame_bytes": self.frame_bytes}
        return functools.partial(type(self), **fields), (self.cache_dir, self.free_bytes)


class DamagedCacheError(UserError):
    """A cache file that does not hold what it says."""


class LeaseLostError(UserError):
    """A run whose folder another run removed, because it seemed dead."""

    def __init__(self, run_folder: str):
        self.run_folder = run_folder
        super().__init__(
            f"the run folder {run_folder} is gone: another run took over; this one's unsealed "
            "clips are dropped"
        )

    def __reduce__(self):
        """Rebuild from the fields."""
        return type(self), (self.run_folder,)
