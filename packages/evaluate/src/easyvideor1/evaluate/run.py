"""The jobs of `evr-evaluate`: run, score, report, check.

Reads top to bottom: open every benchmark (files, protocol, stored answers), cache the frames of
what is still to be answered, start one engine for all of it, answer, score, report. Everything
that a user can have got wrong is checked before torch, Ray or vLLM are imported.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, Job
from easyvideor1.preprocess.data import ensure_data
from easyvideor1.preprocess.families import check_family
from easyvideor1.preprocess.families.tiny import ensure_model
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.placeholders import placeholder_mismatch
from easyvideor1.schema.readers import missing_media
from easyvideor1.schema.records import Prediction, PredictionStatus, Sample, Score
from easyvideor1.schema.table import problem_types_of

if TYPE_CHECKING:
    from easyvideor1.evaluate.budget_check import Lengths
    from easyvideor1.evaluate.outcome import Outcome
    from easyvideor1.evaluate.pipeline import Generator, Question
    from easyvideor1.evaluate.report import Section
    from easyvideor1.evaluate.results import ResultFolder
    from easyvideor1.preprocess.families import FamilyAdapter
    from easyvideor1.preprocess.store import ClipStore

_log = logging.getLogger(__name__)

BLIND = "answers.frames.blank"
"""The field of a protocol by which a blind run differs from one that sees."""
MISSING = "missing media: "
"""Begins the error of a question whose files are not there; it is asked once they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """One benchmark whose files have been read."""

    name: str
    config: BenchmarkConfig
    samples: list[Sample]
    missing: dict[str, str]
    """Sample id to the first of its media files that is not there."""


@dataclass(kw_only=True, slots=True)
class Evaluation:
    """One benchmark with its protocol, its stored answers and those still to get."""

    opened: Opened
    folder: "ResultFolder"
    store: "ClipStore"
    questions: "list[Question]" = field(default_factory=list)
    scores: dict[tuple[str, str, int], Score] = field(default_factory=dict)
    """Of answers given in this run, by prediction key; the others are scored at the end."""
    seconds: dict[str, float] = field(default_factory=dict)
    engine_restarts: int = 0
    lengths: "Lengths | None" = None
    """Of the prompts that were still open; None where nothing was."""
    kv_tokens: int | None = None
    """That the engine had room for."""
    section: "Section | None" = None
    """Of the report, once one is written."""


def evaluate(config: EvaluateConfig) -> list[dict[str, Any]]:
    """Run the job and return the summary of each benchmark, in order; empty for `check`."""
    if config.model.build is None and config.job is not Job.check:
        check_family(ensure_model(config.model))
    if config.fixtures:
        from easyvideor1.evaluate.fixtures import on_fixtures

        for name, benchmark in config.benchmarks.items():
            config.benchmarks[name] = on_fixtures(name, benchmark)
    opened = [open_benchmark(name, benchmark) for name, benchmark in config.benchmarks.items()]
    if config.job is Job.check:
        check(opened)
        return []
    if config.job is Job.run:
        for benchmark in opened:
            refuse_without_media(benchmark)
    return evaluate_opened(config, opened)


def check(opened: Sequence[Opened]) -> None:
    """Print the missing media files of each benchmark, by name and count; exit 1 if any are."""
    any_missing = False
    for benchmark in opened:
        paths = sorted(set(benchmark.missing.values()))
        for path in paths:
            print(path)
        files = {m.path for s in benchmark.samples for m in s.media if m.path}
        print(
            f"{benchmark.name}: {len(benchmark.samples)} questions on {len(files)} media files, "
            f"{len(paths)} files missing, which {len(benchmark.missing)} questions need"
        )
        any_missing = any_missing or bool(paths)
    if any_missing:
        raise SystemExit(1)


def open_benchmark(name: str, benchmark: BenchmarkConfig) -> Opened:
    """Read a benchmark's questions and look which of its media are there."""
    benchmark.data = ensure_data(benchmark.data)
    samples = load_benchmark(name, benchmark)
    missing: dict[str, str] = {}
    for sample_id, path in missing_media(samples):
        missing.setdefault(sample_id, path)
    return Opened(name=name, config=benchmark, samples=samples, missing=missing)


