"""What was answered, kept line by line, and the samples with the answers that are good enough.

    <folder>/protocol.json   who answered what, and how; another one is refused
    <folder>/answers.jsonl   one line per sample with all its answers and their scores
    <folder>/samples.jsonl   the data with the kept answers as offline trajectories
    <folder>/summary.json    counts

The second is appended and synced while answers come; the last two are made of it at the end, so
another bar or number to keep needs no new answers. Called by `command`.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.keys import content_fingerprint
from easyvideor1.schema import jsonl
from easyvideor1.schema.codec import from_plain, to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import write_json
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Sample, Trajectory
from easyvideor1.train.config import CollectConfig
from easyvideor1.train.run_folder import differences


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredAnswer:
    """One answer and what it earned."""

    text: str
    score: float | None = None
    """None where it could not be scored."""
    num_tokens: int | None = None
    """None where the endpoint did not tell."""
    is_whole: bool
    """Whether it ended by itself and not at the limit."""
    logprobs: tuple[float, ...] | None = None
    """Of its tokens under who sampled it, where these are the tokens of its text."""


class Journal:
    """The folder of one collection.

    Args:
        folder: made if absent.
        protocol: what all of its answers have in common.

    Raises:
        UserError: if the folder holds answers of another protocol.
    """

    def __init__(self, folder: Path, protocol: dict[str, Any]):
        self.folder = folder
        self._answers = folder / "answers.jsonl"
        self._refuse_other(protocol)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "protocol.json", protocol)
        self._rows = {
            row["id"]: row for row in (jsonl.read(self._answers) if self._answers.exists() else [])
        }

    def is_done(self, sample: Sample) -> bool:
        """Whether a sample has been answered as it is now.

        One that failed, or that was another question then, is asked again by the next start.
        """
        row = self._row(sample)
        return row is not None and "failed" not in row

    def add(self, sample: Sample, answers: Sequence[ScoredAnswer]) -> None:
        """Keep the answers to a sample; on return they are on the disk."""
        self._append(sample, answers=[to_plain(answer) for answer in answers])

    def fail(self, sample: Sample, reason: str) -> None:
        """A sample has no answers, and why."""
        self._append(sample, failed=reason)

    def _append(self, sample: Sample, **outcome: Any) -> None:
        row = {"id": sample.id, "question": question_digest(sample), **outcome}
        jsonl.append(self._answers, [row])
        self._rows[sample.id] = row

    def _row(self, sample: Sample) -> dict[str, Any] | None:
        """What became of a sample, unless it has changed since."""
        row = self._rows.get(sample.id)
        return row if row and row["question"] == question_digest(sample) else None

    def conclude(self, samples: Iterable[Sample], config: CollectConfig, source: str) -> Counter:
        """Write the samples with their trajectories, and count what became of all of them."""
        counts: Counter = Counter()
        write_samples(
            self.folder / "samples.jsonl", self._with_trajectories(samples, config, source, counts)
        )
        write_json(self.folder / "summary.json", dict(sorted(counts.items())))
        return counts

    def _with_trajectories(
        self, samples: Iterable[Sample], config: CollectConfig, source: str, counts: Counter
    ) -> Iterator[Sample]:
        for sample in samples:
            counts["samples"] += 1
            row = self._row(sample)
            if row is None:
                counts["not_asked"] += 1
            elif "failed" in row:
                counts["failed"] += 1
            else:
                answers = [from_plain(ScoredAnswer, answer) for answer in row["answers"]]
                kept = chosen(answers, config)
                counts["answers"] += len(answers)
                counts["truncated"] += sum(not answer.is_whole for answer in answers)
                counts["kept"] += len(kept)
                counts["samples_with_kept"] += bool(kept)
                sample = replace(sample, offline=(*sample.offline, *_trajectories(kept, source)))
            yield sample

    def _refuse_other(self, protocol: dict[str, Any]) -> None:
        stored = self.folder / "protocol.json"
        if not stored.is_file():
            return
        before = json.loads(stored.read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(protocol))
        if differing := differences(before, wanted):
            raise UserError(
                f"{self.folder} holds answers that were collected otherwise; {differing}. "
                "Set another collect.folder or run_name, or the same values"
            )


def question_digest(sample: Sample) -> str:
    """16 hexadecimal digits over what its answers and their scores depend on, media included.

    A medium counts by its content; one that cannot be read counts as such.
    """
    asked = to_plain(replace(sample, offline=(), source="", category="", pass_rate=None))
    contents = [
        _content(path) for medium in sample.media for path in (medium.frames or (medium.path,))
    ]
    text = json.dumps([asked, contents], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _content(path: str) -> str | None:
    try:
        return content_fingerprint(path)
    except DecodeError:
        return None


def chosen(answers: Sequence[ScoredAnswer], config: CollectConfig) -> list[ScoredAnswer]:
    """The answers to keep: whole, good enough, each text once, the best and then shortest first."""
    good = [
        (
            -answer.score,
            len(answer.text) if answer.num_tokens is None else answer.num_tokens,
            answer,
        )
        for answer in answers
        if answer.is_whole and answer.score is not None and answer.score >= config.min_score
    ]
    by_text: dict[str, ScoredAnswer] = {}
    for _, _, answer in sorted(good, key=lambda entry: entry[:2]):
        by_text.setdefault(answer.text, answer)
    return list(by_text.values())[: config.keep]


def _trajectories(kept: Sequence[ScoredAnswer], source: str) -> list[Trajectory]:
    return [
        Trajectory(text=answer.text, source=source, logprobs=answer.logprobs) for answer in kept
    ]
