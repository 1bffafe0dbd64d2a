"""`evr-preprocess`: fill the frame cache, say what it holds, check it."""

from collections.abc import Sequence

from tqdm import tqdm

from easyvideor1.preprocess.config import Job, PreprocessConfig, register
from easyvideor1.schema.cli import run_command
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

SHOWN_FAILURES = 10


def main() -> None:
    """The command."""
    register()
    run_command("preprocess", PreprocessConfig, run)


def run(config: PreprocessConfig) -> None:
    """Do the config's job."""
    _JOBS[config.job](config)


def cache(config: PreprocessConfig) -> None:
    """Decode every clip of the training and validation data that is not in the cache."""
    from easyvideor1.preprocess.families.tiny import ensure_model

    parts = _read_data(config)
    model_path = ensure_model(config.model)

    from easyvideor1.preprocess.engine import cache_all
    from easyvideor1.preprocess.quarantine import quarantine_path
    from easyvideor1.preprocess.rules import load_rules
    from easyvideor1.preprocess.store import ClipStore

    rules = load_rules(model_path, trust_remote_code=config.model.trust_remote_code)
    report = cache_all(
        [
            (samples, ClipStore(config.cache, config.budget, rules, config.decode, validation))
            for samples, validation in parts
        ],
        ray=config.ray,
    )
    print(f"{report}; cache: {_folder(config)}")
    for failure in report.failures[:SHOWN_FAILURES]:
        print(f"failed: {failure.path}: {failure.reason}")
    if report.failures:
        print(f"all failures with their samples: {quarantine_path(config.cache)}")


def _read_data(config: PreprocessConfig) -> list[tuple[Sequence[Sample], bool]]:
    """Training and validation samples, with whether they are the latter; every row checked."""
    from easyvideor1.preprocess.data import ensure_data, read_files

    data = ensure_data(config.data)
    return [
        (read_files(data, files, config.cache), validation)
        for files, validation in ((data.train, False), (data.validation, True))
        if files
    ]


def stats(config: PreprocessConfig) -> None:
    """Print what the cache holds."""
    from easyvideor1.preprocess.cache import open_cache
    from easyvideor1.preprocess.quarantine import Quarantine

    stored = open_cache(config.cache)
    frames = pixel_bytes = 0
    sources: set[str] = set()
    for key in tqdm(stored.keys(), desc="reading", unit="clip", delay=2):
        clip = stored.read(key)
        frames += len(clip.clip.frames)
        pixel_bytes += clip.clip.frames.nbytes
        sources.add(clip.source)
    print(f"cache        {_folder(config)} ({config.cache.format.value})")
    print(f"clips        {len(stored.keys())} of {len(sources)} media")
    print(f"frames       {frames}, {pixel_bytes / 1e6:.1f} MB of pixels")
    print(f"on disk      {stored.num_bytes() / 1e6:.1f} MB")
    print(f"quarantined  {len(Quarantine(config.cache).reasons())}")


def verify(config: PreprocessConfig) -> None:
    """Read every clip and compare it with its checksum and its key.

    Raises:
        UserError: if a clip is damaged.
    """
    from easyvideor1.preprocess import cache as caches

    stored = caches.open_cache(config.cache)
    checks = tqdm(caches.verify(stored), "verifying", len(stored.keys()), unit="clip", delay=2)
    problems = {key: problem for key, problem in checks if problem}
    for key, problem in problems.items():
        print(f"{key}: {problem}")
    if problems:
        raise UserError(
            f"{len(problems)} of {len(stored.keys())} clips in {_folder(config)} are damaged; "
            "delete their files and run evr-preprocess again"
        )
    print(f"{len(stored.keys())} clips in {_folder(config)} are intact")


def _folder(config: PreprocessConfig) -> str:
    return str(resolve_output(config.cache.dir))


_JOBS = {Job.cache: cache, Job.stats: stats, Job.verify: verify}

if __name__ == "__main__":
    main()
