"""The collect command: ask about every training sample, score, keep, and write the data anew.

A few samples are asked about at a time; each is on the disk before the next takes its place, so a
command that is killed and started again asks only about the rest.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Completion, Sample, Score, ScoreStatus
from easyvideor1.train.collecting.answerers import Answerer, NotAnsweredError, open_answerer
from easyvideor1.train.collecting.journal import Journal, ScoredAnswer
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.left_out import UnusableSampleError
from easyvideor1.train.offline import stable_hash
from easyvideor1.train.rollout import sampling_law
from easyvideor1.train.scorer import score_completions

if TYPE_CHECKING:
    from easyvideor1.preprocess.families import FamilyAdapter
    from easyvideor1.train.inputs import Prompter


def run(config: TrainConfig, samples: Sequence[Sample]) -> Path:
    """Collect, and return the file of samples with their trajectories.

    Args:
        config: with a model that is there, whose clips are cached as `cache.mode` says.
        samples: to ask about.

    Raises:
        UserError: for answers of another protocol in the folder, an endpoint that cannot be
            reached, or if nothing was good enough.
    """
    from easyvideor1.preprocess.families import family_of
    from easyvideor1.train.inputs import Inputs

    folder = folder_of(config)
    journal = Journal(folder, protocol_of(config))
    waiting = [sample for sample in samples if not journal.is_done(sample)]
    print(f"{len(samples) - len(waiting)} of {len(samples)} samples are answered in {folder}")
    if waiting:
        family = family_of(config.model)
        prompter = Inputs(config, family).prompter(validation=False)
        asyncio.run(collect(config, waiting, journal, prompter, family))
    counts = journal.conclude(samples, config.collect, source_of(config))
    print(told(counts, folder))
    if not counts["kept"]:
        raise UserError(
            f"none of {counts['answers']} answers reached collect.min_score="
            f"{config.collect.min_score}; all are in {folder}, lower it and start the command "
            "again, which asks nothing anew"
        )
    return folder / "samples.jsonl"


def folder_of(config: TrainConfig) -> Path:
    """Where everything is written."""
    return resolve_output(config.collect.folder or f"{config.output_dir}/trajectories")


def source_of(config: TrainConfig) -> str:
    """The name of who answered, in the trajectories."""
    return config.collect.source or config.collect.endpoint.model or Path(config.model.path).name


def protocol_of(config: TrainConfig) -> dict[str, Any]:
    """What all answers and scores depend on; a sample's own part is in its row.

    Of a checkpoint it has the weights, wherever they lie; what an endpoint serves it cannot know.
    """
    endpoint = config.collect.endpoint
    asked = {"base_url": endpoint.base_url, "model": endpoint.model}
    return {
        "asked": asked if endpoint.base_url else {"model": model_identity(config.model.path)},
        "seed": config.seed,
        "answers": config.collect.answers,
        "sampling": to_plain(sampling_law(config.rollout)),
        "budget": to_plain(config.budget),
        "reward": to_plain(config.reward),
    }


async def collect(
    config: TrainConfig,
    samples: Sequence[Sample],
    journal: Journal,
    prompter: "Prompter",
    family: "FamilyAdapter",
) -> None:
    """Answer and score all samples."""
    async with open_answerer(config, family) as answerer:
        one = Collector(config, answerer, journal, prompter, family)
        rest = iter(samples)
        with tqdm(total=len(samples), desc="collecting", unit="sample") as bar:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(config.collect.concurrency):
                        tasks.create_task(one.work(rest, bar))
            except* Exception as errors:
                raise errors.exceptions[0] from None


class Collector:
    """Asks about one sample after another; several tasks share it."""

    def __init__(
        self,
        config: TrainConfig,
        answerer: Answerer,
        journal: Journal,
        prompter: "Prompter",
        family: "FamilyAdapter",
    ):
        self._config = config
        self._answerer = answerer
        self._journal = journal
        self._prompter = prompter
        self._family = family
        self._writing = asyncio.Lock()

    async def work(self, samples: Iterator[Sample], bar: "tqdm[Any]") -> None:
        """Take samples until there are none left."""
        for sample in samples:
            try:
                answers = await self._answers(sample)
            except (NotAnsweredError, UnusableSampleError) as error:
                async with self._writing:
                    await asyncio.to_thread(self._journal.fail, sample, str(error))
                tqdm.write(f"sample {sample.id} has no answers: {error}")
            else:
                async with self._writing:
                    await asyncio.to_thread(self._journal.add, sample, answers)
            bar.update()

    async def _answers(self, sample: Sample) -> list[ScoredAnswer]:
        prompt = await asyncio.to_thread(self._prompter, sample)
        try:
            clips = await asyncio.to_thread(self._prompter.store.load, sample)
        except UserError as error:
            raise NotAnsweredError(str(error)) from error
        collect, seed = self._config.collect, stable_hash(self._config.seed, "collect", sample.id)
        completions = await self._answerer.answer(prompt, clips, count=collect.answers, seed=seed)
        pairs = [(sample, completion) for completion in completions]
        scores = await asyncio.to_thread(score_completions, pairs, self._config.reward)
        return [
            self._scored(completion, score)
            for completion, score in zip(completions, scores, strict=True)
        ]

    def _scored(self, completion: Completion, score: Score) -> ScoredAnswer:
        num_tokens = len(completion.token_ids)
        return ScoredAnswer(
            text=completion.text,
            score=score.value if score.status is ScoreStatus.ok else None,
            num_tokens=num_tokens or None,
            is_whole=completion.finish_reason == "stop",
            logprobs=self._logprobs(completion),
        )

    def _logprobs(self, completion: Completion) -> tuple[float, ...] | None:
        """Those of the tokens, if a reader of the text would get the same ones."""
        tokens = list(completion.token_ids)
        if not tokens or tokens[-1] not in self._family.eos_token_ids:
            return None
        if self._family.text_token_ids(completion.text) != tokens[:-1]:
            return None
        logprobs = [p for segment in completion.segments for p in segment.logprobs or ()]
        return tuple(logprobs) if len(logprobs) == len(tokens) else None


def told(counts: Counter, folder: Path) -> str:
    """The outcome in a sentence."""
    return (
        f"kept {counts['kept']} of {counts['answers']} answers, for {counts['samples_with_kept']} "
        f"of {counts['samples']} samples ({counts['failed']} failed, {counts['truncated']} answers "
        f"were cut off): {folder / 'samples.jsonl'}"
    )
