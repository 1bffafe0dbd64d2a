"""The command `evr-score`: score a JSONL of answers. See docs/rewards.md."""

from typing import Any

from easyvideor1.rewards.config import ScoreConfig, register
from easyvideor1.schema.cli import run_command

register()


def run(config: ScoreConfig) -> float:
    """Score the answers, print the table; the mean reward is what a sweeper would maximise."""
    from easyvideor1.rewards.score_file import score_file

    return score_file(config)


def main() -> Any:
    return run_command("score", ScoreConfig, run)


if __name__ == "__main__":
    main()
