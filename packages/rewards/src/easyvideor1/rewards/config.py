"""Settings of the rewards (group `reward`) and of `evr-score`. No heavy imports."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType


class CoordinateSpace(StrEnum):
    """What the numbers of a box count."""

    original_pixels = "original_pixels"
    """Pixels of the image or video as it is stored."""
    resized_pixels = "resized_pixels"
    """Pixels of the model's input, after resizing."""
    relative_1000 = "relative_1000"
    """Thousandths of width and height."""
    relative_1 = "relative_1"
    """Shares of width and height."""


class GroundingMean(StrEnum):
    """Over which seconds the mean of the box IoUs of a track goes."""

    union = "union"
    """Those of the answer and those of the gold track: leaving out and padding both cost."""
    gold = "gold"
    """Those of the gold track: padding is free."""
    common_keys = "common_keys"
    """Those that both have: one box scores a whole track. For parity with scorers that do so."""


@dataclass(kw_only=True, slots=True)
class GroundingConfig:
    """Of spatial_grounding, spatial_temporal_grounding and tracking."""

    space: CoordinateSpace = CoordinateSpace.original_pixels
    """Of the boxes that the model writes; its instruction says so. The field `space` of a sample's
    `extra` goes before it. Sizes come from there too: `width` and `height` of the original,
    `resized_width` and `resized_height` of the model's input."""
    gold_space: CoordinateSpace = CoordinateSpace.original_pixels
    """Of the gold boxes; the field `gold_space` of a sample's `extra` goes before it."""
    mean: GroundingMean = GroundingMean.union


class OcrMetric(StrEnum):
    """How a text read from an image is compared."""

    auto = "auto"
    """`cer` where the gold text has characters of a script without spaces, else `wer`."""
    wer = "wer"
    """1 - word error rate, at least 0."""
    cer = "cer"
    """1 - character error rate, at least 0."""
    exact = "exact"
    """1 for the same text, else 0."""


@dataclass(kw_only=True, slots=True)
class OcrConfig:
    """Of ocr. Both texts are put into Unicode's NFKC form and single-spaced first."""

    metric: OcrMetric = OcrMetric.auto
    ignore_case: bool = True
    ignore_punctuation: bool = False


class OpenEndedMetric(StrEnum):
    """How a free text is compared with the gold text."""

    rouge = "rouge"
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L."""
    chrf = "chrf"
    """chrF: F2 of character n-grams; no stems, no words, any script."""
    judge = "judge"
    """The grade of the model of `reward.judge`, which sees question, gold text and answer."""


@dataclass(kw_only=True, slots=True)
class OpenEndedConfig:
    """Of open_ended."""

    metric: OpenEndedMetric = OpenEndedMetric.rouge


class PreferenceMode(StrEnum):
    """What decides whether the answer to a `preference` sample is right."""

    auto = "auto"
    """A gold label where the sample has one, else the judge."""
    label = "label"
    """A gold label; a sample without one cannot be scored."""
    judge = "judge"
    """The judge, which sees the gold label where there is one."""


@dataclass(kw_only=True, slots=True)
class PreferenceConfig:
    """Of preference."""

    mode: PreferenceMode = PreferenceMode.auto


class OnFailure(StrEnum):
    """What becomes of answers when the judge cannot be reached, or refuses the request."""

    error = "error"
    """The run ends with the reason."""
    status = "status"
    """The answer gets status `unavailable` and is counted."""


@dataclass(kw_only=True, slots=True)
class JudgeConfig:
    """A model that grades answers, behind an OpenAI-compatible endpoint. It sees text alone."""

    base_url: str | None = None
    """Of the endpoint, e.g. `http://127.0.0.1:8000/v1`."""
    model: str | None = None
    """Name under which the endpoint serves it."""
    api_key_env: str | None = None
    """Environment variable that holds the key; None where the endpoint asks for none."""
    concurrency: int = 16
    """Requests at a time."""
    timeout_s: float = 60.0
    """Of one request."""
    max_retries: int = 4
    """After a lost connection, a timeout and the statuses 408, 409, 429 and 5xx, with growing
    pauses or those that the server asks for."""
    temperature: float = 0.0
    max_tokens: int = 1024
    """Of a reply; one that is cut off holds no verdict."""
    structured_output: bool = True
    """Ask for a reply that matches a JSON schema. Off for a server that cannot, or to let the judge
    reason before its verdict."""
    prompt: str | None = None
    """Folder with `grade.j2`, `compare.j2` or both, in place of ours."""
    max_chars: int = 20_000
    """Of each text that is put to the judge; an answer that is longer is refused, never cut."""
    cache: str | None = "outputs/judge/verdicts.sqlite"
    """File that keeps all verdicts, shared by all processes of a machine; None: none are kept."""
    on_failure: OnFailure = OnFailure.error

    def __post_init__(self) -> None:
        _at_least("judge.concurrency", self.concurrency, 1)
        _at_least("judge.max_retries", self.max_retries, 0)
        _at_least("judge.max_tokens", self.max_tokens, 1)
        _at_least("judge.max_chars", self.max_chars, 1)
        _above_zero("judge.timeout_s", self.timeout_s)
        _at_least("judge.temperature", self.temperature, 0)


@dataclass(kw_only=True, slots=True)
class OverlongConfig:
    """Penalty of long answers: the soft overlong punishment of DAPO, arXiv 2503.14476, equation 13.

    0 up to `max_tokens - buffer_tokens`, from there falling evenly to -1 at `max_tokens`.
    """

    max_tokens: int | None = None
    """Tokens of an answer from which on the penalty is whole; None: there is no penalty."""
    buffer_tokens: int | None = None
    """Over so many tokens before `max_tokens` the penalty grows; None: a fifth of them, as the
    paper's 4,096 of 20,480."""
    weight: float = 1.0
    """What the penalty is multiplied by before it is added to the reward."""

    def __post_init__(self) -> None:
        _at_least("overlong.weight", self.weight, 0)
        if self.max_tokens is not None and not 0 < self.buffer <= self.max_tokens:
            raise UserError(
                "reward.overlong.buffer_tokens must be from 1 to max_tokens "
                f"({self.max_tokens}), got {self.buffer_tokens}"
            )

    @property
    def buffer(self) -> int:
        """`buffer_tokens`, where they are None their default for `max_tokens`."""
        if self.buffer_tokens is not None:
            return self.buffer_tokens
        return max(1, round((self.max_tokens or 0) / 5))


