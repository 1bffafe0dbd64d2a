"""What the loop needs from the rest: data, a sampler, a learner, checkpoints and a tracker.

The loop sees only these. Ray actors satisfy them in a run; small in-memory objects in the tests.
Records cross process boundaries by pickle; no tensors, and nothing heavy is imported here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from easyvideor1.schema.records import Completion, Group, Sample, Score
from easyvideor1.train.left_out import Reason
from easyvideor1.train.stopping import Stop

if TYPE_CHECKING:
    from easyvideor1.train.actors import Actors
    from easyvideor1.train.advantages import AdvantageEstimator
    from easyvideor1.train.kl_penalty import KlPenalty
    from easyvideor1.train.mixing import OfflineGate
    from easyvideor1.train.offline import OfflineReader

SAVED_WEIGHTS = "weights"
"""In a learner's part of a checkpoint: the folder of the weights alone."""
SAVED_TRAINING = "training"
"""In the same: the folder of everything else that a run needs to go on from there."""
SAVED_PROGRESS = "progress.json"
"""In the latter: the last file to be written."""

Objective = Literal["policy", "sft"]
"""What an update optimises: the policy objective of the algorithm, or imitation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A sample as the model is asked."""

    sample: Sample
    token_ids: list[int]
    """[P] with one placeholder token per medium, as the engine takes it."""
    num_tokens: int
    """Length once the media placeholders are expanded."""
    num_patches: int
    """Patches of all its media, what the vision tower computes; 0 for text."""
    rescaled: str = ""
    """How its media have a smaller budget than the config's, so that it fits; empty if not."""
    has_control_text: bool = False
    """Whether a text of the data reads like a control token; it is plain text in `token_ids`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainExample:
    """One completion with what the loss needs to know about it."""

    prompt: Prompt
    completion: Completion
    advantages: list[float]
    """[L] advantage of each token of the completion; read where the loss counts it."""
    token_weights: list[float] | None = None
    """[L] weight of each token of the completion in the loss; None for 1 everywhere."""
    old_logprobs: list[float] | None = None
    """[L] log-probs of the tokens as the learner computes them under the weights that sampled;
    None where those are the weights before the update."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """A prompt with its scored completions, and what else was asked about it."""

    prompt: Prompt
    group: Group
    greedy: Score | None = None
    """Of the greedy completion, where the advantage asks for it (`remax`)."""
    control: tuple[Score, ...] = ()
    """Of completions with the frames shuffled, where it asks for them (`t_grpo`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """How far a run has come; a checkpoint is taken at a position."""

    step: int = 0
    """Reinforcement-learning updates done."""
    warm_start_step: int = 0
    """Supervised updates done before them."""
    validation: float | None = None
    """Validation accuracy of these weights, where it was measured."""

    @property
    def name(self) -> str:
        """Name of the checkpoint folder, e.g. `step_000010` or `warm_start_000050`."""
        if self.step == 0 and self.warm_start_step > 0:
            return f"warm_start_{self.warm_start_step:06d}"
        return f"step_{self.step:06d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointBytes:
    """What lies on the disk, in bytes."""

    weights: int
    """The learner's weights."""
    training: int
    """Optimizer and what else is needed to go on."""
    export: int
    """A Hugging Face model folder."""

    @property
    def full(self) -> int:
        """A checkpoint that a run can go on from."""
        return self.weights + self.training


class Data(Protocol):
    """An endless, shuffled stream of prompts."""

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts."""
        ...

    def refuse(self, details: Mapping[str, str], reason: Reason) -> None:
        """Never take these sample ids again: who saw their frames refused them, and why."""
        ...

    def metrics(self) -> dict[str, float]:
        """Epochs seen and samples left out so far."""
        ...

    def state(self) -> dict[str, Any]:
        """Where the stream stands, JSON-serialisable."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        ...


class SendWeights(Protocol):
    """Brings the weights of a publish to engines that wait for them."""

    def __call__(self, engines: "Actors", *, are_new: bool = False) -> None:
        """`are_new`: they hold none of an earlier publish, not even what is frozen."""
        ...


class Sampler(Protocol):
    """Samples completions with the newest weights published to it."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_sizes: Sequence[int],
        *,
        step: int,
        draw: int = 0,
        shuffled_frames: bool = False,
    ) -> list[list[Completion]]:
        """`group_sizes[i]` completions of `prompts[i]` under the sampling law of training.

        Args:
            prompts: to complete.
            group_sizes: completions of each.
            step: of the run.
            draw: which rollout of the step this is; another one samples the same prompt anew.
            shuffled_frames: show the frames of videos out of order, and mix nothing in.

        Returns:
            A group per prompt; an empty one for a prompt that the engine refused.

        Raises:
            StopRequestedError: the run was asked to stop.
        """
        ...

    def answer(
        self, prompts: Sequence[Prompt], *, validation: bool = True
    ) -> list[Completion | None]:
        """One greedy completion per prompt; None where the engine refused it.

        On the media budget of validation, or else as training samples but for the temperature.
        """
        ...

    def publish(self, send: "SendWeights", version: int) -> None:
        """Take the weights that `send` brings to the engines, between two completions.

        Every later completion carries their version.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Counts of what was refused so far."""
        ...


class Learner(Protocol):
    """Owns the trainable weights and the optimizer."""

    def begin(self, objective: Objective) -> None:
        """Start a phase: a fresh optimizer and schedule for `objective`."""
        ...

    def divergences(self, examples: Sequence[TrainExample]) -> list[list[float] | None]:
        """Per example [L] estimates of the KL of the current policy from the reference, in nats.

        None for an example that an update would refuse.
        """
        ...

    def update(
        self,
        examples: Sequence[TrainExample],
        objective: Objective = "policy",
        *,
        kl_coefficient: float = 0.0,
    ) -> dict[str, float]:
        """Optimizer steps on `examples`; returns their metrics.

        `kl_coefficient` multiplies the divergence where it is part of the loss.
        """
        ...

    def take_refused(self) -> dict[str, str]:
        """By id, the samples whose media updates could not have since the last call, and why."""
        ...

    def publish(self, sampler: Sampler) -> None:
        """Hand the current weights to `sampler`."""
        ...

    def checkpoint_bytes(self) -> CheckpointBytes:
        """What a checkpoint and an export take on the disk."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, optimizer, schedule and random state into `folder`.

        The weights into `SAVED_WEIGHTS` and the rest into `SAVED_TRAINING`, there `SAVED_PROGRESS`
        last of all.
        """
        ...

    def begin_save(self, folder: Path) -> None:
        """Begin to write what `save` would, as it is now; updates may follow at once."""
        ...

    def finish_save(self, timeout_s: float | None = None) -> None:
        """Wait until what was begun is written; raises what went wrong with it."""
        ...

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        ...

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder."""
        ...


class Checkpoints(Protocol):
    """Saved positions of this run."""

    def restore(self) -> Position:
        """Load the position to continue from; the start when there is none."""
        ...

    def mark(self, position: Position) -> None:
        """Remember the state of all but the learner, for a `save` of this position later on."""
        ...

    def save(self, position: Position) -> None:
        """Take a checkpoint of the current state, or of a `mark` where it is of this position.

        Sealed when this returns, or else, with `learner.async_save`, as soon as it is written.
        """
        ...

    def wait(self) -> None:
        """Return once every checkpoint taken is sealed."""
        ...

    def close(self) -> None:
        """At the end of a run, however it ended: let go of what is still being written."""
        ...

    def metrics(self) -> dict[str, float]:
        """Seconds and size of the checkpoints sealed since the last call; empty for none."""
        ...


class Tracker(Protocol):
    """Where metrics and samples are written."""

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Metrics of one step."""
        ...

    def log_groups(self, groups: Sequence[Group], *, step: int) -> None:
        """A few groups as a readable table."""
        ...


class Scorer(Protocol):
    """Scores answers, all of a step in one call."""

    def __call__(self, answers: Sequence[tuple[Sample, Completion]]) -> list[Score]:
        """The score of each (sample, completion)."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """Everything a run is made of, as the loop takes it."""

    data: Data
    sampler: Sampler
    learner: Learner
    score: Scorer
    advantages: "AdvantageEstimator"
    kl: "KlPenalty"
    checkpoints: Checkpoints
    tracker: Tracker
    gate: "OfflineGate | None" = None
    """Gives poor groups their offline completions; None where none are gated."""
    warm_start: "tuple[Data, OfflineReader] | None" = None
    """Samples with usable trajectories, and what reads them; None without a warm start."""
    validation: list[Prompt] = field(default_factory=list)
    """Held-out prompts; empty for none."""
    benchmarks: "Callable[[int], list[dict[str, Any]]] | None" = None
    """Runs the benchmarks of a step and returns their summaries; None for none."""
    best_by: str = "accuracy"
    """What a validation counts as: `accuracy` of the prompts, or a benchmark."""
    stop: Stop = field(default_factory=Stop)
    """Whether the run was asked to stop."""
