"""What a model family asks of frames: the patch grid, and whose sampling and resizing rules hold.

`FamilyRules` is part of the cache key. Its sizes come from the model's own processor.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from easyvideor1.schema.errors import UserError

RULES_BY_MODEL_TYPE = {
    "qwen2_vl": "qwen2_vl",
    "qwen2_5_vl": "qwen2_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
}
"""`model_type` of a checkpoint's config.json -> name of the rule set in sampling and geometry."""

RULE_SETS = frozenset(RULES_BY_MODEL_TYPE.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyRules:
    """Example: FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)."""

    name: str
    """Rule set, after the first family with that processor of transformers: `qwen2_vl` for
    Qwen2VLVideoProcessor, `qwen3_vl` for Qwen3VLVideoProcessor."""
    patch_size: int
    """Side of a vision patch in pixels."""
    merge_size: int
    """Patches merged into one token, per side."""
    temporal_patch_size: int
    """Frames merged into one token."""

    def __post_init__(self) -> None:
        if self.name not in RULE_SETS:
            known = ", ".join(sorted(RULE_SETS))
            raise ValueError(f"no frame rules of the name {self.name!r}; known: {known}")

    @property
    def factor(self) -> int:
        """Height and width of every frame are multiples of this many pixels."""
        return self.patch_size * self.merge_size

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for keys and fingerprints."""
        return asdict(self)


def rules_of(video_processor: Any, model_type: str) -> FamilyRules:
    """The rules of a loaded Hugging Face video processor.

    Raises:
        UserError: if no rule set is known for `model_type`, or the processor lacks a size.
    """
    if model_type not in RULES_BY_MODEL_TYPE:
        known = ", ".join(sorted(RULES_BY_MODEL_TYPE))
        raise UserError(f"no frame rules for model type {model_type!r}; known: {known}")
    return FamilyRules(
        name=RULES_BY_MODEL_TYPE[model_type],
        patch_size=_size(video_processor, "patch_size"),
        merge_size=_size(video_processor, "merge_size"),
        temporal_patch_size=_size(video_processor, "temporal_patch_size"),
    )


def _size(video_processor: Any, name: str) -> int:
    value = getattr(video_processor, name, None)
    if not isinstance(value, int) or value < 1:
        raise UserError(
            f"{type(video_processor).__name__} has {name}={value!r}, where frame rules need a "
            "whole number above 0; see the checkpoint's video_preprocessor_config.json "
            "(preprocessor_config.json in older ones)"
        )
    return value


def load_rules(model_path: str, *, trust_remote_code: bool = False) -> FamilyRules:
    """The rules of the checkpoint at `model_path` (folder or hub id); reads no weights.

    The files of a folder are asked first: the video processors of transformers know no more, save
    defaults for what a file leaves out, and take several seconds to import.
    """
    stated = None if trust_remote_code else _stated_rules(Path(model_path))
    if stated is not None:
        return stated
    from transformers import AutoConfig, AutoVideoProcessor

    config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    processor = AutoVideoProcessor.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    return rules_of(processor, config.model_type)


def _stated_rules(folder: Path) -> FamilyRules | None:
    """The rules that a checkpoint's files state in full, else None."""
    try:
        model_type = _json_object(folder / "config.json").get("model_type", "")
        return rules_of(SimpleNamespace(**_video_settings(folder)), model_type)
    except (OSError, ValueError, UserError):  # transformers says what is wrong, if anything is
        return None


def _video_settings(folder: Path) -> dict[str, Any]:
    """Settings of the video processor, in the order in which transformers looks for them."""
    nested = folder / "processor_config.json"
    if nested.is_file() and "video_processor" in (settings := _json_object(nested)):
        return settings["video_processor"]
    own = folder / "video_preprocessor_config.json"
    return _json_object(own if own.is_file() else folder / "preprocessor_config.json")


def _json_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no JSON object")
    return value
