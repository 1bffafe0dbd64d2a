"""Fixture records of a benchmark (`conf/benchmark_fixtures/`), through its own config."""

import copy
from functools import cache
from pathlib import Path

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, register
from easyvideor1.schema.conf import compose, conf_dir
from easyvideor1.schema.records import Sample

FIXTURES = conf_dir() / "benchmark_fixtures"
NAMES = sorted(folder.name for folder in FIXTURES.iterdir())
LAYOUTS = ("release", "converted")


def config_of(name: str) -> BenchmarkConfig:
    """The config of a benchmark, composed as the command composes it; the caller's own copy."""
    return copy.deepcopy(_composed(name))


@cache
def _composed(name: str) -> BenchmarkConfig:
    register()
    return compose("evaluate", [f"benchmark={name}"], EvaluateConfig).benchmarks[name]


def files_of(name: str, layout: str) -> list[Path]:
    return sorted((FIXTURES / name / layout).iterdir())


def samples_of(name: str, layout: str, media_root: str = "/videos") -> list[Sample]:
    """The fixture questions of a benchmark in one of its layouts."""
    config = config_of(name)
    config.data.validation = [str(path) for path in files_of(name, layout)]
    config.data.media_root = media_root
    return load_benchmark(name, config)