def refuse_without_media(benchmark: Opened) -> None:
    """Refuse to begin where every question would fail.

    Raises:
        UserError: naming a file that is missing.
    """
    if len(benchmark.missing) == len(benchmark.samples):
        example = next(iter(benchmark.missing.values()))
        raise UserError(
            f"benchmark {benchmark.name}: none of its media files is there, for example {example}; "
            f"set benchmarks.{benchmark.name}.data.media_root to the folder that holds them, or "
            "list what is missing with job=check"
        )


def evaluate_opened(config: EvaluateConfig, opened: Sequence[Opened]) -> list[dict[str, Any]]:
    """Answer, score and report benchmarks whose files are read; their summaries, in order."""
    from easyvideor1.evaluate import fast_start
    from easyvideor1.rewards import check_scoring

    for benchmark in opened:
        check_scoring(problem_types_of(benchmark.samples), config.reward)
    if config.job is Job.run:
        fast_start.begin()
    model_path = ensure_model(config.model)

    from easyvideor1.evaluate.protocol import model_identity
    from easyvideor1.preprocess.families import family_of

    family = family_of(replace(config.model, path=model_path))
    model = model_identity(model_path)
    evaluations = [prepare(config, b, model=model, family=family) for b in opened]
    if config.job is Job.run:
        context = context_of(config, model_path)
        for evaluation in evaluations:
            check_lengths(config, evaluation, family, context=context)
        for evaluation in evaluations:
            cache_frames(config, evaluation)
        if any(evaluation.questions for evaluation in evaluations):
            asyncio.run(_answer_all(config, evaluations, model_path, family))
    summaries = [conclude(config, evaluation, model_path) for evaluation in evaluations]
    if len(summaries) > 1:
        _tell_together(config, evaluations, summaries)
    return summaries


def prepare(
    config: EvaluateConfig, opened: Opened, *, model: str, family: "FamilyAdapter"
) -> Evaluation:
    """Find the stored answers of this protocol and, for `job=run`, the questions still open.

    Args:
        config: of the run.
        opened: the benchmark.
        model: what tells the weights that answer from others.
        family: of the model.
    """
    from easyvideor1.evaluate import protocol as protocols
    from easyvideor1.evaluate.results import ResultFolder
    from easyvideor1.preprocess.store import ClipStore

    benchmark = opened.config
    protocol = protocols.describe(
        opened.name, config, benchmark, opened.samples, model=model, rules=family.rules
    )
    folder = ResultFolder(resolve_output(config.output_dir) / opened.name, protocol)
    store = ClipStore(config.cache, benchmark.budget, family.rules, config.decode, validation=True)
    evaluation = Evaluation(opened=opened, folder=folder, store=store)
    if config.job is not Job.run:
        folder.require()
        return evaluation
    if taken_over := folder.open():
        _log.info("%s: took over %d answers, to be scored anew", opened.name, taken_over)
    evaluation.questions = _open_questions(config, evaluation, family)
    return evaluation


def _open_questions(
    config: EvaluateConfig, evaluation: Evaluation, family: "FamilyAdapter"
) -> "list[Question]":
    """What is still to be answered. Stores the questions that cannot be asked as failed."""
    from easyvideor1.evaluate.pipeline import questions_of
    from easyvideor1.evaluate.protocol import prompt_parts

    opened, benchmark = evaluation.opened, evaluation.opened.config
    by_id = {sample.id: sample for sample in opened.samples}
    done = {
        prediction.key
        for prediction in evaluation.folder.predictions()
        if not _again(prediction, config, evaluation, by_id.get(prediction.sample_id))
    }
    fingerprint, repeats = evaluation.folder.fingerprint, range(benchmark.repeats)
    unusable = {sample_id: MISSING + path for sample_id, path in opened.missing.items()} | {
        sample.id: f"its problem has {mismatch}"
        for sample in opened.samples
        if (mismatch := placeholder_mismatch(sample.problem, sample.media))
    }
    lost = [
        _load_failed(evaluation, sample_id, repeat, error)
        for sample_id, error in unusable.items()
        for repeat in repeats
        if (fingerprint, sample_id, repeat) not in done
    ]
    evaluation.folder.append(lost)
    wanted = [
        sample
        for sample in opened.samples
        if sample.id not in unusable
        and any((fingerprint, sample.id, repeat) not in done for repeat in repeats)
    ]
    questions = questions_of(
        wanted,
        lambda sample: family.prompt_token_ids(*prompt_parts(sample, benchmark, config.reward)),
        benchmark.generation,
        repeats=benchmark.repeats,
        seed=config.seed,
    )
    return [q for q in questions if (fingerprint, q.sample.id, q.repeat) not in done]


