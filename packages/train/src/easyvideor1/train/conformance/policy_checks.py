"""Checks of the running processes: engine and learner as one policy, before and after updates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from easyvideor1.schema.records import Completion
from easyvideor1.train.actors import Actors
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.conformance.media import ALTERED, ALTERED_CASE, CASES
from easyvideor1.train.conformance.report import Check, at_least, at_most, equal
from easyvideor1.train.hand_over import HandOver
from easyvideor1.train.interfaces import Learner, Prompt, TrainExample
from easyvideor1.train.processes import Processes
from easyvideor1.train.publishing import weight_transfer
from easyvideor1.train.ray_learner import RayLearner
from easyvideor1.train.rollout import RaySampler

TOLERANCE_NATS = {"float32": 2e-3, "bfloat16": 0.3}
"""Largest difference of one token's log-prob, by what engine or learner computes in."""
MIN_CHANGE_NATS = 1e-3
"""By which other frames must change some token of an answer."""
CHANGE_OVER_NOISE = 100.0
"""By how much that must exceed the difference between two equal runs."""

AnswerLogprobs = Callable[[Prompt, Completion], Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policies:
    """Both sides of a run, as the loop knows them."""

    sampler: RaySampler
    learner: Learner
    ranks: RayLearner
    """What is behind `learner`."""
    engines: Actors
    timeout_s: float

    @classmethod
    def of(cls, config: TrainConfig, processes: Processes) -> Self:
        """Around running processes."""
        sampler = RaySampler(processes.engines, config.rollout, seed=config.seed)
        ranks = RayLearner(processes.ranks, weight_transfer(config, processes.ranks), config)
        return cls(
            sampler=sampler,
            learner=HandOver(ranks, sampler) if config.rollout.colocated else ranks,
            ranks=ranks,
            engines=processes.engines,
            timeout_s=config.rollout.timeout_s,
        )

    def engine_logprobs(self, prompt: Prompt, answer: Completion) -> list[float]:
        """What the first engine says of a given answer."""
        calls = [(0, (f"answer of {prompt.sample.id}", prompt, answer.token_ids))]
        return self.engines.each("answer_logprobs", calls, timeout_s=self.timeout_s)[0]

    def learner_logprobs(self, prompt: Prompt, answer: Completion) -> list[float]:
        """What the learner says of it."""
        return self.ranks.logprobs([example(prompt, answer)])[0]

    def update_and_publish(self, examples: Sequence[TrainExample]) -> dict[str, float]:
        """One update, and the engines on its weights."""
        metrics = self.learner.update(examples)
        self.learner.publish(self.sampler)
        self.ranks.onload()  # it is asked again, although the engines are awake
        return metrics


def example(prompt: Prompt, completion: Completion, advantage: float = 1.0) -> TrainExample:
    """A completion as the learner takes it."""
    return TrainExample(
        prompt=prompt, completion=completion, advantages=[advantage] * len(completion.token_ids)
    )


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Over the tokens of an answer; NaN where a value is."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def check_log_probs(
    policies: Policies, prompts: dict[str, Prompt], tolerance: float, *, step: int, when: str
) -> list[Check]:
    """Sampled answers: the learner gives their tokens the log-probs they were sampled with."""
    asked = [prompts[name] for name in CASES]
    groups = policies.sampler.generate(asked, [2] * len(asked), step=step)
    checks = []
    for name, prompt, group in zip(CASES, asked, groups, strict=True):
        if not group:
            checks.append(equal(f"log-probs {when}, {name}", ["the engine refused the prompt"]))
            continue
        ours = policies.ranks.logprobs([example(prompt, answer) for answer in group])
        worst = max(
            largest_difference(values, answer.logprobs or ())
            for values, answer in zip(ours, group, strict=True)
        )
        checks.append(at_most(f"log-probs {when}, {name}", worst, tolerance, unit="nats"))
    return checks


def check_video_is_used(
    prompts: dict[str, Prompt], answer: Completion, sides: dict[str, AnswerLogprobs]
) -> list[Check]:
    """Other frames under the same words change what each side says of the same answer.

    Args:
        prompts: about the clip and its altered copies, by name.
        answer: to the clip itself.
        sides: by name, what gives the log-probs of an answer's tokens to a prompt.
    """
    checks = []
    for side, logprobs in sides.items():
        original = logprobs(prompts[ALTERED_CASE], answer)
        noise = largest_difference(original, logprobs(prompts[ALTERED_CASE], answer))
        needed = max(MIN_CHANGE_NATS, CHANGE_OVER_NOISE * noise)
        for name in ALTERED:
            change = largest_difference(original, logprobs(prompts[name], answer))
            checks.append(at_least(f"{side} sees frames, {name}", change, needed, unit="nats"))
    return checks


def check_updates(policies: Policies, prompts: dict[str, Prompt], tolerance: float) -> list[Check]:
    """After an update the engine follows only once the weights are published, and then it does."""
    asked = [prompts[name] for name in CASES]
    groups = policies.sampler.generate(asked, [2] * len(asked), step=1)
    examples = [
        example(prompt, answer, advantage=1.0 - 2 * number)
        for prompt, group in zip(asked, groups, strict=True)
        for number, answer in enumerate(group)
    ]
    metrics = policies.update_and_publish(examples)
    on_policy = at_most(
        "learner against engine in training",
        metrics["learner/mismatch_max"],
        tolerance,
        unit="nats",
    )
    published = check_log_probs(policies, prompts, tolerance, step=2, when="after a publish")
    return [on_policy, *published]
