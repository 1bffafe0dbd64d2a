"""`evr-train job=export`: a checkpoint of a run, full or weights alone, as a Hugging Face folder.

Which model it is and how its answers were sampled come from the config of the run that wrote the
checkpoint, not from the command line. Needs neither Ray nor a GPU.
"""

from dataclasses import replace
from pathlib import Path

from easyvideor1.preprocess.config import ModelConfig
from easyvideor1.schema.codec import from_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import RolloutConfig, TrainConfig
from easyvideor1.train.run_folder import Checkpoint, RunFolder, read_checkpoint


def run(config: TrainConfig) -> Path:
    """Write the folder that `export.folder` says, and return it.

    Raises:
        UserError: if there is no such checkpoint, its model is not where the run found it, or the
            folder is there already.
    """
    checkpoint = chosen(config)
    run_folder = RunFolder(checkpoint.folder.parent.parent)
    folder = run_folder.path / "exports" / checkpoint.folder.name
    if config.export.folder is not None:
        folder = resolve_output(config.export.folder)
    if folder.exists():
        raise UserError(f"export.folder={folder} is there already; remove it or name another")
    stored = run_folder.stored_config()
    model = from_plain(ModelConfig, stored["model"])
    if config.export.model is not None:
        model = replace(model, path=config.export.model)
    _refuse_absent(model, run_folder)
    rollout = from_plain(RolloutConfig, stored["rollout"])
    _write(checkpoint, folder, model, rollout, with_adapter=config.export.adapter)
    print(f"exported {checkpoint.folder} to {folder}")
    return folder


def chosen(config: TrainConfig) -> Checkpoint:
    """The checkpoint that `export.checkpoint` names.

    Raises:
        UserError: if there is none.
    """
    wanted = config.export.checkpoint
    if wanted not in ("newest", "best"):
        path = resolve_output(wanted)
        if (path / "state.json").is_file():
            return read_checkpoint(path)
        raise UserError(
            f"export.checkpoint={wanted} is no checkpoint; give newest, best or a folder "
            "…/checkpoints/step_000010"
        )
    folder = RunFolder(resolve_output(config.output_dir))
    found = folder.checkpoints()
    if not found:
        raise UserError(
            f"output_dir={folder.path} holds no checkpoint; give the run_name or output_dir of a "
            "run that has one, or export.checkpoint=…/checkpoints/step_000010"
        )
    if wanted == "newest":
        return found[-1]
    rated = [c for c in found if c.position.validation is not None]
    if not rated:
        raise UserError(
            f"export.checkpoint=best: none of the checkpoints in {folder.path} was validated; give "
            "newest or the folder of one"
        )
    return max(rated, key=lambda c: c.position.validation or 0.0)


def _refuse_absent(model: ModelConfig, run_folder: RunFolder) -> None:
    looks_like_a_path = model.path.startswith(("/", ".", "~"))
    if looks_like_a_path and not Path(model.path).expanduser().is_dir():
        raise UserError(
            f"model.path={model.path}, which {run_folder.path} was trained from, is not there; its "
            "config and processor belong into the export: say where it is now with export.model=…"
        )


def _write(
    checkpoint: Checkpoint,
    folder: Path,
    model: ModelConfig,
    rollout: RolloutConfig,
    *,
    with_adapter: bool,
) -> None:
    from easyvideor1.preprocess.families import family_of
    from easyvideor1.train import adapters, export
    from easyvideor1.train.checkpoint import adapters_of, read_weights

    family = family_of(model)
    weights = saved = export.model_weights(read_weights(checkpoint.learner))
    facts = adapters_of(checkpoint.learner)
    if facts is None and with_adapter:
        raise UserError(
            f"export.adapter=true: {checkpoint.folder} holds whole weights and no adapters; leave "
            "it out"
        )
    if facts is not None:
        base = export.base_weights(model.path, trust_remote_code=model.trust_remote_code)
        if adapters.fingerprint(base) != facts.base:
            raise adapters.another_base(checkpoint.folder, model.path)
        weights = adapters.merged_weights(base, weights, facts.scale)
    export.write_folder(
        folder,
        export.unloaded_model(model.path, trust_remote_code=model.trust_remote_code),
        weights,
        family.processor,
        export.stored_dtype(family.config),
        export.sampling_settings(rollout, family.forbidden_token_ids),
    )
    if facts is not None and with_adapter:
        adapters.write_in_peft_format(folder / "adapter", saved, facts, model.path)
