"""`evr-train`: check the inputs, cache the clips, train, export; or another `job`.

Everything that can be wrong with config, files and rows is found before torch is imported. The
return value, the last validation accuracy, is what a sweeper maximises.
"""

import errno
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easyvideor1.preprocess.config import CacheMode
from easyvideor1.schema.cli import run_command
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.schema.table import problem_types_of
from easyvideor1.train.config import NO_CRITIC, Job, TrainConfig, register
from easyvideor1.train.run_folder import RunFolder

if TYPE_CHECKING:
    from easyvideor1.train.live_benchmarks import LiveBenchmarks

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)

ADVICE = {r"'algorithm/(ppo|gae|actor_critic)'|'(ppo|gae)'": f"PPO is refused: {NO_CRITIC}."}
"""What to say about names that are not there, see `run_command`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Datasets:
    """The samples of a run."""

    train: Sequence[Sample]
    validation: Sequence[Sample]


def main() -> None:
    """The command."""
    register()
    run_command("train", TrainConfig, run, advice=ADVICE)


def run(config: TrainConfig) -> float | None:
    """What `job` says."""
    if config.job is Job.conformance:
        from easyvideor1.train.conformance.command import run as check_conformance

        check_conformance(with_model(config))
        return None
    if config.job is Job.export:
        from easyvideor1.train.export_command import run as export_checkpoint

        export_checkpoint(config)
        return None
    if config.job is Job.collect:
        collect_trajectories(config)
        return None
    if config.job is Job.plan:
        from easyvideor1.train.plan.command import run as plan

        datasets = read_data(config)
        plan(with_model(config), train=datasets.train, validation=datasets.validation)
        return None
    return train_model(config)


def collect_trajectories(config: TrainConfig) -> None:
    """Answers to the training samples, the good ones as offline trajectories."""
    from easyvideor1.rewards import check_scoring

    datasets = read_data(config)
    check_scoring(problem_types_of(datasets.train), config.reward)
    config = with_model(config)
    cache_clips(config, Datasets(train=datasets.train, validation=[]))

    from easyvideor1.train.collecting.command import run as collect

    collect(config, datasets.train)


def train_model(config: TrainConfig) -> float | None:
    """One training run, from wherever its folder says it stands."""
    from easyvideor1.rewards import check_scoring

    datasets = read_data(config)
    problem_types = problem_types_of(datasets.train) | problem_types_of(datasets.validation)
    check_scoring(problem_types, config.reward)
    config = with_model(config)
    folder = RunFolder(resolve_output(config.output_dir))
    start = folder.starting_point(config)
    if folder.is_finished(config):
        print(f"{folder.path} is finished; raise train.steps to go on")
        return (folder.result() or {}).get("validation")
    if start is not None:
        print(f"continuing from {start.folder}")

    cache_clips(config, datasets)
    benchmarks = open_benchmarks(config, folder)
    folder.begin(config)

    from easyvideor1.train.actors import ActorFailedError
    from easyvideor1.train.loop import train
    from easyvideor1.train.ray_runtime import open_runtime
    from easyvideor1.train.stopping import RunStopped

    try:
        with open_runtime(
            config,
            folder,
            start,
            train=datasets.train,
            validation=datasets.validation,
            benchmarks=benchmarks,
        ) as runtime:
            with runtime.stop.listening():
                accuracy = train(config, runtime)
            runtime.learner.export(folder.export)
    except ActorFailedError as error:
        raise UserError(f"{error}. {folder.what_remains()}") from error
    except OSError as error:
        if error.errno not in DISK_IS_FULL:
            raise
        where = error.filename or folder.path
        raise UserError(f"{where}: {error.strerror}. {folder.what_remains()}") from error
    except RunStopped as stopped:
        print(f"evr-train: {stopped.message}", file=sys.stderr)
        raise
    folder.finish(accuracy)
    print(f"trained model: {folder.export}")
    return accuracy


def read_data(config: TrainConfig) -> Datasets:
    """All samples, every row checked.

    Raises:
        UserError: for a missing file or no training file; `DataError` for a bad row.
    """
    from easyvideor1.preprocess.data import ensure_data, read_files

    data = ensure_data(config.data)
    if not data.train:
        raise UserError(f"data.train of {data.name} is empty; name at least one file to train on")
    return Datasets(
        train=read_files(data, data.train, config.cache),
        validation=read_files(data, data.validation, config.cache),
    )


def with_model(config: TrainConfig) -> TrainConfig:
    """The config with the model as a folder that is there, or a hub id."""
    from dataclasses import replace

    from easyvideor1.preprocess.families import check_family
    from easyvideor1.preprocess.families.tiny import ensure_model

    path = ensure_model(config.model)
    check_family(path)
    return replace(config, model=replace(config.model, path=path))


def open_benchmarks(config: TrainConfig, folder: RunFolder) -> "LiveBenchmarks | None":
    """The benchmarks of `validation.benchmarks` with their frames cached; None for none.

    Raises:
        UserError: for one that is not there, or none of whose media are.
    """
    if not config.validation.benchmarks:
        return None
    from easyvideor1.train.live_benchmarks import LiveBenchmarks

    benchmarks = LiveBenchmarks(config, folder.validation)
    if config.cache.mode is not CacheMode.live:
        benchmarks.cache_frames()
    return benchmarks


def cache_clips(config: TrainConfig, datasets: Datasets) -> None:
    """Do what `cache.mode` says about clips that are not in the cache.

    Samples that will not be asked are left out before their media are decoded, and told.

    Raises:
        UserError: when more samples than `data.max_refused_share` cannot be used.
    """
    if config.cache.mode is CacheMode.live:
        return
    from easyvideor1.preprocess.engine import ensure_cached
    from easyvideor1.preprocess.families import family_of
    from easyvideor1.train.inputs import Inputs
    from easyvideor1.train.planning import leave_out_failures, samples_to_decode

    family = family_of(config.model)
    inputs = Inputs(config, family)
    sets = [
        (
            samples,
            inputs.prompter(validation=validation),
            inputs.left_out(name, validation=validation),
        )
        for name, samples, validation in (
            ("data", datasets.train, False),
            ("validation", datasets.validation, True),
        )
    ]
    parts = [part for each in sets for part in samples_to_decode(*each)]
    report = ensure_cached(parts, ray=config.ray)
    if report is None:
        return
    print(f"cache: {report}")
    for samples, _, left_out in sets:
        leave_out_failures(report, samples, left_out)