@dataclass(kw_only=True, slots=True)
class RepetitionConfig:
    """Penalty of answers that repeat themselves: the share of n-grams that occurred before.

    That of arXiv 2502.03373, appendix C.2, as Open-R1 computes it for whole answers.
    """

    weight: float = 0.0
    """What the share is multiplied by; 0: there is no penalty."""
    ngram: int = 3
    """Words in a row; of Han and kana, characters."""

    def __post_init__(self) -> None:
        _at_least("repetition.weight", self.weight, 0)
        _at_least("repetition.ngram", self.ngram, 1)


@dataclass(kw_only=True, slots=True)
class TaskConfig:
    """What one problem type has of its own."""

    accuracy_weight: float | None = None
    """None is what `format_weight` leaves to 1, or that of `reward` where both are None."""
    format_weight: float | None = None
    """None is what `accuracy_weight` leaves to 1, or that of `reward` where both are None."""
    prompt: str | None = None
    """Jinja file whose text is the instruction of this type; goes before `reward.prompts`."""


def _all_types() -> dict[str, TaskConfig]:
    return {kind.value: TaskConfig() for kind in ProblemType}


@dataclass(kw_only=True, slots=True)
class CodeConfig:
    """Of code. All runs of an answer together may take `reward.deadline_s`; what takes longer
    fails.
    """

    partial: bool = False
    """Accuracy is the share of tests that pass. Off: 1 if all of them pass, else 0."""
    cpu_s: int = 2
    """Processor seconds of one process."""
    memory_mb: int = 1024
    """Address space of one process."""
    float_tolerance: float = 0.0
    """How much numbers in a program's output may differ from the expected, absolute or relative.
    0 compares them as text."""

    def __post_init__(self) -> None:
        if self.cpu_s < 1:
            raise UserError(f"reward.code.cpu_s must be at least 1, got {self.cpu_s}")
        if self.memory_mb < 128:
            raise UserError(f"reward.code.memory_mb must be at least 128, got {self.memory_mb}")
        if not 0 <= self.float_tolerance < 1:
            raise UserError(
                f"reward.code.float_tolerance must be from 0 to below 1, got {self.float_tolerance}"
            )


@dataclass(kw_only=True, slots=True)
class DrawingConfig:
    """Of svg_code and html_code."""

    browser: bool = False
    """Render pages of html_code with Chromium and compare what is seen as well; an error where no
    Chromium program is installed."""


