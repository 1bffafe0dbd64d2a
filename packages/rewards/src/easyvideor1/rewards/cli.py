"""The command `evr-score`: score a JSONL of answers, or check a data set. See docs/rewards.md."""

from typing import Any

from easyvideor1.rewards.config import ScoreConfig, ScoreJob, register
from easyvideor1.schema.cli import run_command

register()


def run(config: ScoreConfig) -> float:
    """Do the job; of `score` the mean reward is what a sweeper would maximise."""
    if config.job is ScoreJob.check:
        from easyvideor1.rewards.gold_check import check_data

        if check_data(config) > 0:
            raise SystemExit(1)
        return 1.0
    from easyvideor1.rewards.score_file import score_file

    return score_file(config)


def main() -> Any:
    return run_command("score", ScoreConfig, run)


if __name__ == "__main__":
    main()
