"""Engine and learner are one policy in every family: log-probs of sampled tokens agree."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.schema.records import Completion, Segment
from tests.live_engine import LiveEngine
from tests.seams.cases import (
    CASE_NAMES,
    FAMILIES,
    asked,
    clips_of,
    forward_inputs,
    learner_of,
    prompt_of,
)
from tests.train.policy_cases import family_at

TOLERANCE = 2e-3
"""In nats, of one token, where both compute in float32."""
TOLERANCE_BF16 = 0.3
"""Where vLLM has linear attention for a CPU in bfloat16 alone."""


def sampled(
    engine: LiveEngine, case: str, temperature: float = 1.0, seed: int = 5
) -> list[Completion]:
    clips = clips_of(case, engine.family.rules.factor)
    return engine.generate(
        prompt_of(engine.family, case, clips).token_ids,
        clips,
        n=4,
        seed=seed,
        max_new_tokens=24,
        logprobs=True,
        temperature=temperature,
    ).completions


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_of_sampled_tokens_agree(seam_engine: LiveEngine, temperature: float) -> None:
    family = seam_engine.family
    tolerance = TOLERANCE_BF16 if family.has_linear_attention else TOLERANCE
    clips = {case: clips_of(case, family.rules.factor) for case in CASE_NAMES}
    learner = learner_of(Path(seam_engine.model_path), clips, temperature)
    for case in CASE_NAMES:
        prompt = prompt_of(family, case, clips[case])
        completions = sampled(seam_engine, case, temperature)
        ours = learner.logprobs([asked(prompt, completion) for completion in completions])
        for completion, values in zip(completions, ours, strict=True):
            theirs = torch.tensor(completion.logprobs)
            assert theirs.min() < -1  # neither flat nor certain
            torch.testing.assert_close(torch.tensor(values), theirs, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_learner_is_plain_transformers(sharp_models: Callable[[str], Path], name: str) -> None:
    """In float32 also where the engine cannot; the answers' tokens are drawn at random."""
    path = sharp_models(name)
    family = family_at(path)
    clips = {case: clips_of(case, family.rules.factor) for case in CASE_NAMES}
    learner = learner_of(path, clips)
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    allowed = sorted(set(range(len(family.tokenizer))) - set(family.forbidden_token_ids))
    generator = torch.manual_seed(0)
    for case in CASE_NAMES:
        drawn = torch.randint(len(allowed), (5,), generator=generator)
        answer = [allowed[index] for index in drawn.tolist()]
        prompt = prompt_of(family, case, clips[case])
        inputs = family.learner_inputs(prompt.token_ids, clips[case])
        with torch.no_grad():
            logits = model(**forward_inputs(inputs, answer, family=family)).logits[0]
        logits = logits[len(inputs.token_ids) - 1 : -1].float()
        logits[:, list(family.forbidden_token_ids)] = -torch.inf
        expected = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
        segment = Segment(token_ids=tuple(answer))
        completion = Completion(segments=(segment,), text="", finish_reason="stop")
        (ours,) = learner.logprobs([asked(prompt, completion)])
        torch.testing.assert_close(torch.tensor(ours), expected, atol=1e-4, rtol=0)
