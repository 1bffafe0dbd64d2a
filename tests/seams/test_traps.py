"""What engines and model libraries get wrong in silence, each with a test that would notice.

Positions of transformers, normalisation by the image processor and prompts expanded twice have
their tests in `test_positions`, `test_inputs` and `tests/preprocess/test_family_qwen3_vl.py`.
"""

from pathlib import Path

import pytest
import torch

from easyvideor1.schema.records import Completion
from easyvideor1.train.learner import RankLearner
from tests.clips import video
from tests.live_engine import MAX_MODEL_LEN, LiveEngine
from tests.seams.cases import CASE_NAMES, asked, clips_of, learner_of, prompt_of, question

TOLERANCE, TOLERANCE_BF16 = 2e-3, 0.3


def tolerance_of(engine: LiveEngine) -> float:
    return TOLERANCE_BF16 if engine.family.has_linear_attention else TOLERANCE


class Policy:
    """The engine's checkpoint on both sides."""

    def __init__(self, engine: LiveEngine):
        self.engine = engine
        factor = engine.family.rules.factor
        self.clips = {case: clips_of(case, factor) for case in CASE_NAMES}
        self.learner: RankLearner = learner_of(Path(engine.model_path), self.clips)

    def sampled(self, case: str) -> list[Completion]:
        prompt = prompt_of(self.engine.family, case, self.clips[case])
        settings = {"n": 4, "seed": 3, "max_new_tokens": 16, "logprobs": True}
        return self.engine.generate(prompt.token_ids, self.clips[case], **settings).completions

    def mismatch(self, case: str) -> float:
        """Largest difference between both sides over the tokens of sampled answers."""
        prompt = prompt_of(self.engine.family, case, self.clips[case])
        answers = self.sampled(case)
        ours = self.learner.logprobs([asked(prompt, answer) for answer in answers])
        pairs = zip(ours, answers, strict=True)
        return max(
            (torch.tensor(values) - torch.tensor(answer.logprobs)).abs().max().item()
            for values, answer in pairs
        )

    def change_weights(self) -> None:
        """Every parameter of both towers, the tied head and the embeddings included."""
        with torch.no_grad():
            for number, parameter in enumerate(self.learner.model.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.manual_seed(number))
                parameter.add_(0.3 * parameter.std().nan_to_num(0.1) * noise)


def test_nothing_cached_outlives_the_weights_that_made_it(seam_engine: LiveEngine) -> None:
    """Prefixes, encoded media, processed media, and the CPU backend's own copy of a tied head.

    The same media are asked about before and after, so that all caches are warm; an engine that
    forgot one side of a media cache alone would die of the second question.
    """
    policy, tolerance = Policy(seam_engine), tolerance_of(seam_engine)
    for case in CASE_NAMES:
        assert policy.mismatch(case) < tolerance
    policy.change_weights()
    stale = {case: policy.mismatch(case) for case in CASE_NAMES}
    assert min(stale.values()) > 2 * tolerance  # the change is one that these figures show
    seam_engine.publish(dict(policy.learner.gather_weights()))
    for case in CASE_NAMES:
        assert policy.mismatch(case) < tolerance


def test_a_request_gives_as_many_answers_as_were_asked_for(seam_engine: LiveEngine) -> None:
    """vLLM streams the answers that ended last alone, unless it is told to send all at once."""
    policy = Policy(seam_engine)
    answers = policy.sampled("video")
    assert len(answers) == 4
    assert all(len(answer.token_ids) == len(answer.logprobs or ()) > 0 for answer in answers)
    assert len({tuple(answer.token_ids) for answer in answers}) > 1


def test_seeded_requests_fill_the_engine(seam_engine: LiveEngine) -> None:
    """More prompt tokens at once than a step takes: a seeded prefill must not be cut in two."""
    family, factor = seam_engine.family, seam_engine.family.rules.factor
    requests = []
    for number in range(6):
        clips = [video(40, height=3 * factor, width=4 * factor, seed=100 + number)]
        token_ids = family.prompt_token_ids(question(f"long {number}", clips), "Answer.")
        assert 200 < family.num_prompt_tokens(token_ids, clips) < MAX_MODEL_LEN
        requests.append(seam_engine.request(token_ids, clips, seed=number, n=2, max_new_tokens=4))

    async def ask_all() -> list[int]:
        import asyncio

        results = await asyncio.gather(*map(seam_engine.engine.generate, requests))
        return [len(result.completions) for result in results]

    assert seam_engine.run(ask_all()) == [2] * 6


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_no_control_token_is_sampled(seam_engine: LiveEngine, temperature: float) -> None:
    policy = Policy(seam_engine)
    prompt = prompt_of(seam_engine.family, "video", policy.clips["video"])
    answers = seam_engine.generate(
        prompt.token_ids,
        policy.clips["video"],
        n=16,
        seed=1,
        temperature=temperature,
        max_new_tokens=64,
    ).completions
    seen = {token for answer in answers for token in answer.token_ids}
    assert not seen & set(seam_engine.family.forbidden_token_ids)