@dataclass(kw_only=True, slots=True)
class RewardConfig:
    """The `reward` config group."""

    accuracy_weight: float = 0.9
    format_weight: float = 0.1
    """The two weights sum to 1, so that a reward without penalties lies between 0 and 1."""
    tasks: dict[str, TaskConfig] = field(default_factory=_all_types)
    """By problem type: weights and instruction that differ from the others'."""
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    repetition: RepetitionConfig = field(default_factory=RepetitionConfig)
    prompts: str | None = None
    """Folder with Jinja files `<problem type>.j2` whose texts are instructions in place of ours;
    types without a file keep theirs."""
    function: str | None = None
    """`PATH.py:NAME` of a reward function in the EasyR1 signature that scores in place of the
    tasks."""
    function_options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of that function."""
    deadline_s: float = 5.0
    """Wall-clock seconds for one answer; a worker that takes longer is killed, the answer gets
    status `timeout`."""
    workers: int = 2
    """Processes for answers that are not surely quick to score; started with the first of them."""
    grounding: GroundingConfig = field(default_factory=GroundingConfig)
    ocr: OcrConfig = field(default_factory=OcrConfig)
    open_ended: OpenEndedConfig = field(default_factory=OpenEndedConfig)
    code: CodeConfig = field(default_factory=CodeConfig)
    drawing: DrawingConfig = field(default_factory=DrawingConfig)
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)

    def __post_init__(self) -> None:
        _check_weights("reward", self.accuracy_weight, self.format_weight)
        for name, task in self.tasks.items():
            if name not in ProblemType.__members__:
                known = ", ".join(ProblemType.__members__)
                raise UserError(f"reward.tasks.{name}: no such problem type; there are {known}")
            _check_weights(f"reward.tasks.{name}", *self.weights(name))
            if task.prompt is not None and not Path(task.prompt).expanduser().is_file():
                raise UserError(f"reward.tasks.{name}.prompt={task.prompt}: there is no such file")
        if self.prompts is not None and not Path(self.prompts).expanduser().is_dir():
            raise UserError(f"reward.prompts={self.prompts}: there is no such folder")
        _above_zero("deadline_s", self.deadline_s)
        _at_least("workers", self.workers, 1)

    @property
    def parts(self) -> list[str]:
        """The parts of every score, unless `function` makes them."""
        return [
            "accuracy",
            "format",
            *(["overlong"] if self.overlong.max_tokens is not None else []),
            *(["repetition"] if self.repetition.weight > 0 else []),
        ]

    def weights(self, problem_type: str) -> tuple[float, float]:
        """Weights of accuracy and format for a problem type."""
        task = self.tasks.get(problem_type)
        accuracy = None if task is None else task.accuracy_weight
        form = None if task is None else task.format_weight
        if accuracy is None and form is None:
            return self.accuracy_weight, self.format_weight
        if accuracy is None or form is None:
            known = accuracy if form is None else form
            assert known is not None
            rest = 1.0 - known
            return (known, rest) if form is None else (rest, known)
        return accuracy, form


def _check_weights(where: str, accuracy: float, form: float) -> None:
    if min(accuracy, form) < 0 or abs(accuracy + form - 1) > 1e-9:
        raise UserError(
            f"{where}.accuracy_weight and {where}.format_weight must not be negative and must "
            f"sum to 1, got {accuracy:g} and {form:g}"
        )


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise UserError(f"reward.{name} must be at least {least:g}, got {value}")


def _above_zero(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"reward.{name} must be above 0, got {value}")


class ScoreJob(StrEnum):
    """What `evr-score` does."""

    score = "score"
    """Score the answers in `input`."""
    check = "check"
    """Score the gold answers of `samples`, and end with status 1 unless all score 1."""


@dataclass(kw_only=True, slots=True)
class ScoreConfig:
    """Root of `conf/score.yaml`."""

    job: ScoreJob = ScoreJob.score
    input: str | None = None
    """JSONL of answers: rows {"id", "response"} beside `samples`, or sample fields plus
    "response"; a row's other fields are kept, and "num_tokens" is for `reward.overlong`."""
    output: str | None = None
    """JSONL of scores; None is `<input without suffix>.scores.jsonl`."""
    samples: list[str] = field(default_factory=list)
    """Data files that hold the samples of rows that are only {"id", "response"}."""
    format: str = "auto"
    """Of those data files, as in `data.format`."""
    reward: RewardConfig = field(default_factory=RewardConfig)


def register() -> None:
    """Store the schema under the name that `conf/score.yaml` begins with."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="score_schema", node=ScoreConfig)
