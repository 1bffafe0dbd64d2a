"""Scored steps for the tests of the estimators: by hand, or at random with everything they read."""

import random
from collections.abc import Sequence

from easyvideor1.schema.records import (
    Completion,
    Group,
    ProblemType,
    Role,
    Sample,
    Score,
    Segment,
)
from easyvideor1.train.interfaces import Experience, Prompt


def score(value: float, **parts: float) -> Score:
    return Score(value=value, parts=parts)


def answer(mask: Sequence[bool]) -> Completion:
    """A completion whose loss counts the tokens of `mask`; the others are a tool's."""
    segments = [
        Segment(token_ids=(7,), trainable=counts, role=Role.assistant if counts else Role.tool)
        for counts in mask
    ]
    return Completion(segments=tuple(segments), text="", finish_reason="stop")


def experience(
    scores: Sequence[Score | float],
    *,
    lengths: Sequence[int] | None = None,
    masks: Sequence[Sequence[bool]] | None = None,
    name: str = "s0",
    task: ProblemType = ProblemType.multiple_choice,
    greedy: Score | None = None,
    control: Sequence[Score] = (),
) -> Experience:
    """A scored group; its completions have one token unless `lengths` or `masks` say otherwise."""
    masks = masks or [[True] * length for length in lengths or [1] * len(scores)]
    sample = Sample(id=name, problem="?", answer="A", problem_type=task)
    return Experience(
        prompt=Prompt(sample=sample, token_ids=[1], num_tokens=1, num_patches=0),
        group=Group(
            sample=sample,
            completions=tuple(answer(mask) for mask in masks),
            scores=tuple(s if isinstance(s, Score) else score(s, accuracy=s) for s in scores),
        ),
        greedy=greedy,
        control=tuple(control),
    )


def random_step(seed: int, *, num_prompts: int = 6) -> tuple[list[Experience], list[list[float]]]:
    """Groups of two tasks and unequal sizes with tool tokens, and a penalty for every token.

    Rewards repeat, one group is tied, and every second prompt has a control.
    """
    rng = random.Random(seed)
    experiences, penalties = [], []
    for index in range(num_prompts):
        size = rng.randint(4, 7)
        masks = [
            [True] + [rng.random() < 0.8 for _ in range(rng.randint(0, 5))] for _ in range(size)
        ]
        tied = index == 1
        accuracies = [0.1 if tied else rng.choice([0.0, 0.3, 0.7, 1.0]) for _ in range(size)]
        forms = [1.0 if tied else rng.choice([0.0, 1.0]) for _ in range(size)]
        experiences.append(
            experience(
                [scored(a, f) for a, f in zip(accuracies, forms, strict=True)],
                masks=masks,
                name=f"s{index}",
                task=[ProblemType.multiple_choice, ProblemType.temporal_grounding][index % 2],
                greedy=scored(rng.random(), 1.0),
                control=[scored(rng.choice([0.0, 1.0]), 1.0) for _ in range(3 * (index % 2))],
            )
        )
        penalties += [[-rng.random() for _ in mask] for mask in masks]
    return experiences, penalties


def scored(accuracy: float, form: float) -> Score:
    return score(0.9 * accuracy + 0.1 * form, accuracy=accuracy, format=form)
