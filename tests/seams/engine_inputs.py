"""What vLLM's own processor makes of a request, and the positions its model class gives it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from easyvideor1.preprocess.clip import Clip
from tests.live_engine import LiveEngine


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt as it enters the engine."""

    token_ids: list[int]
    features: list[Any]
    """`MultiModalFeatureSpec` of each medium."""
    hashes: dict[str, list[str]]
    """By kind: the names of the media in vLLM's caches."""

    def of(self, kind: str) -> list[Any]:
        return [feature for feature in self.features if feature.modality == kind]


def rendered(engine: LiveEngine, prompt: list[int], clips: Sequence[Clip]) -> Rendered:
    from vllm.multimodal.inputs import MultiModalFeatureSpec
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    llm = engine.engine._llm
    # The caches of media would leave out the pixels of what was seen before.
    engine.run(llm.reset_mm_cache())
    inputs = engine.family.engine_inputs(prompt, clips)
    parsed = parse_model_prompt(llm.model_config, inputs)
    (result,) = engine.run(llm.renderer.render_cmpl_async([parsed]))
    # This side has seen the media, the engine has not: it would be sent names without pixels.
    engine.run(llm.reset_mm_cache())
    features = [
        MultiModalFeatureSpec(
            data=data, modality=kind, identifier=f"{kind}-{number}", mm_position=place
        )
        for kind, items in result.get("mm_kwargs", {}).items()
        for number, (data, place) in enumerate(
            zip(items, result["mm_placeholders"][kind], strict=True)
        )
    ]
    hashes = {kind: list(names) for kind, names in (result.get("mm_hashes") or {}).items()}
    return Rendered(token_ids=list(result["prompt_token_ids"]), features=features, hashes=hashes)


def engine_positions(engine: LiveEngine, inputs: Rendered) -> torch.Tensor:
    """int64 [3, P] by the model class that vLLM runs for the checkpoint."""
    from vllm.model_executor.models import ModelRegistry

    config = engine.engine._llm.model_config
    (architecture,) = config.hf_config.architectures
    model_class, _ = ModelRegistry.resolve_model_cls(architecture, config)
    # Only its configuration is asked for, so the model itself need not be loaded a second time.
    model = object.__new__(model_class)
    model.__dict__["config"] = config.hf_config
    positions, _ = model.get_mrope_input_positions(inputs.token_ids, inputs.features)
    return positions
