"""`evr-preprocess`: plan and fill the frame cache, say what it holds, check it, look after it.

One function per job; each imports what it needs only once the settings are composed.
"""

from easyvideor1.preprocess.config import Job, PreprocessConfig, register
from easyvideor1.schema.cli import run_command
from easyvideor1.schema.conf import resolve_output

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
    from easyvideor1.preprocess.parts import open_parts

    parts = open_parts(config)

    from easyvideor1.preprocess.engine import cache_all
    from easyvideor1.preprocess.quarantine import quarantine_path

    report = cache_all(parts, ray=config.ray)
    print(f"{report}; cache: {resolve_output(config.cache.dir)}")
    for failure in report.failures[:SHOWN_FAILURES]:
        print(f"failed: {failure.path}: {failure.reason}")
    if report.failures:
        print(f"all failures with their samples: {quarantine_path(config.cache)}")


def plan(config: PreprocessConfig) -> None:
    """Say what `cache` would cost, and refuse what would not fit."""
    from easyvideor1.preprocess import plan

    plan.plan(config)


def stats(config: PreprocessConfig) -> None:
    """Print what the cache holds."""
    from easyvideor1.preprocess import maintenance

    maintenance.stats(config)


def verify(config: PreprocessConfig) -> None:
    """Read every clip and compare it with its checksum and its key."""
    from easyvideor1.preprocess import maintenance

    maintenance.verify(config)


def gc(config: PreprocessConfig) -> None:
    """Remove clips that are not needed or not used."""
    from easyvideor1.preprocess import maintenance

    maintenance.gc(config)


def export(config: PreprocessConfig) -> None:
    """Write the clips of the cache in another format."""
    from easyvideor1.preprocess import maintenance

    maintenance.export(config)


_JOBS = {
    Job.cache: cache,
    Job.plan: plan,
    Job.stats: stats,
    Job.verify: verify,
    Job.gc: gc,
    Job.export: export,
}

if __name__ == "__main__":
    main()
