"""The algorithm in one screen: collect, advantage, update, publish, validate, log, save.

To collect is to take prompts, sample and score them (`collection`). Everything behind a name of
`Runtime` is a Protocol of `interfaces`; Ray, vLLM and FSDP are not seen here. `cli` calls `train`
inside `ray_runtime.open_runtime`.
"""

from dataclasses import replace

from easyvideor1.train.collection import collect
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.examples import count_dropped, to_examples
from easyvideor1.train.flops import utilization
from easyvideor1.train.interfaces import Position, Runtime
from easyvideor1.train.left_out import Reason
from easyvideor1.train.metrics import Stopwatch, rates, summarize
from easyvideor1.train.stopping import StopRequestedError, stopped
from easyvideor1.train.validation import validate
from easyvideor1.train.warm_start import warm_start


def train(config: TrainConfig, runtime: Runtime) -> float | None:
    """Train to `train.steps` and return the last validation accuracy, which a sweep maximises.

    Raises:
        RunStopped: the run was asked to stop; where it stands is saved.
    """
    learner, stop = runtime.learner, runtime.stop

    position = warm_start(config, runtime, runtime.checkpoints.restore())
    learner.publish(runtime.sampler)
    if position.validation is None and position.step in (0, config.train.steps):
        position = validate(runtime, position)

    while position.step < config.train.steps and not stop.is_requested:
        runtime.checkpoints.mark(position)
        try:
            position = take_step(config, runtime, position)
        except StopRequestedError:  # before the update: as if the step had not begun
            break
        if is_due(position.step, config.train.save_every, config.train.steps):
            runtime.checkpoints.save(position)
            runtime.tracker.log(runtime.checkpoints.metrics(), step=position.step)
    if stop.signal is not None:
        raise stopped(runtime, position, stop.signal)
    return position.validation


def take_step(config: TrainConfig, runtime: Runtime, position: Position) -> Position:
    """One step on from `position`, logged but not saved; returns where the run then stands.

    Raises:
        StopRequestedError: the run was asked to stop before the update began.
    """
    data, sampler, learner = runtime.data, runtime.sampler, runtime.learner
    position = replace(position, step=position.step + 1, validation=None)
    clock = Stopwatch()

    collected = collect(config, runtime, step=position.step, clock=clock)
    experiences = collected.experiences

    penalties = None
    if runtime.kl.in_reward and experiences:
        with clock("reference"):
            penalties = runtime.kl.of_tokens(experiences, learner)

    with clock("advantage"):
        advantages = runtime.advantages(experiences, penalties)
        examples = to_examples(experiences, advantages, config.algorithm.offline)

    with clock("update"):  # nothing to learn from where the engine refused every prompt
        coefficient = runtime.kl.loss_coefficient
        learned = learner.update(examples, kl_coefficient=coefficient) if examples else {}
        runtime.kl.after_update(learned, len(examples))
        data.refuse(learner.take_refused(), Reason.refused_by_learner)

    with clock("publish"):  # the next rollout samples from the weights just learned
        learner.publish(sampler)

    if is_due(position.step, config.train.validate_every, config.train.steps):
        with clock("validate"):
            position = validate(runtime, position)

    runtime.tracker.log_groups([e.group for e in experiences], step=position.step)
    runtime.tracker.log(
        summarize(experiences)
        | count_dropped(experiences, examples)
        | collected.metrics
        | runtime.advantages.metrics()
        | runtime.kl.metrics()
        | learned
        | rates(collected.metrics | learned, clock.phases())
        | utilization(learned, clock.phases(), num_ranks=config.learner.ranks)
        | data.metrics()
        | sampler.metrics()
        | runtime.checkpoints.metrics()
        | clock.seconds(),
        step=position.step,
    )
    return position


def is_due(step: int, every: int, last: int) -> bool:
    """Whether something done every so many steps, and at the last one, is done now."""
    return step % every == 0 or step == last
