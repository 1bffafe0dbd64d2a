"""lmms-eval's `*_samples_*.jsonl`: a model's answers as logged there, and our questions for them.

A row has `doc_id` (the place of its question in the task's data), `target`, `filtered_resps`,
`resps` where they differ from these, `input` or `doc` by version, and one field for each metric:
a number or an object with what was read from the answer. Sources: EvolvingLMMs-Lab/lmms-eval,
lmms_eval/evaluator.py and loggers/evaluation_tracker.py, and logs in that repository.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmarks.layout import FIELD
from easyvideor1.evaluate.benchmarks.options import letter_of
from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import Sample
from easyvideor1.schema.sources import find_files

BOOKKEEPING = frozenset(
    {
        "doc_id", "doc", "target", "arguments", "input", "input_media", "resps", "filtered_resps",
        "doc_hash", "prompt_hash", "target_hash", "token_counts", "filter", "metrics",
    }
)  # fmt: skip
"""Fields of a row that are no metric."""
READ = ("pred_answer", "parsed_pred", "pred", "prediction")
GOLD = ("answer", "gt_answer", "gold", "ground_truth")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedAnswer:
    """One row of a log."""

    path: Path
    number: int
    """Of its line, from 1."""
    doc_id: int
    target: str
    text: str
    """What the model wrote, before any filter."""
    asked: str
    """The prompt, or all texts of the question's row; empty where the log has neither."""
    facts: dict[str, Any]
    """Fields of the question, from `doc` and from the metrics."""
    metrics: dict[str, Any]

    @property
    def place(self) -> str:
        return f"{self.path}:{self.number}"


def read_logs(sources: Sequence[str]) -> list[LoggedAnswer]:
    """All rows of the logs that files, folders and globs name, in order.

    Raises:
        DataError: for a row that is none of such a log.
    """
    return [
        _logged(path, number, row)
        for path in find_files(sources, suffixes=(".jsonl",))
        for number, row in enumerate(jsonl.read(path), start=1)
    ]


