"""One way to start a command: compose with Hydra, turn into a dataclass, call the job.

A config mistake or a `UserError` ends as one paragraph on stderr and exit status 2. Nothing heavy
is imported here; a command's `run` imports torch, vLLM and Ray after its inputs are checked.
"""

import dataclasses
import difflib
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar

from easyvideor1.schema import environment
from easyvideor1.schema.conf import conf_dir, register_resolvers, to_dataclass
from easyvideor1.schema.errors import UserError

T = TypeVar("T")


def run_command(
    name: str, root: type[T], run: Callable[[T], Any], *, advice: Mapping[str, str] | None = None
) -> Any:
    """Run the Hydra command `evr-<name>`, whose primary config is `conf/<name>.yaml`.

    In a sweep (`--multirun`) a job that ends with a `UserError` does not stop the others; the
    command still ends with the first such error.

    Args:
        name: of the command and of its primary config.
        root: dataclass that types the composed config.
        run: the job; gets the dataclass. Its return value is what a sweeper optimises.
        advice: what to add to the message of a config mistake, by a regular expression that is
            found in it; for names that users expect and that are not there.
    """
    environment.prepare()
    # Hydra would print its own shortened traceback and exit; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    in_job = False
    try:
        import hydra

        register_resolvers()

        @hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=name)
        def main(config: Any) -> Any:
            nonlocal in_job
            in_job = True
            try:
                return run(_typed(config, root))
            except UserError as error:
                if _is_sweep():
                    raise
                # Hydra announces every exception that leaves a job; this one needs no more words.
                _leave(name, str(error))

        return main()
    except UserError as error:
        _leave(name, str(error))
    except Exception as error:
        if in_job:
            raise
        text = _config_mistake(error, root)
        more = [words for pattern, words in (advice or {}).items() if re.search(pattern, text)]
        _leave(name, ". ".join([text.rstrip("."), *more]) if more else text)


def _typed(config: Any, root: type[T]) -> T:
    try:
        refuse_unknown_keys(config, root)
        return to_dataclass(config, root)
    except UserError:
        raise
    except Exception as error:
        raise UserError(_config_mistake(error, root)) from error


def _is_sweep() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.get().mode is RunMode.MULTIRUN


def _leave(name: str, text: str) -> NoReturn:
    paragraph = " ".join(text.split())
    print(f"evr-{name}: {paragraph}", file=sys.stderr)
    raise SystemExit(2)


def refuse_unknown_keys(config: Any, root: type) -> None:
    """Refuse keys that no dataclass has, which `+key=value` adds: they would be dropped silently.

    Raises:
        UserError: naming the key and those it resembles.
    """
    from omegaconf import OmegaConf

    def walk(node: Any, path: str) -> None:
        node_type = OmegaConf.get_type(node)
        is_list = OmegaConf.is_list(node)
        for key in range(len(node)) if is_list else list(node):
            here = f"{path}.{key}" if path else str(key)
            if dataclasses.is_dataclass(node_type) and key not in _field_names(node_type):
                raise UserError(_unknown(here, root))
            child = node._get_node(key)
            if OmegaConf.is_config(child) and not (child._is_none() or child._is_missing()):
                walk(child, here)

    walk(config, "")


def _field_names(dataclass_type: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(dataclass_type)}


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
    if detail != "None" and detail not in text:
        text = f"{text} ({detail})"
    if match := re.match(r"Could not override '([\w.]+)'.* not in ", text):
        return _unknown(match.group(1), root)
    if "for root: NoneType" in text or "'NoneType' object has" in text:  # a.b=1 where a is null
        text = "An override sets values within a setting that is null; choose a YAML that has it"
    text = text if text.endswith(".") else f"{text}."
    if match := re.search(r"Key '\w+' not in .*?full_key: ([\w.]+)", text):
        return f"{text} {_suggestion(match.group(1), root)}"
    if match := re.search(r"Error merging override \+*([\w.]+)=", text):
        return f"{text} {_expected_type(match.group(1), root)}"
    given = [argument for argument in sys.argv[1:] if "=" in argument]
    if given and not any(argument in text for argument in given):
        return f"{text} The overrides are: {' '.join(given)}"
    return text


def _shorten(error: BaseException) -> str:
    """Hydra's message without its search path and its advice to add the unknown key anyway."""
    text = " ".join(str(error).split())
    text = re.sub(r"Config search path:.*", "", text)
    return re.sub(r"To append to your config use \S+", "", text).strip()


def _unknown(key: str, root: type) -> str:
    return f"unknown key '{key}' in the config. {_suggestion(key, root)}"


def _suggestion(wanted: str, root: type) -> str:
    """`Did you mean …?` with the known keys that resemble `wanted`, siblings first."""
    known = known_keys(root)
    parent, _, leaf = wanted.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == parent}
    close = [siblings[name] for name in difflib.get_close_matches(leaf, siblings, n=2, cutoff=0.65)]
    # Else the right name in the wrong group, or a misspelt group.
    close = close or [key for key in known if key.rpartition(".")[2] == leaf][:3]
    close = close or difflib.get_close_matches(wanted, known, n=2, cutoff=0.8)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    if siblings:
        return f"Known {f'in {parent}' if parent else 'at the top'}: {', '.join(siblings)}."
    return "The option --cfg job shows all keys."


def _expected_type(key: str, root: type) -> str:
    hint = known_keys(root).get(key)
    if hint is None:
        return "The option --cfg job shows all keys."
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"{key} takes one of {', '.join(hint.__members__)}."
    name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    return f"{key} takes {name}."


def known_keys(root: type, prefix: str = "") -> dict[str, Any]:
    """Type by dotted name of all leaves and groups of a config dataclass.

    Example:
        >>> known_keys(TrainConfig)["rollout.group_size"]
        <class 'int'>
    """
    hints = typing.get_type_hints(root)
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, root)):
        hint = hints[field.name]
        keys[prefix + field.name] = hint
        for part in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                keys |= known_keys(part, f"{prefix}{field.name}.")
    return keys
