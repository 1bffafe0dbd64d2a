"""One way to start a command: compose with Hydra, turn into a dataclass, call the job.

A config mistake or a `UserError` ends as one paragraph on stderr and exit status 2. Nothing heavy
is imported here; a command's `run` imports torch, vLLM and Ray after its inputs are checked.
"""

import difflib
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from easyvideor1.schema import environment
from easyvideor1.schema.conf import conf_dir, to_dataclass
from easyvideor1.schema.errors import UserError

T = TypeVar("T")


def run_command(name: str, root: type[T], run: Callable[[T], Any]) -> Any:
    """Run the Hydra command `evr-<name>`, whose primary config is `conf/<name>.yaml`.

    Args:
        name: of the command and of its primary config.
        root: dataclass that types the composed config.
        run: the job; gets the dataclass. Its return value is what a sweeper optimises.
    """
    environment.prepare()
    # Hydra would print its own shortened traceback and exit; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    started = False
    try:
        import hydra

        @hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=name)
        def main(config: Any) -> Any:
            nonlocal started
            # Caught here as well: Hydra announces every exception that leaves a job.
            try:
                _refuse_unknown_keys(config, root)
                typed = to_dataclass(config, root)
                started = True
                return run(typed)
            except UserError as error:
                _leave(name, str(error))

        return main()
    except UserError as error:
        _leave(name, str(error))
    except Exception as error:
        if started:
            raise
        _leave(name, _config_mistake(error, root))


def _refuse_unknown_keys(config: Any, root: type) -> None:
    """`+key=value` adds a key that no dataclass has; it would be dropped in silence."""
    known = set(known_keys(root))

    def walk(node: Any, prefix: str) -> None:
        for key in node:
            dotted = f"{prefix}{key}"
            if dotted not in known:
                suggestion = _suggestion(f"full_key: {dotted}", root)
                raise UserError(f"unknown key '{dotted}' in the config.{suggestion}")
            child = node._get_node(key)
            if OmegaConf.is_dict(child) and not child._is_none() and _is_structured(child):
                walk(child, f"{dotted}.")

    from omegaconf import OmegaConf

    walk(config, "")


def _is_structured(node: Any) -> bool:
    from omegaconf import OmegaConf

    return OmegaConf.get_type(node) is not dict


def _leave(name: str, text: str) -> NoReturn:
    paragraph = " ".join(text.split())
    print(f"evr-{name}: {paragraph}", file=sys.stderr)
    raise SystemExit(2)


def _config_mistake(error: BaseException, root: type) -> str:
    """One paragraph for whatever went wrong while the config was composed."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in chain:
        if isinstance(link, UserError):
            return str(link)
    text, detail = _shorten(chain[0]), _shorten(chain[-1])
    if detail not in text:
        text = f"{text} ({detail})"
    return text + _suggestion(f"{text} {detail}", root)


def _shorten(error: BaseException) -> str:
    """Hydra's message without its search path and its advice to add the unknown key anyway."""
    text = " ".join(str(error).split())
    text = re.sub(r"Config search path:.*", "", text)
    return re.sub(r"To append to your config use \S+", "", text).strip()


def _suggestion(text: str, root: type) -> str:
    """` Did you mean …?` when the message names an unknown key that resembles a known one."""
    match = re.search(r"full_key: ([\w.]+)", text) or re.search(r"[Kk]ey '([\w.]+)'", text)
    if not match:
        return ""
    known = known_keys(root)
    wanted = match.group(1)
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    if not close:
        leaf = wanted.rpartition(".")[2]
        close = [key for key in known if key.rpartition(".")[2] == leaf][:3]
    if not close:
        return f" See evr-… --cfg job for the {len(known)} known keys."
    return f" Did you mean {' or '.join(close)}?"


def known_keys(root: type, prefix: str = "") -> list[str]:
    """Dotted names of all leaves and groups of a config dataclass, e.g. `rollout.group_size`."""
    import dataclasses
    import typing

    hints = typing.get_type_hints(root)
    keys: list[str] = []
    for field in dataclasses.fields(root):
        keys.append(prefix + field.name)
        for part in (hints[field.name], *typing.get_args(hints[field.name])):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                keys += known_keys(part, f"{prefix}{field.name}.")
    return keys