def _again(
    prediction: Prediction, config: EvaluateConfig, evaluation: Evaluation, sample: Sample | None
) -> bool:
    """Whether a stored prediction is to be replaced by a new one."""
    from easyvideor1.evaluate.results import FAILED

    if sample is None or sample.id in evaluation.opened.missing:
        return False
    if prediction.error.startswith(MISSING):
        return True
    if prediction.media:
        # A video of the same name may have been replaced since.
        keys = [evaluation.store.key(medium) for medium in sample.media]
        if keys != [medium["key"] for medium in prediction.media]:
            return True
    return config.retry_failed and prediction.status in FAILED


def context_of(config: EvaluateConfig, model_path: str) -> int:
    """Tokens of prompt and answer together that the engine takes."""
    from transformers import AutoConfig

    if config.engine.max_model_len is not None:
        return config.engine.max_model_len
    trust = config.model.trust_remote_code
    model = AutoConfig.from_pretrained(model_path, trust_remote_code=trust)
    return model.get_text_config().max_position_embeddings


def check_lengths(
    config: EvaluateConfig, evaluation: Evaluation, family: "FamilyAdapter", *, context: int
) -> None:
    """Measure the open prompts, tell of them, and refuse a run in which too many do not fit.

    Raises:
        UserError: see `budget_check.refuse_overlong`.
    """
    from easyvideor1.evaluate.budget_check import measure, refuse_overlong

    if not evaluation.questions:
        return
    name = evaluation.opened.name
    lengths = measure(evaluation.questions, evaluation.store, family, context=context, name=name)
    refuse_overlong(lengths, name, max_share=config.pipeline.max_overlong)
    evaluation.lengths = lengths
    told = lengths.as_dict()
    print(
        f"{name}: prompts of {told['p50']} / {told['p95']} / {told['max']} tokens "
        f"(p50 / p95 / max), {context} fit with the answer"
    )
    if tight := told["tight"]:
        print(f"  answers to {tight} of them may be cut off before {lengths.max_new_tokens} tokens")


def cache_frames(config: EvaluateConfig, evaluation: Evaluation) -> None:
    """Do what `cache.mode` says about missing clips; questions about undecodable media end here."""
    from easyvideor1.preprocess.engine import ensure_cached

    if not evaluation.questions:
        return
    samples = list({q.sample.id: q.sample for q in evaluation.questions}.values())
    report = ensure_cached([(samples, evaluation.store)], ray=config.ray)
    if report is None:
        return
    print(f"{evaluation.opened.name}: {report}")
    reasons = {
        sample_id: f"{failure.path}: {failure.reason}"
        for failure in report.failures
        for sample_id in failure.sample_ids
    }
    lost = [q for q in evaluation.questions if q.sample.id in reasons]
    evaluation.folder.append(
        [_load_failed(evaluation, q.sample.id, q.repeat, reasons[q.sample.id]) for q in lost]
    )
    evaluation.questions = [q for q in evaluation.questions if q.sample.id not in reasons]


def _load_failed(evaluation: Evaluation, sample_id: str, repeat: int, error: str) -> Prediction:
    return Prediction(
        fingerprint=evaluation.folder.fingerprint,
        sample_id=sample_id,
        repeat=repeat,
        status=PredictionStatus.load_failed,
        error=error,
    )


