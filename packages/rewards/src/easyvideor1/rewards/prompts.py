"""Instructions of the user's own in place of a task's, from Jinja files.

A file gives the text that follows the question. The question itself is not rendered and stays as
it is in the data. Called by `scoring.instruction`.
"""

from functools import lru_cache
from pathlib import Path

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.templates import render
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import MediaKind, ProblemType, Sample


def own_prompt(sample: Sample, instruction: str, config: RewardConfig) -> str:
    """The user's instruction for `sample`, or `instruction` where they have none.

    A template may use `instruction` (ours), `problem`, `problem_type`, `options`, `data_type`
    (text, image, video or mixed), `num_images`, `num_videos`, `category`, `source` and `extra`.

    Raises:
        UserError: naming the file, for one that cannot be rendered.
    """
    path = _file_of(sample.problem_type, config)
    if path is None:
        return instruction
    kinds = [medium.kind for medium in sample.media]
    values = {
        "instruction": instruction,
        "problem": sample.problem,
        "problem_type": sample.problem_type.value,
        "options": list(sample.options),
        "data_type": sample.data_type,
        "num_images": kinds.count(MediaKind.image),
        "num_videos": kinds.count(MediaKind.video),
        "category": sample.category,
        "source": sample.source,
        "extra": sample.extra,
    }
    return render(path, values).strip()


def _file_of(problem_type: ProblemType, config: RewardConfig) -> Path | None:
    task = config.tasks.get(problem_type.value)
    if task is not None and task.prompt is not None:
        return Path(task.prompt).expanduser()
    return None if config.prompts is None else _files_in(config.prompts).get(problem_type)


@lru_cache(maxsize=16)
def _files_in(folder: str) -> dict[ProblemType, Path]:
    """The templates of a folder by problem type.

    Raises:
        UserError: for a folder without any, and a file that is named like no problem type.
    """
    found: dict[ProblemType, Path] = {}
    for path in sorted(Path(folder).expanduser().glob("*.j2")):
        if path.stem not in ProblemType.__members__:
            known = ", ".join(ProblemType.__members__)
            raise UserError(f"{path}: is named like no problem type; there are {known}")
        found[ProblemType[path.stem]] = path
    if not found:
        raise UserError(f"reward.prompts={folder}: holds no file <problem type>.j2")
    return found
