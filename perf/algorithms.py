"""`advantage_share`: advantages and loss arithmetic as a share of the update phase.

The update phase turns scored completions into new weights: advantages, then one update of the
demo's tiny model on 16 prompts about toybox clips with 8 answers each, on one core. `ours_s` is the
part of it that the algorithm adds: the advantage estimator with the examples it makes; and
objective, correction and aggregation from given log-probs, with their backward. `baseline_s` is
the whole phase, `ratio` ours over it, as the word share says, so less is better. The model is as
small as one gets, which makes the share as large as it gets.

All fourteen recipes run in turn, five times; the claim is that of the costliest. `detail` has the
share of each.
"""

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence

import torch

from easyvideor1.preprocess.families import family_of
from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.conf import compose
from easyvideor1.schema.records import Completion, Group, Score, Segment
from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.algorithm_config import KlPlace
from easyvideor1.train.cli import cache_clips, read_data, with_model
from easyvideor1.train.collectives import sum_over_ranks
from easyvideor1.train.config import TrainConfig, register
from easyvideor1.train.examples import to_examples
from easyvideor1.train.head import TokenScores
from easyvideor1.train.inputs import Inputs, open_store
from easyvideor1.train.interfaces import Experience, Prompt, TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.loss_scale import parts_of, scale_of
from easyvideor1.train.micro_batches import micro_batches
from easyvideor1.train.objectives import weighted_sum
from easyvideor1.train.policy_loss import policy_loss
from easyvideor1.train.tally import Tally

NUM_RUNS = 5
NUM_PROMPTS, GROUP_SIZE = 16, 8
RECIPES = (
    *("grpo", "dapo", "dr_grpo", "gspo", "gspo_token", "cispo", "sapo", "reinforce_pp"),
    *("reinforce_pp_baseline", "remax", "rloo", "gdpo", "ema_grpo", "t_grpo"),
)


def composed(folder: str, recipe: str) -> TrainConfig:
    overrides = [
        "experiment=demo_cpu",
        f"algorithm={recipe}",
        f"output_dir={folder}/{recipe}",
        "learner.threads=1",
        f"rollout.group_size={GROUP_SIZE}",
    ]
    return with_model(compose("train", overrides, TrainConfig))


def scored_answers(
    prompts: Sequence[Prompt], family: FamilyAdapter, rng: random.Random
) -> list[Experience]:
    """Random answers to every prompt with random scores, and whatever else an estimator reads."""
    allowed = sorted(set(range(len(family.tokenizer))) - set(family.forbidden_token_ids))
    end = family.eos_token_ids[0]

    def answer() -> Completion:
        ids = (*rng.choices(allowed, k=rng.randrange(8, 31)), end)
        logprobs = tuple(-rng.expovariate(0.2) for _ in ids)
        segment = Segment(token_ids=ids, logprobs=logprobs, policy_version=1)
        return Completion(segments=(segment,), text="", finish_reason="stop")

    def score() -> Score:
        parts = {"accuracy": float(rng.random() < 0.5), "format": float(rng.random() < 0.8)}
        return Score(value=0.9 * parts["accuracy"] + 0.1 * parts["format"], parts=parts)

    return [
        Experience(
            prompt=prompt,
            group=Group(
                sample=prompt.sample,
                completions=tuple(answer() for _ in range(GROUP_SIZE)),
                scores=tuple(score() for _ in range(GROUP_SIZE)),
            ),
            greedy=score(),
            control=tuple(score() for _ in range(GROUP_SIZE // 2)),
        )
        for prompt in prompts
    ]


class Recipe:
    """One recipe with a learner of its own."""

    def __init__(self, config: TrainConfig, family: FamilyAdapter):
        self.config = config
        self.family = family
        self.store = open_store(config, family, validation=False)
        self.estimator = AdvantageEstimator(config.algorithm.advantage, config.algorithm.offline)
        config.algorithm.constant_length = config.rollout.max_new_tokens
        self.learner = RankLearner(
            config=config.learner,
            algorithm=config.algorithm,
            model_path=config.model.path,
            family=family,
            clip_store=self.store,
        )

    def advantages(self, experiences: Sequence[Experience]) -> list[TrainExample]:
        penalties = None
        if self.config.algorithm.kl.place is KlPlace.reward:
            completions = [c for e in experiences for c in e.group.completions]
            penalties = [[-0.01] * len(c.token_ids) for c in completions]
        advantages = self.estimator(experiences, penalties)
        return to_examples(experiences, advantages, self.config.algorithm.offline)

    def loss_arithmetic_s(self, examples: Sequence[TrainExample]) -> float:
        """Seconds from given log-probs to their gradients, over all micro-batches."""
        algorithm, device = self.config.algorithm, self.learner.device
        batches = list(
            micro_batches(
                examples,
                self.store,
                self.family,
                layout=self.config.learner.layout,
                max_tokens=self.config.learner.micro_batch_tokens,
                patch_tokens=0.0,
                device=device,
            )
        )
        leaves = [torch.full_like(b.weights, -1.0).requires_grad_() for b in batches]
        start = time.perf_counter()
        tally = Tally(device)
        parts = parts_of("policy", algorithm, self.learner.num_updates)
        length = algorithm.constant_length
        scale = scale_of(parts, examples, length, lambda values: sum_over_ranks(values, device))
        assert scale is not None
        for batch, logprobs_T in zip(batches, leaves, strict=True):
            scores = TokenScores(logprobs_T, logprobs_T.detach(), logprobs_T.detach())
            loss_T = policy_loss(scores, None, batch, algorithm, tally, kl_coefficient=0.0)
            weighted_sum(loss_T, scale.shares(batch)).backward()
        return time.perf_counter() - start

    def measure(self, experiences: Sequence[Experience]) -> tuple[float, float]:
        """Seconds of what the algorithm adds, and of the whole phase."""
        start = time.perf_counter()
        examples = self.advantages(experiences)
        advantages_s = time.perf_counter() - start
        metrics = self.learner.update(examples)
        whole_s = time.perf_counter() - start
        assert metrics["learner/trained_tokens"] > 0
        return advantages_s + self.loss_arithmetic_s(examples), whole_s


def main() -> None:
    register()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = composed(folder, RECIPES[0])
        datasets = read_data(config)
        cache_clips(config, datasets)
        family = family_of(config.model)
        prompts = Inputs(config, family).training(datasets.train).take(NUM_PROMPTS)
        recipes = {name: Recipe(composed(folder, name), family) for name in RECIPES}
        experiences = scored_answers(prompts, family, random.Random(0))
        for recipe in recipes.values():
            recipe.measure(experiences)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in RECIPES}
        for _ in range(NUM_RUNS):
            for name, recipe in recipes.items():
                seconds[name].append(recipe.measure(experiences))
    shares = {
        name: statistics.median(ours / whole for ours, whole in runs)
        for name, runs in seconds.items()
    }
    costliest = max(shares, key=lambda name: shares[name])
    ours, whole = (list(values) for values in zip(*seconds[costliest], strict=True))
    print(
        json.dumps(
            {
                "claim": "advantage_share",
                "ratio": shares[costliest],
                "ours_s": statistics.median(ours),
                "baseline_s": statistics.median(whole),
                "detail": {
                    "recipe": costliest,
                    "shares": {name: round(share, 4) for name, share in shares.items()},
                    "ours": ours,
                    "baseline": whole,
                    "threads": 1,
                    "nproc": os.cpu_count(),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
