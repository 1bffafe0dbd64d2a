"""Settings that say what a benchmark is: its layout, its way to read an answer, its numbers.

`config.BenchmarkConfig` holds them, one YAML file in `conf/benchmark/` sets them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType


class Loader(StrEnum):
    """How a benchmark's files are read; the functions are in `benchmarks.LOADERS`."""

    samples = "samples"
    """Any format that `easyvideor1.schema` reads."""
    layout = "layout"
    """Rows of one question each, by the fields that `layout` names."""
    tempcompass = "tempcompass"
    """As `layout`, after the questions of each video and aspect are told apart."""
    ovo_bench = "ovo_bench"
    """As `layout`, after each time at which a question is asked became a row."""
    video_mmmu = "video_mmmu"
    """As `layout`; questions of the adaptation track are asked without the video too."""
    videoreasonbench = "videoreasonbench"
    """As `layout`, of files with questions by name."""
    stvg = "stvg"
    """As `layout`, of HC-STVG's files: boxes of all frames, by video."""
    charades_sta = "charades_sta"


class Rule(StrEnum):
    """How the official script reads and counts an answer; functions in `official.RULES`."""

    strict = "strict"
    """None of its own: the extraction and score of `easyvideor1.rewards`."""
    first_letter = "first_letter"
    """Take off `prefixes`, then the first letter of `letters`."""
    last_letter = "last_letter"
    """The last stated letter, else take off `prefixes`, then the last letter of `letters`."""
    before_bracket = "before_bracket"
    """The character before `)`, as in MLVU."""
    polished = "polished"
    """The first character of the first word or bracket, as in LVBench and MotionBench."""
    first_word = "first_word"
    """The first word, after the bracket that MVBench opens."""
    marked_letter = "marked_letter"
    """The first of `letters` that is marked as one, as in Video-Holmes."""
    tagged_text = "tagged_text"
    """All that the answer tag holds."""
    first_character = "first_character"
    vsi_bench = "vsi_bench"
    """The first word: a letter, or a number with mean relative accuracy."""
    ovo_bench = "ovo_bench"
    """The gold letter or word anywhere; all digits together."""
    odv_bench = "odv_bench"
    """The first letter of A to E that stands alone."""
    tempcompass = "tempcompass"
    """By word matching of each task, then a judge."""
    mmmu = "mmmu"
    """MMMU's: a marked letter; any number or text of a free answer."""
    videomathqa = "videomathqa"
    """As `first_letter`; a judge grades the reasoning too."""
    interval = "interval"
    """One interval: its IoU."""
    tube = "tube"
    """Time and boxes: their IoUs."""
    vcr_bench = "vcr_bench"
    """Letters strictly, spans and boxes by IoU, a judge for the rest."""
    videoreasonbench = "videoreasonbench"
    """Operations by simulation, a judge for the rest."""
    judge = "judge"
    """The strict reading where there are options, a judge for free answers."""


class Metric(StrEnum):
    """What a benchmark reports; the functions are in `aggregates.METRICS`."""

    accuracy = "accuracy"
    answered = "answered"
    """Accuracy, and that among the answers that could be read, as some official scripts print."""
    temporal_grounding = "temporal_grounding"
    """R@1 at IoU 0.3, 0.5, 0.7 and mean IoU."""
    video_mme_v2 = "video_mme_v2"
    """Non-linear scores of groups of four questions."""
    mlvu = "mlvu"
    """Mean over tasks, of both parts of the release."""
    vsi_bench = "vsi_bench"
    """Mean of eight tasks."""
    ovo_bench = "ovo_bench"
    """Mean of three groups of tasks, each the mean of its tasks."""
    tempcompass = "tempcompass"
    """Accuracy of each of four tasks, and over all questions."""
    video_mmmu = "video_mmmu"
    """Accuracy of each track and what the video adds."""
    tube = "tube"
    """Mean IoUs in time, in space and of both; shares above 0.3 and 0.5."""
    steps = "steps"
    """Accuracy, and the mean grade of the reasoning where a judge gave one."""
    videomathqa = "videomathqa"
    """Accuracy of the questions with five options; all four of a question's pairs right; steps."""


@dataclass(kw_only=True, slots=True)
class AboutConfig:
    """What the benchmark's page in the docs says; no number depends on it."""

    title: str = ""
    paper: str = ""
    get: list[str] = field(default_factory=list)
    """Where questions and media are had, a step each."""
    files: str = ""
    """How the files lie, relative to `outputs/data/<name>/`."""
    protocol: list[str] = field(default_factory=list)
    """Facts of the official protocol, each with its source."""


