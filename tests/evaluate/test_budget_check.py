"""Lengths of prompts before a run: those that the engine counts, and what does not fit."""

from dataclasses import replace

import pytest

from easyvideor1.evaluate import run
from easyvideor1.evaluate.budget_check import Lengths, refuse_overlong
from easyvideor1.evaluate.config import PipelineConfig
from easyvideor1.schema.errors import UserError
from tests.evaluate.test_run import Bench, bench, cache

__all__ = ["bench", "cache"]

LENGTHS = Lengths(prompts=[5, 100, 127, 128, 900], max_new_tokens=100, context=1_000)


def test_lengths_are_those_that_the_engine_counts(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    config, evaluation = bench.open()
    run.check_lengths(config, evaluation, bench.engine.family, context=1_024)
    assert evaluation.lengths is not None
    told = evaluation.lengths.as_dict()
    assert f"prompts of {told['p50']} / {told['p95']} / {told['max']} tokens" in (
        capsys.readouterr().out
    )
    bench.engine.run(run.answer(config, evaluation, bench.engine.engine))
    evaluation.kv_tokens = bench.engine.engine.kv_tokens
    counted = sorted(p.prompt_tokens for p in evaluation.folder.predictions())
    assert sorted(evaluation.lengths.prompts) == counted
    summary = run.conclude(config, evaluation, bench.engine.model_path)
    longest = told["p95"] + evaluation.lengths.max_new_tokens
    concurrent = summary["prompt_tokens"]["concurrent"]
    assert concurrent == pytest.approx(bench.engine.engine.kv_tokens / longest)


def test_percentiles_and_bins_by_hand() -> None:
    told = LENGTHS.as_dict()
    assert (told["p50"], told["p95"], told["max"]) == (127, 900, 900)
    assert (told["overlong"], told["tight"]) == (0, 0)
    assert told["histogram"] == [(8, 1), (16, 0), (32, 0), (64, 0), (128, 2), (256, 1), (512, 0),
                                 (1024, 1)]  # fmt: skip
    assert told["concurrent"] is None
    assert LENGTHS.as_dict(kv_tokens=2_500)["concurrent"] == 2.5
    nothing = Lengths(prompts=[], max_new_tokens=1, context=10)
    assert nothing.as_dict()["histogram"] == [] and nothing.num_overlong == 0
    refuse_overlong(nothing, "b", max_share=0.0)


def test_what_does_not_fit_is_refused_with_the_way_out() -> None:
    tight = replace(LENGTHS, context=999)
    assert (tight.num_overlong, tight.num_tight) == (0, 1)
    refuse_overlong(tight, "mvbench", max_share=0.0)
    full = replace(LENGTHS, context=900)
    assert (full.num_overlong, full.num_tight) == (1, 0)
    with pytest.raises(
        UserError,
        match=r"benchmark mvbench: 1 of 5 questions have up to 900 tokens, .*max_model_len is 900;"
        r".*budget@benchmarks\.mvbench\.budget.*pipeline\.max_overlong=0\.200",
    ):
        refuse_overlong(full, "mvbench", max_share=0.0)
    refuse_overlong(full, "mvbench", max_share=0.2)
    with pytest.raises(UserError, match=r"pipeline\.max_overlong is a share"):
        PipelineConfig(max_overlong=2)
