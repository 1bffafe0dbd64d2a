"""No vision or control token is ever sampled, not even from a model that wants nothing else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from tests.live_engine import LiveEngine
from tests.seams.cases import clips_of, forward_inputs, prompt_of

STRENGTH = 15.0
"""Of the wish: logits up to about 60, where those of other tokens stay below 10."""


def with_a_wish_for(tokens: list[int], path: Path) -> Any:
    """The model with a head that prefers `tokens`.

    Their rows point along an axis each two, one up and one down, so that one of them is wanted
    whatever the sign of that component of the hidden state.
    """
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    head = model.lm_head.weight.detach().clone()
    head[tokens] = 0.0
    for index, token in enumerate(tokens):
        head[token, index // 2 % head.shape[1]] = STRENGTH if index % 2 else -STRENGTH
    model.lm_head.weight = torch.nn.Parameter(head)
    return model


def test_the_forbidden_are_the_vision_and_control_tokens(seam_engine: LiveEngine) -> None:
    family = seam_engine.family
    names = {family.tokenizer.convert_ids_to_tokens(i): i for i in family.forbidden_token_ids}
    vision = ("image_pad", "video_pad", "vision_start", "vision_end")
    assert {f"<|{name}|>" for name in (*vision, "im_start", "endoftext")} <= names.keys()
    assert not set(family.eos_token_ids) & set(family.forbidden_token_ids)


def test_they_are_not_sampled_though_the_model_prefers_them(seam_engine: LiveEngine) -> None:
    family = seam_engine.family
    tokenizer = family.tokenizer
    wanted = [i for i in family.forbidden_token_ids if tokenizer.convert_ids_to_tokens(i)]
    model = with_a_wish_for(wanted, Path(seam_engine.model_path))
    clips = clips_of("image and video", family.rules.factor)
    prompt = prompt_of(family, "image and video", clips)
    inputs = family.learner_inputs(prompt.token_ids, clips)
    with torch.no_grad():
        probabilities = model(**forward_inputs(inputs, family=family)).logits[0].softmax(-1)
    # The model itself would hardly ever say anything else.
    assert probabilities[:, wanted].sum(-1).median() > 0.9

    seam_engine.publish(model.state_dict())
    result = seam_engine.generate(prompt.token_ids, clips, n=32, seed=1, max_new_tokens=32)
    sampled = [token for completion in result.completions for token in completion.token_ids]
    assert len(sampled) > 200
    assert not set(sampled) & set(family.forbidden_token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_nor_greedily_nor_in_heat(seam_engine: LiveEngine, temperature: float) -> None:
    family = seam_engine.family
    model = with_a_wish_for(list(family.forbidden_token_ids), Path(seam_engine.model_path))
    seam_engine.publish(model.state_dict())
    prompt = prompt_of(family, "text", [])
    result = seam_engine.generate(
        prompt.token_ids,
        [],
        n=1 if temperature == 0 else 16,
        temperature=temperature,
        seed=2,
        max_new_tokens=32,
    )
    sampled = {token for completion in result.completions for token in completion.token_ids}
    assert sampled and not sampled & set(family.forbidden_token_ids)
