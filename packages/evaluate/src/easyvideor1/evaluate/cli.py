"""`evr-evaluate`: benchmarks in, scores and a report out. See docs/evaluate.md."""

from easyvideor1.evaluate.config import EvaluateConfig, Job, register
from easyvideor1.schema.cli import run_command

register()


def main() -> None:
    """Entry point of the command."""
    run_command("evaluate", EvaluateConfig, run)


def run(config: EvaluateConfig) -> float | None:
    """Run one composed job; returns the mean accuracy over its benchmarks, for sweepers.

    Of `job=passrate` it is the mean pass rate, of `job=compare` how much b is better than a.
    """
    if config.job is Job.compare:
        from easyvideor1.evaluate.compare import compare_runs

        return compare_runs(config).official.difference
    if config.job is Job.passrate:
        from easyvideor1.evaluate.pass_rate import measure

        return measure(config)
    if config.job is Job.rescore:
        from easyvideor1.evaluate.rescore import rescore

        return rescore(config)["accuracy"]
    from easyvideor1.evaluate.run import evaluate

    summaries = evaluate(config)
    if not summaries:
        return None
    return sum(summary["accuracy"] for summary in summaries) / len(summaries)
