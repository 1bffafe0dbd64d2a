"""Benchmarks during training: evaluate's own pipeline, with the run's engines in place of its own.

Questions, frames, sampling, extraction and metrics are those of `evr-evaluate`; only the weights
that answer are those of the moment. Results lie in `validation/step_000010/` of the run's folder as
evaluate writes them. `cli` opens the benchmarks, `validation` runs them.
"""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.config import EvaluateConfig, Job
from easyvideor1.evaluate.config import register as register_evaluate
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.train.actors import ActorDiedError
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.rollout import RaySampler, engine_config

if TYPE_CHECKING:
    from easyvideor1.evaluate.engine_request import EngineRequest, EngineResult
    from easyvideor1.evaluate.run import Opened
    from easyvideor1.preprocess.families import FamilyAdapter

Summary = dict[str, Any]
"""As evaluate's `summary.json`."""


class LiveBenchmarks:
    """The benchmarks of `validation.benchmarks`.

    Args:
        config: of the run, with a model that is there.
        folder: for results, one subfolder per step.

    Raises:
        UserError: for a benchmark that is not there, or none of whose media are.
    """

    def __init__(self, config: TrainConfig, folder: Path):
        from easyvideor1.evaluate.fixtures import on_fixtures
        from easyvideor1.evaluate.run import open_benchmark, refuse_without_media
        from easyvideor1.rewards import check_scoring
        from easyvideor1.schema.table import problem_types_of

        self._folder = folder
        self._family: FamilyAdapter | None = None
        self._run = f"{config.run_name}/{folder.parent.name}"
        self._config = evaluate_config(config)
        for name, benchmark in self._config.benchmarks.items():
            if self._config.fixtures:
                self._config.benchmarks[name] = on_fixtures(name, benchmark)
        self._opened: list[Opened] = [
            open_benchmark(name, benchmark) for name, benchmark in self._config.benchmarks.items()
        ]
        for benchmark in self._opened:
            refuse_without_media(benchmark)
            check_scoring(problem_types_of(benchmark.samples), self._config.reward)

    @property
    def family(self) -> "FamilyAdapter":
        if self._family is None:
            from easyvideor1.preprocess.families import family_of

            self._family = family_of(self._config.model)
        return self._family

    @property
    def names(self) -> list[str]:
        return [benchmark.name for benchmark in self._opened]

    def cache_frames(self) -> None:
        """Do what `cache.mode` says about missing clips, before the run's processes start."""
        from easyvideor1.evaluate.run import cache_frames, prepare

        config = self._at("frames")
        for benchmark in self._opened:
            evaluation = prepare(config, benchmark, model="none", family=self.family)
            cache_frames(config, evaluation)
            evaluation.folder.close()
            evaluation.store.close()
        shutil.rmtree(config.output_dir)

    def run(self, sampler: RaySampler, step: int) -> list[Summary]:
        """Answer and score all of them with the engines' weights.

        Whatever lies there of this step is of other weights, of a run that was killed, and goes.
        """
        from easyvideor1.evaluate.run import answer, cache_frames, conclude, prepare

        config = self._at(f"step_{step:06d}")
        shutil.rmtree(config.output_dir, ignore_errors=True)
        model = f"step {step} of {self._run}"
        summaries = []
        for benchmark in self._opened:
            while True:
                evaluation = prepare(config, benchmark, model=model, family=self.family)
                cache_frames(config, evaluation)
                try:
                    asyncio.run(answer(config, evaluation, LiveEngines(sampler)))
                except ActorDiedError as death:  # what was answered is stored and not asked again
                    evaluation.folder.close()
                    sampler.replace_engine(death)
                else:
                    break
            quiet = replace(config, job=Job.score)  # no report: it would load the frames again
            summaries.append(conclude(quiet, evaluation, model))
        return summaries

    def _at(self, name: str) -> EvaluateConfig:
        return replace(self._config, output_dir=str(self._folder / name))


class LiveEngines:
    """Evaluate's `Generator` over the engines of a run."""

    def __init__(self, sampler: RaySampler):
        self._sampler = sampler

    async def generate(self, request: "EngineRequest") -> "EngineResult":
        """What the engine makes of it that has the request's media cached, or may have."""
        return await self._sampler.request(request)


def evaluate_config(config: TrainConfig) -> EvaluateConfig:
    """The config that `evr-evaluate` would have: of the run, its benchmarks and their overrides.

    Raises:
        UserError: for a benchmark or an override that is not there.
    """
    from hydra.errors import HydraException

    register_evaluate()
    validation = config.validation
    overrides = [
        f"benchmark=[{','.join(validation.benchmarks)}]",
        f"seed={config.seed}",
        *validation.overrides,
    ]
    try:
        composed = compose("evaluate", overrides, EvaluateConfig)
    except HydraException as error:
        raise UserError(
            f"validation.benchmarks={list(validation.benchmarks)} with validation.overrides="
            f"{list(validation.overrides)} is no config of evr-evaluate: {error}"
        ) from error
    return replace(
        composed,
        model=config.model,
        cache=config.cache,
        decode=config.decode,
        ray=config.ray,
        reward=config.reward,
        engine=engine_config(config, 0),
    )


def metrics_of(summaries: Sequence[Summary]) -> dict[str, float]:
    """`validation/<benchmark>/…`: every official number, the strict reading, and failures."""
    metrics: dict[str, float] = {}
    for summary in summaries:
        prefix = f"validation/{summary['benchmark']}"
        metrics |= {f"{prefix}/{name}": value for name, value in summary["official"].items()}
        metrics[f"{prefix}/strict_accuracy"] = summary["strict_accuracy"]
        statuses = summary["statuses"]
        failed = sum(count for status, count in statuses.items() if status != "ok")
        metrics[f"{prefix}/not_ok"] = failed / max(1, sum(statuses.values()))
    return metrics


def headline(summaries: Sequence[Summary], name: str) -> float:
    """The first official number of a benchmark.

    Raises:
        UserError: it has none, since its answers are hidden.
    """
    (official,) = [s["official"] for s in summaries if s["benchmark"] == name]
    if not official:
        raise UserError(
            f"validation.best_by={name}: this benchmark has no score, its answers are hidden"
        )
    return next(iter(official.values()))
