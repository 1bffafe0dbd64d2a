"""Where configuration and outputs live, and how a composed config becomes a dataclass.

`conf/` is outside the packages: `$EVR_CONF_DIR`, else above the working directory, else above this
checkout. `outputs/` is beside `conf/`, or `$EVR_OUTPUTS`. Imports Hydra only inside functions.
"""

import os
from pathlib import Path
from typing import Any, TypeVar

from easyvideor1.schema.errors import UserError

T = TypeVar("T")


def conf_dir() -> Path:
    """The folder that holds all YAML, as an absolute path.

    Raises:
        UserError: if there is none, naming the places looked at.
    """
    if configured := os.environ.get("EVR_CONF_DIR"):
        path = Path(configured).expanduser().resolve()
        if not path.is_dir():
            raise UserError(f"EVR_CONF_DIR={configured} is not a folder")
        return path
    here = Path(__file__).resolve()
    for start in (Path.cwd(), *here.parents):
        for folder in (start, *start.parents):
            if (folder / "conf" / "experiment").is_dir() and (folder / "packages").is_dir():
                return folder / "conf"
    raise UserError(
        f"no conf/ above {Path.cwd()} or {here}; run inside a checkout or set EVR_CONF_DIR"
    )


def outputs_dir() -> Path:
    """Where runs, caches and data go: `$EVR_OUTPUTS`, else `outputs/` beside `conf/`."""
    if configured := os.environ.get("EVR_OUTPUTS"):
        return Path(configured).expanduser().resolve()
    return conf_dir().parent / "outputs"


def resolve_output(path: str | Path) -> Path:
    """`path` as absolute: `outputs/…` below `outputs_dir()`, other relative paths below the cwd."""
    path = Path(path).expanduser()
    if path.is_absolute():
        return path
    if path.parts[:1] == ("outputs",):
        return outputs_dir().joinpath(*path.parts[1:])
    return Path.cwd() / path


def register_resolvers() -> None:
    """Let YAML say `${outputs:outputs/dev}` for what `resolve_output` makes of it."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("outputs", lambda path: str(resolve_output(path)), replace=True)


def to_dataclass(config: Any, expected: type[T]) -> T:
    """The typed object behind a composed config; runs every `__post_init__`.

    Raises:
        UserError: for a mandatory value that is missing or a check that fails.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    try:
        value = OmegaConf.to_object(config)
    except MissingMandatoryValue as error:
        raise UserError(f"{str(error).splitlines()[0]}; set it on the command line") from error
    if not isinstance(value, expected):
        raise TypeError(f"composed a {type(value).__name__}, expected {expected.__name__}")
    return value


def compose(config_name: str, overrides: list[str], expected: type[T]) -> T:
    """Compose a command's config in code, as the command line would; also within a command."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    register_resolvers()
    instance = GlobalHydra.instance()
    outer, instance.hydra = instance.hydra, None  # Hydra knows one command at a time
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return to_dataclass(hydra_compose(config_name, overrides), expected)
    finally:
        instance.hydra = outer
