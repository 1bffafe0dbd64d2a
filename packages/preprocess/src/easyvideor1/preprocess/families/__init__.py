"""Model families: what each one is asked, and what its engine and its learner are fed.

`load_family` picks the adapter by the `model_type` in a checkpoint's config.json. A further family
is one module and its row in `_ADAPTERS`. Importing this package imports neither torch nor
transformers, so that `check_family` can refuse a wrong path at once.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.config import ModelConfig
from easyvideor1.preprocess.families.base import FamilyAdapter, PromptInputs
from easyvideor1.preprocess.families.checks import ModelInputError
from easyvideor1.schema.errors import UserError

__all__ = [
    "FamilyAdapter",
    "ModelInputError",
    "PromptInputs",
    "check_family",
    "family_of",
    "load_family",
]

_ADAPTERS = {
    "qwen2_vl": ("easyvideor1.preprocess.families.qwen2_vl", "Qwen2VLFamily"),
    "qwen2_5_vl": ("easyvideor1.preprocess.families.qwen2_5_vl", "Qwen25VLFamily"),
    "qwen3_vl": ("easyvideor1.preprocess.families.qwen3_vl", "Qwen3VLFamily"),
    "qwen3_5": ("easyvideor1.preprocess.families.qwen3_5", "Qwen35Family"),
}
"""By `model_type`: module and class."""


def check_family(model_path: str) -> None:
    """Refuse a local folder that is no checkpoint of a known family; reads config.json alone.

    A hub id passes: what it is shows when it is loaded.

    Raises:
        UserError: naming the path and what is wrong with it.
    """
    folder = Path(model_path).expanduser()
    if not folder.exists():
        return
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise UserError(f"model.path={model_path} has no config.json; give a Hugging Face folder")
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{config_path} is not JSON ({error}); restore the checkpoint") from error
    _adapter_of(config.get("model_type"), model_path)


def load_family(
    model_path: str,
    *,
    trust_remote_code: bool = False,
    template: Mapping[str, Any] | None = None,
) -> FamilyAdapter:
    """The adapter for the checkpoint at `model_path`, a folder or a hub id.

    Args:
        model_path: of the checkpoint.
        trust_remote_code: run code that comes with it.
        template: arguments of its chat template.

    Raises:
        UserError: if it is no checkpoint or of a family without an adapter.
    """
    check_family(model_path)
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise UserError(f"model.path={model_path} cannot be loaded: {error}") from error
    module, name = _adapter_of(config.model_type, model_path)
    adapter: type[FamilyAdapter] = getattr(import_module(module), name)
    return adapter(model_path, config, trust_remote_code, template)


def family_of(model: ModelConfig) -> FamilyAdapter:
    """The adapter that a command's `model` group asks for; raises as `load_family`."""
    return load_family(
        model.path, trust_remote_code=model.trust_remote_code, template=model.template
    )


def _adapter_of(model_type: str | None, model_path: str) -> tuple[str, str]:
    if model_type and model_type.endswith("_moe"):
        dense = ", ".join(sorted(_ADAPTERS))
        raise UserError(
            f"model.path={model_path} is of model_type {model_type!r}, a mixture of experts, which "
            f"is not built; use a dense checkpoint of {dense}"
        )
    if model_type not in _ADAPTERS:
        known = ", ".join(sorted(_ADAPTERS))
        raise UserError(
            f"model.path={model_path} is of model_type {model_type!r}, which has no adapter; "
            f"known: {known}"
        )
    return _ADAPTERS[model_type]