async def _answer_all(
    config: EvaluateConfig,
    evaluations: Sequence[Evaluation],
    model_path: str,
    family: "FamilyAdapter",
) -> None:
    import time

    from easyvideor1.evaluate.engine import Engine
    from easyvideor1.evaluate.engine_request import EngineDiedError

    engine = await Engine.start(model_path, config.engine, family)
    num_restarts = 0
    try:
        for evaluation in evaluations:
            start = time.perf_counter()
            while True:
                try:
                    await answer(config, evaluation, engine)
                    break
                except EngineDiedError as death:
                    num_restarts += 1
                    _refuse_restart(config, num_restarts, death)
                    evaluation.engine_restarts += 1
                await engine.stop()
                engine = await Engine.start(model_path, config.engine, family)
                _leave_out_answered(evaluation)
            evaluation.seconds["answers"] = round(time.perf_counter() - start, 3)
            evaluation.kv_tokens = engine.kv_tokens
    finally:
        await engine.stop()


def _refuse_restart(config: EvaluateConfig, number: int, death: Exception) -> None:
    """Raise where the engine has died too often; else say that it is started anew."""
    limit = config.pipeline.max_engine_restarts
    if number > limit:
        raise UserError(
            f"{death}; its own message is above, and pipeline.max_engine_restarts={limit} is "
            "reached. What was answered is stored: the same command goes on from there"
        ) from death
    print(f"{death}; starting it anew ({number} of {limit} times)", flush=True)


def _leave_out_answered(evaluation: Evaluation) -> None:
    """Keep the questions that have no stored answer."""
    fingerprint = evaluation.folder.fingerprint
    done = {prediction.key for prediction in evaluation.folder.predictions()}
    evaluation.questions = [
        q for q in evaluation.questions if (fingerprint, q.sample.id, q.repeat) not in done
    ]


async def answer(config: EvaluateConfig, evaluation: Evaluation, engine: "Generator") -> None:
    """Answer the open questions of one benchmark, with a progress bar."""
    from tqdm import tqdm

    from easyvideor1.evaluate.pipeline import Pipeline

    samples = {sample.id: sample for sample in evaluation.opened.samples}
    with tqdm(
        total=len(evaluation.questions), desc=evaluation.opened.name, unit="answer", smoothing=0.1
    ) as bar:

        def keep(predictions: list[Prediction]) -> None:
            evaluation.folder.append(predictions)
            evaluation.scores |= _score(predictions, samples, config)
            bar.set_postfix(_running(evaluation), refresh=False)
            bar.update(len(predictions))

        pipeline = Pipeline(
            engine,
            evaluation.store.load,
            keep,
            fingerprint=evaluation.folder.fingerprint,
            config=config.pipeline,
            blank_frames=config.blank_frames,
        )
        await pipeline.run(evaluation.questions)


def _score(
    predictions: Sequence[Prediction], samples: dict[str, Sample], config: EvaluateConfig
) -> dict[tuple[str, str, int], Score]:
    from easyvideor1.evaluate.scoring import TO_SCORE
    from easyvideor1.rewards import score_many

    answered = [
        p for p in predictions if p.status in TO_SCORE and samples[p.sample_id].answer is not None
    ]
    items = [(samples[p.sample_id], p.text) for p in answered]
    lengths = [len(p.token_ids) for p in answered]
    scores = score_many(items, config.reward, num_tokens=lengths)
    return {p.key: score for p, score in zip(answered, scores, strict=True)}


def _running(evaluation: Evaluation) -> dict[str, str]:
    scores = evaluation.scores.values()
    accuracy = sum(score.parts["accuracy"] for score in scores) / max(1, len(scores))
    return {"accuracy": f"{accuracy:.3f}"}


