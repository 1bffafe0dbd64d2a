"""Algorithms and examples on which an update computes something of each of their terms."""

from dataclasses import replace
from pathlib import Path

import torch

from easyvideor1.schema.records import Source
from easyvideor1.train.algorithm_config import (
    Aggregation,
    AlgorithmConfig,
    CorrectionConfig,
    KlConfig,
    KlEstimator,
    KlPlace,
    Level,
    ObjectiveConfig,
    ObjectiveName,
    OfflineConfig,
    OfflineTreatment,
)
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from tests.train.policy_cases import answer_ids, example, family_at, gradients_of, make_learner

KL = KlConfig(place=KlPlace.loss, estimator=KlEstimator.k3)
NARROW = ObjectiveConfig(clip_low=0.05, clip_high=0.05)

ALGORITHMS: dict[str, AlgorithmConfig] = {
    "clip, sequence mean": AlgorithmConfig(objective=NARROW),
    "clip, token mean": AlgorithmConfig(objective=NARROW, aggregation=Aggregation.token_mean),
    "clip, constant": AlgorithmConfig(
        objective=NARROW, aggregation=Aggregation.constant, constant_length=40
    ),
    "gspo": AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.gspo, clip_low=0.01, clip_high=0.01)
    ),
    "gspo_token": AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.gspo_token, clip_low=0.01, clip_high=0.01),
        aggregation=Aggregation.token_mean,
    ),
    "cispo": AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.cispo, clip_low=None, clip_high=0.05),
        aggregation=Aggregation.token_mean,
    ),
    "sapo": AlgorithmConfig(objective=ObjectiveConfig(name=ObjectiveName.sapo)),
    "kl and entropy": AlgorithmConfig(kl=KL, entropy_bonus=0.1),
    "full kl": AlgorithmConfig(kl=KlConfig(place=KlPlace.loss, estimator=KlEstimator.full)),
    "token correction": AlgorithmConfig(
        correction=CorrectionConfig(
            weight=Level.token, weight_cap=1.1, reject=Level.token, reject_low=0.9, reject_high=1.2
        )
    ),
    "sequence correction": AlgorithmConfig(
        correction=CorrectionConfig(
            weight=Level.sequence,
            weight_cap=1.1,
            reject=Level.sequence,
            reject_low=0.95,
            reject_high=1.1,
        )
    ),
}

CHORD = OfflineConfig(
    treatment=OfflineTreatment.chord,
    in_baseline=False,
    mu_peak=0.9,
    mu_valley=0.3,
    phi=True,
)
OFFLINE_ALGORITHMS: dict[str, AlgorithmConfig] = {
    "offline as policy": AlgorithmConfig(
        objective=NARROW, offline=OfflineConfig(behaviour_cap=1.02)
    ),
    "luffy": AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.unclipped),
        aggregation=Aggregation.constant,
        constant_length=40,
        entropy_bonus=0.1,
        offline=OfflineConfig(treatment=OfflineTreatment.luffy, behaviour_logprobs=False),
    ),
    "luffy, behaviour": AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.unclipped),
        aggregation=Aggregation.token_mean,
        correction=CorrectionConfig(weight=Level.token, weight_cap=1.1),
        offline=OfflineConfig(treatment=OfflineTreatment.luffy, behaviour_cap=1.02),
    ),
    "chord": AlgorithmConfig(objective=NARROW, kl=KL, entropy_bonus=0.1, offline=CHORD),
}
"""On groups of which some completions are offline ones."""

OFFLINE_INDICES = (1, 4, 6)
"""Of the examples; of the second nobody knows the log-probs."""

LENGTHS = (2, 9, 5, 3, 7, 4, 11, 6)


def off_policy_examples(path: Path) -> list[TrainExample]:
    """Eight answers of unequal lengths about four prompts, their log-probs known to be off.

    The old log-probs and the engine's are those of the current weights, moved by noise.
    """
    family = family_at(path)
    names = ("text", "video", "image", "image and video")
    noise = torch.Generator().manual_seed(3)
    plain = [
        example(
            family,
            names[i // 2],
            answer_ids(family, length, seed=i),
            advantage=(1.0, -1.5, 0.5)[i % 3],
        )
        for i, length in enumerate(LENGTHS)
    ]
    current = make_learner(path).logprobs(plain)
    examples = []
    for i, (one, values) in enumerate(zip(plain, current, strict=True)):
        exact = torch.tensor(values)
        old = exact + 0.1 * torch.randn(len(values), generator=noise)
        engine = old + 0.1 * torch.randn(len(values), generator=noise)
        (segment,) = one.completion.segments
        examples.append(
            example(
                family,
                names[i // 2],
                segment.token_ids,
                advantage=one.advantages[0],
                logprobs=engine.tolist(),
                old_logprobs=old.tolist(),
            )
        )
    return examples


def mixed_examples(path: Path) -> list[TrainExample]:
    """The same, of which some are offline: two with log-probs of who wrote them, one without."""
    examples = off_policy_examples(path)
    for index in OFFLINE_INDICES:
        completion = examples[index].completion
        if index == OFFLINE_INDICES[1]:
            segments = tuple(replace(segment, logprobs=None) for segment in completion.segments)
            completion = replace(completion, segments=segments)
        examples[index] = replace(
            examples[index], completion=replace(completion, source=Source.offline)
        )
    return examples


def examples_of(name: str, path: Path) -> list[TrainExample]:
    """What an algorithm of either table is tried on."""
    return mixed_examples(path) if name in OFFLINE_ALGORITHMS else off_policy_examples(path)


def learner_of(path: Path, algorithm: AlgorithmConfig, **fields: object) -> RankLearner:
    """With a reference, where there is one, whose weights are not the policy's."""
    learner = make_learner(path, dtype="float32", algorithm=algorithm, **fields)  # type: ignore[arg-type]
    if learner.reference is not None:
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in learner.reference.model.parameters():
                full_size = torch.randn(parameter.shape, generator=generator)
                move_by(parameter, full_size * 0.02 * float(parameter.std()))
    return learner


def move_by(parameter: torch.nn.Parameter, step: torch.Tensor) -> None:
    """Adds `step`, given in full, to a parameter that may be sharded."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(parameter, DTensor):
        step = distribute_tensor(step, parameter.device_mesh, parameter.placements)
    parameter.add_(step)


def update_gradients(
    learner: RankLearner, examples: list[TrainExample]
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    return gradients_of(learner, examples, kl_coefficient=0.3)
