"""Tiny random models, written as ordinary Hugging Face folders.

They let every command run on a laptop without a download: one to two million parameters, the
family's real architecture (`tiny_models`), a small tokenizer of their own. Everything after `build`
loads them exactly as it loads a published checkpoint.
"""

from pathlib import Path

from easyvideor1.preprocess.built import BUILD_FILE, build_folder, differing_settings
from easyvideor1.preprocess.config import ModelConfig, TinyModelConfig
from easyvideor1.preprocess.families.tiny_models import BLUEPRINTS, write_model
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError


def ensure_model(config: ModelConfig) -> str:
    """The path or hub id to load, after building the tiny model if the config asks for one.

    Raises:
        UserError: for a path that looks local and does not exist.
    """
    if config.build is not None:
        path = resolve_output(config.path)
        if not (path / "config.json").is_file():
            build(config.build, path)
        _refuse_other_build(config.build, path)
        return str(path)
    path = Path(config.path).expanduser()
    if path.exists():
        if not (path / "config.json").is_file():
            raise UserError(f"model.path={path} has no config.json; give a Hugging Face folder")
        return str(path)
    anchored = resolve_output(config.path)
    if (anchored / "config.json").is_file():
        return str(anchored)
    looks_local = config.path.startswith((".", "/", "~", "outputs/")) or config.path.count("/") != 1
    if looks_local:
        raise UserError(f"model.path={config.path} does not exist; give a folder or a hub id")
    return config.path


def _refuse_other_build(config: TinyModelConfig, path: Path) -> None:
    """A model built under other settings must not pass for the one asked for.

    One that was not built at all, e.g. a checkpoint of a run, was chosen by its path.
    """
    if not (path / BUILD_FILE).is_file():
        return
    if differing := differing_settings(path, config):
        raise UserError(
            f"model.path={path} was built with "
            f"{ {key: was for key, (was, _) in differing.items()} }, "
            f"the config asks for { {key: now for key, (_, now) in differing.items()} }; "
            "set another model.path or delete it"
        )


def build(config: TinyModelConfig, path: Path) -> None:
    """Write a randomly initialised model, processor and tokenizer to `path`, all or nothing.

    Raises:
        UserError: for a family without a tiny builder; the text lists the known.
    """
    if config.family not in BLUEPRINTS:
        known = ", ".join(sorted(BLUEPRINTS))
        raise UserError(f"no tiny model of family {config.family!r}; known: {known}")
    build_folder(path, config, write_model)