def conclude(config: EvaluateConfig, evaluation: Evaluation, model_path: str) -> dict[str, Any]:
    """Scores, summary and, unless only scores are wanted, the report."""
    from easyvideor1.evaluate import alarms, scoring

    opened, folder = evaluation.opened, evaluation.folder
    outcomes = scoring.score_predictions(
        opened.samples,
        folder.predictions(),
        repeats=opened.config.repeats,
        reward=config.reward,
        extractor=opened.config.extractor,
        known=evaluation.scores,
    )
    scoring.write_scores(folder.path, outcomes, opened.config.group_by)
    header = {
        "benchmark": opened.name,
        "fingerprint": folder.fingerprint,
        "folder": str(folder.path),
        "model": model_path,
        "blank_frames": config.blank_frames,
        "metric": opened.config.metric.value,
        "notes": opened.config.notes,
        "seconds": evaluation.seconds,
        "engine_restarts": evaluation.engine_restarts,
        "prompt_tokens": evaluation.lengths.as_dict(evaluation.kv_tokens)
        if evaluation.lengths
        else None,
        "cache": _cache_use(evaluation.store),
    }
    if not config.blank_frames and (twin := folder.differing_in(BLIND)) is not None:
        header["blind"] = twin
    found = alarms.alarms(outcomes, config.alarms)
    summary = scoring.write_summary(folder.path, outcomes, opened.config, header, found)
    if config.job is not Job.score:
        _report(config, evaluation, summary, outcomes)
    folder.close()
    evaluation.store.close()
    _print_summary(summary)
    for alarm in found:
        print(f"  ! {alarm}")
    return summary


def _cache_use(store: "ClipStore") -> dict[str, float]:
    """Where the frames of this run came from; empty where it needed none."""
    counts = store.counts
    if counts.hit_rate is None:
        return {}
    return {"hits": counts.hits, "misses": counts.misses, "hit_rate": counts.hit_rate}


def _report(
    config: EvaluateConfig,
    evaluation: Evaluation,
    summary: dict[str, Any],
    outcomes: "Sequence[Outcome]",
) -> None:
    from easyvideor1.evaluate.pipeline import blank
    from easyvideor1.evaluate.report import Section, write_report

    load = evaluation.store.load
    evaluation.section = Section(
        title=evaluation.opened.name,
        summary=summary,
        protocol=evaluation.folder.protocol,
        outcomes=list(outcomes),
        load=(lambda sample: list(map(blank, load(sample)))) if config.blank_frames else load,
        benchmark=evaluation.opened.config,
        reward=config.reward,
    )
    write_report(evaluation.folder.path / "report.html", [evaluation.section], config.report)


def _tell_together(
    config: EvaluateConfig, evaluations: Sequence[Evaluation], summaries: Sequence[dict[str, Any]]
) -> None:
    """A table and a page of several benchmarks, in a folder named after their protocols."""
    from easyvideor1.evaluate.protocol import digest
    from easyvideor1.evaluate.report import write_report
    from easyvideor1.evaluate.summary_table import write_table

    name = digest(evaluation.folder.fingerprint for evaluation in evaluations)
    folder = resolve_output(config.output_dir) / "reports" / name
    table = write_table(folder, summaries)
    print(f"\n{table.read_text(encoding='utf-8')}\nas {table} and {table.with_suffix('.csv')}")
    sections = [e.section for e in evaluations if e.section is not None]
    if not sections:
        return
    write_report(folder / "report.html", sections, config.report)
    for evaluation in evaluations:
        evaluation.store.close()
    print(f"all {len(sections)} benchmarks on one page: {folder / 'report.html'}")


def _print_summary(summary: dict[str, Any]) -> None:
    official = "  ".join(f"{name} {value:.3f}" for name, value in summary["official"].items())
    statuses = ", ".join(f"{count} {name}" for name, count in summary["statuses"].items())
    print(f"{summary['benchmark']}: {official}  ({summary['questions']} answers: {statuses})")
    if summary["strict"] != summary["official"]:
        print(f"  read strictly: accuracy {summary['strict_accuracy']:.3f}")
    if blind := summary.get("blind"):
        gain = summary["accuracy"] - blind["accuracy"]
        print(
            f"  accuracy with video {summary['accuracy']:.3f}, without {blind['accuracy']:.3f}: "
            f"{gain:+.3f}"
        )
    print(f"  chance {summary['chance']:.3f}, results in {Path(summary['folder'])}")
    if (use := summary["cache"]) and use["hits"]:
        print(f"  {use['hit_rate']:.1%} of {use['hits'] + use['misses']} clips came from the cache")
