"""Supervised updates on offline trajectories before reinforcement learning.

It gives a model that never answers right, or not in the format, something for the reward to choose
from. It goes through the same learner, checkpoints and tracker as the loop; reinforcement learning
then starts with a fresh optimizer.
"""

from dataclasses import replace

from easyvideor1.train.config import TrainConfig
from easyvideor1.train.flops import utilization
from easyvideor1.train.interfaces import Data, Position, Runtime, TrainExample
from easyvideor1.train.left_out import Reason
from easyvideor1.train.metrics import WARM_START, Stopwatch, rates
from easyvideor1.train.offline import OfflineReader
from easyvideor1.train.stopping import stopped


def warm_start(config: TrainConfig, runtime: Runtime, position: Position) -> Position:
    """Do what is left of the warm start and save at its end; the learner is then as new.

    Raises:
        RunStopped: the run was asked to stop; where it stands is saved.
    """
    section = config.train.warm_start
    if position.step > 0 or runtime.warm_start is None:
        return position
    data, reader = runtime.warm_start
    while position.warm_start_step < section.steps:
        done = position.warm_start_step + 1
        position = replace(position, warm_start_step=done, validation=None)
        clock = Stopwatch()
        with clock("update"):
            examples = take_examples(config, data, reader, step=done)
            learned = runtime.learner.update(examples, "sft")
            data.refuse(runtime.learner.take_refused(), Reason.refused_by_learner)
        metrics = (
            learned
            | rates(learned, clock.phases())
            | utilization(learned, clock.phases(), num_ranks=config.learner.ranks)
            | data.metrics()
            | reader.metrics()
            | runtime.checkpoints.metrics()
            | clock.seconds()
        )
        log(runtime, metrics, done)
        if done % config.train.save_every == 0 or done == section.steps:
            runtime.checkpoints.save(position)
            log(runtime, runtime.checkpoints.metrics(), done)
        if runtime.stop.signal is not None:
            raise stopped(runtime, position, runtime.stop.signal)
    runtime.learner.begin("policy")
    return position


def log(runtime: Runtime, metrics: dict[str, float], step: int) -> None:
    """Metrics of a supervised update under names of their own."""
    runtime.tracker.log({f"{WARM_START}{name}": v for name, v in metrics.items()}, step=step)


def take_examples(
    config: TrainConfig, data: Data, reader: OfflineReader, *, step: int
) -> list[TrainExample]:
    """One batch of offline trajectories; the tokens of the answer weigh `answer_weight`."""
    examples = []
    for prompt in data.take(config.train.warm_start.batch_size):
        chosen = reader.choose(prompt.sample, seed=config.seed, step=step)
        assert chosen is not None, "warm-start data holds only samples with a usable trajectory"
        weight = config.train.warm_start.answer_weight
        examples.append(
            TrainExample(
                prompt=prompt,
                completion=chosen.completion,
                advantages=[1.0] * len(chosen.completion.token_ids),
                token_weights=[weight if inside else 1.0 for inside in chosen.in_answer],
            )
        )
    return examples