def _logged(path: Path, number: int, row: dict[str, Any]) -> LoggedAnswer:
    for name in ("doc_id", "target"):
        if name not in row:
            fix = "Name the file whose name has `_samples_` in it, as --log_samples writes it."
            raise DataError(path, number, name, None, "a row of lmms-eval's samples log", fix)
    if not isinstance(row["doc_id"], int):
        raise DataError(path, number, "doc_id", row["doc_id"], "a whole number")
    texts = _flat(row.get("resps", row.get("filtered_resps")))
    if len(texts) != 1 or not isinstance(texts[0], str):
        fix = "Logs of several answers to a question, or of log-likelihoods, are not read."
        raise DataError(path, number, "resps", row.get("resps"), "one text of the model", fix)
    doc = row.get("doc") if isinstance(row.get("doc"), dict) else {}
    metrics = {name: value for name, value in row.items() if name not in BOOKKEEPING}
    facts = {
        k: v for value in metrics.values() if isinstance(value, dict) for k, v in value.items()
    }
    prompt = row.get("input")
    return LoggedAnswer(
        path=path,
        number=number,
        doc_id=row["doc_id"],
        target=str(row["target"]),
        text=texts[0],
        asked=prompt if isinstance(prompt, str) else "\n".join(_texts(doc)),
        facts=facts | doc,
        metrics=metrics,
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [item for part in value for item in _flat(part)]
    return [] if value is None else [value]


def _texts(value: Any) -> list[str]:
    """All texts within a JSON value, in order."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


def their_score(answer: LoggedAnswer, metric: str | None) -> float | None:
    """What lmms-eval scored, 0 to 1 in its accuracies; None where the row does not tell.

    An object scores its `score`, else whether what was read equals the gold answer beside it.

    Args:
        answer: a row.
        metric: which of its metrics; None: the only one that is a score.

    Raises:
        UserError: if `metric` is none of them, or they differ and none is named.
    """
    if metric is not None and metric not in answer.metrics:
        known = ", ".join(answer.metrics) or "none"
        raise UserError(f"{answer.place} has no metric {metric!r}; rescore.metric may be {known}")
    names = answer.metrics if metric is None else [metric]
    scores = {name: _score_of(answer.metrics[name]) for name in names}
    known = {score for score in scores.values() if score is not None}
    if len(known) > 1:
        shown = ", ".join(f"{name} {score}" for name, score in scores.items() if score is not None)
        raise UserError(f"{answer.place} has several scores ({shown}); say rescore.metric=<name>")
    return next(iter(known), None)


def _score_of(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("score"), bool | int | float):
        return float(value["score"])
    pairs = [[value[name] for name in names if name in value] for names in (READ, GOLD)]
    if not all(pairs):
        return None
    read, gold = (str(found[0]).strip().casefold() for found in pairs)
    return float(read == gold)


def their_reading(answer: LoggedAnswer) -> str:
    """What lmms-eval read in the answer, where the row tells."""
    return next((str(answer.facts[name]) for name in READ if name in answer.facts), "")


class Matcher:
    """Finds the question that a row answers.

    By the fields that the benchmark's ids are made of, if the row has them; else by place, and
    where that does not fit (a log of some questions, or in another order) by words. A question fits
    that the row does not contradict: its words and options were asked, its gold answer is the
    target. A log whose name ends with the name of one of the benchmark's files is about that file.

    Args:
        name: of the benchmark.
        samples: its questions, in the order of the release.
        id_template: `layout.id`.
    """

    def __init__(self, name: str, samples: Sequence[Sample], id_template: str):
        self._name = name
        self._template = id_template
        self._by_id = {sample.id: sample for sample in samples}
        fields = FIELD.findall(id_template)
        # Row numbers and file names are facts of our files, not of the log.
        self._fields = [] if {"row", "file"} & set(fields) else fields
        self._samples = list(samples)
        self._words = {
            sample.id: [_words(text) for text in (sample.problem, *sample.options)]
            for sample in samples
        }
        self._parts: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            self._parts[str(sample.extra.get("file", ""))].append(sample)

    def find(self, answer: LoggedAnswer) -> Sample | None:
        """The question; None where none or several fit."""
        if self._fields and all(field in answer.facts for field in self._fields):
            filled = FIELD.sub(lambda match: str(answer.facts[match[1]]), self._template)
            return self._by_id.get(f"{self._name}/{filled}")
        candidates = self._part(answer.path)
        at_place = candidates[answer.doc_id : answer.doc_id + 1] if answer.doc_id >= 0 else []
        if at_place and self._fits(answer, at_place[0]):
            return at_place[0]
        if not answer.asked:
            return None
        fitting = [sample for sample in candidates if self._fits(answer, sample)]
        return fitting[0] if len(fitting) == 1 else None

    def _part(self, path: Path) -> list[Sample]:
        names = [name for name in self._parts if name and path.stem.endswith(f"_{name}")]
        return self._parts[max(names, key=len)] if names else self._samples

    def _fits(self, answer: LoggedAnswer, sample: Sample) -> bool:
        if not agrees(sample, answer.target):
            return False
        asked = _words(answer.asked)
        return not asked or all(words in asked for words in self._words[sample.id])


def agrees(sample: Sample, target: str) -> bool:
    """Whether the gold answer in a log may be that of a question.

    Of questions with options a letter, the place or the text of one; of others a text or number. An
    answer of another form (an interval, boxes) is not compared.
    """
    if sample.answer is None or isinstance(sample.answer, list | dict):
        return True
    if sample.options:
        value = int(target) if target.isdigit() and target not in sample.options else target
        letter = letter_of(value, sample.options) or letter_of(target.upper(), sample.options)
        return letter == sample.answer
    try:
        return float(str(sample.answer)) == float(target)
    except ValueError:
        return _words(str(sample.answer)) == _words(target)


def _words(text: str) -> str:
    for mark in ("<video>", "<image>"):
        text = text.replace(mark, " ")
    return " ".join(text.split()).casefold()
