"""Errors of media and of the frame cache. They cross process boundaries by pickle."""

from easyvideor1.schema.errors import UserError


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

    def __init__(self, sample_id: str, path: str, cache_dir: str):
        self.sample_id, self.path, self.cache_dir = sample_id, path, cache_dir
        super().__init__(
            f"sample {sample_id}: the frames of {path} are not in the cache {cache_dir} for these "
            "budget, model and decode settings; run evr-preprocess with the same model, data, "
            f"budget and cache.dir={cache_dir}, or set cache.mode=live to decode on the fly"
        )

    def __reduce__(self):
        """Rebuild from the fields."""
        return type(self), (self.sample_id, self.path, self.cache_dir)


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