@dataclass(kw_only=True, slots=True)
class LayoutConfig:
    """Where a release keeps what a question needs.

    In a text, `{name}` stands for a field of the row and `{a.b}` for field b within field a;
    `{file}` is the name of its file without suffix, `{row}` its number in all files, from 0, and
    `{folder}` what `folders` says.
    """

    items: str = ""
    """Field with a list of questions, where a row is a video; its other fields count for each."""
    id: str = "{row}"
    video: str = ""
    """File below `data.media_root`."""
    suffixes: list[str] = field(default_factory=list)
    """Other endings that videos come with; the first file that is there is taken."""
    search: list[str] = field(default_factory=list)
    """Folders below `data.media_root` that hold a video which is not in its place."""
    folders: dict[str, str] = field(default_factory=dict)
    """Folder of the videos by file name, where the files of a release have different ones."""
    start_s: str = ""
    """Field with the second where the part to watch begins; empty: the whole video."""
    end_s: str = ""
    frames_fps: str = ""
    """Rate of videos that are folders of JPEG frames, or the field with it; empty: none are."""
    image: str = ""
    """File below `data.media_root` of an image after the video, in rows with a field `image`."""
    question: str = "{question}"
    options: list[str] = field(default_factory=list)
    """One field with a list, a mapping from letters or lettered lines, or a field for each option;
    none: lettered lines of the question itself, where it has any."""
    no_option: str = ""
    """What stands in an option's field that is not used."""
    answer: str = "answer"
    """Field with a letter, the place of an option from 0, its text, or an answer to no option."""
    unanswerable: int = 0
    """Rows of the release whose answer is none of its options, so that none is right. More of them
    are an error."""
    without_answer: bool = False
    """Whether rows may lack an answer, since the benchmark's rule needs none there."""
    hidden: str = ""
    """What stands there in rows whose answer is not released; those are left out."""
    without_options: ProblemType = ProblemType.open_ended
    """Of questions without options; with options they are multiple choice."""
    kinds: dict[str, ProblemType] = field(default_factory=dict)
    """The same by category, where it differs."""
    category: str = ""
    cut: dict[str, str] = field(default_factory=dict)
    """Text up to and with which a field's value is left out, as the host in the URL of a file."""
    bands: dict[str, list[float]] = field(default_factory=dict)
    """Bounds that a field's number is sorted by, each the last of its band, as field `x_band`."""
    lists: list[str] = field(default_factory=list)
    """Fields that hold several values in one text, separated by commas."""
    converted: dict[str, str] = field(default_factory=dict)
    """Fields of EasyVideoR1's converted file by the names that the release gives them."""
    converted_id: str = "{problem_id}"
    """Of converted rows that lack the fields of `id`."""
    converted_types: dict[str, str] = field(default_factory=dict)
    """Problem types that only this converted file has, and ours for them."""


@dataclass(kw_only=True, slots=True)
class ExtractorConfig:
    """How the official script reads an answer. The strict reading is always reported too."""

    rule: Rule = Rule.strict
    letters: str = ""
    prefixes: list[str] = field(default_factory=list)
    judge_from: float | None = 0.5
    """Grade of the judge, 0 to 1, from which an answer that only a judge can decide is right;
    None: the grade itself counts."""
    source: str = ""
    """Where the rule was read."""


@dataclass(kw_only=True, slots=True)
class PublishedScore:
    """A score from elsewhere, shown beside ours."""

    model: str
    value: float
    """Per cent."""
    metric: str
    """A name in the benchmark's official metrics."""
    source: str
    """Where it was read."""


@dataclass(kw_only=True, slots=True)
class SubtitleConfig:
    """Subtitles, shown before the question."""

    folder: str | None = None
    """Where the files are, below `data.media_root`; None: asked without subtitles."""
    file: str = ""
    """Name, with fields of the row as in `layout`."""
    none: str = ""
    """Text for a video without a file."""
    header: str = "{subtitles}\n"
    """What stands before the prompt, with `{subtitles}`."""


@dataclass(kw_only=True, slots=True)
class PromptConfig:
    """The official words of a question."""

    text: str | None = None
    """With `{question}`, `{options}` and other fields of the row; None: problem, options,
    our instruction."""
    by: list[str] = field(default_factory=list)
    """Fields whose values, with a space between them, pick one of `texts`: `problem_type`,
    `category`, `num_options` or one of the row."""
    texts: dict[str, str] = field(default_factory=dict)
    """Where none fits, `text` is taken."""
    option: str = "{letter}. {text}"
    separator: str = "\n"
    """Between options."""

    def __post_init__(self) -> None:
        for text in [self.text, *self.texts.values()]:
            if text is not None and "{" not in text:
                raise UserError(
                    "a benchmark's prompt must show {question}, or another field of the row, "
                    f"got {text!r}"
                )
        if bool(self.by) != bool(self.texts):
            raise UserError(
                "a benchmark's prompt.by and prompt.texts belong together: the field, and a text "
                "for each of its values"
            )
