"""Write docs/config.md: every setting of every command, from the dataclasses that define them.

A setting's meaning is the docstring under its field, read from the source; type and default come
from the class, named choices from the folders of `conf/`. `make docs` writes, `--check` compares.
"""

import argparse
import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from easyvideor1.schema.conf import conf_dir

PAGE = Path(__file__).resolve().parent.parent / "docs" / "config.md"

COMMANDS = {
    "preprocess": "easyvideor1.preprocess.config",
    "train": "easyvideor1.train.config",
    "evaluate": "easyvideor1.evaluate.config",
    "score": "easyvideor1.rewards.config",
}
"""Command to the module that registers its schema."""

HEADER = """\
# Configuration reference

<!-- Written by `make docs` from the dataclasses. Edit their docstrings, not this page. -->

A setting is given as `key=value` on the command line; `group=choice` takes a named file of
`conf/<group>/`. `evr-train --cfg job` prints what a command line composes to. An unknown key or a
value of the wrong type ends the command at once and names the key.
"""


# --- reading the classes ------------------------------------------------------------------------


def root_class(command: str) -> type:
    """The dataclass that types `conf/<command>.yaml`."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    importlib.import_module(COMMANDS[command]).register()
    node = ConfigStore.instance().load(f"{command}_schema.yaml").node
    root = OmegaConf.get_type(node)
    assert root is not None
    return root


@functools.cache
def member_docstrings(cls: type) -> dict[str, str]:
    """Name of each field or enum member to the string that stands under it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    found[name] = inspect.cleandoc(str(following.value.value))
    return found


def docstring_of(cls: type, member: str) -> str:
    for owner in cls.__mro__:
        if member in inspect.get_annotations(owner):
            return member_docstrings(owner).get(member, "")
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    key: str
    kind: str
    default: str
    meaning: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One dataclass at one place of a command's config."""

    key: str
    """Dotted place, empty for the top level."""
    cls: type
    settings: list[Setting]

    @property
    def content(self) -> tuple[object, ...]:
        """What two places have in common when one of them need not be told again."""
        prefix = len(self.key)
        return (self.cls, *((one.key[prefix:], one.default) for one in self.settings))


def nested_class(annotation: Any) -> type | None:
    """The dataclass inside `X`, `X | None`, `list[X]` or `dict[str, X]`."""
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            return part
    return None


def place_of(key: str, annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    return f"{key}.<name>" if origin is dict else f"{key}[i]" if origin is list else key


def kind_of(annotation: Any) -> str:
    """The type as a reader says it; an enum is its values."""
    if annotation is type(None):
        return "null"
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind_of(part) for part in arguments)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(kind_of(part) for part in arguments)}]"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " | ".join(member.name for member in annotation)
    if dataclasses.is_dataclass(annotation):
        return "group"
    return getattr(annotation, "__name__", str(annotation))


def default_value(field: dataclasses.Field[Any], instance: object | None) -> Any:
    """The default at this place: a group's may differ from that of its class."""
    if instance is not None:
        return getattr(instance, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def spelled(value: Any) -> str:
    """A default as it is written on a command line."""
    if value is dataclasses.MISSING or value == "???":
        return "required"
    if dataclasses.is_dataclass(value):
        return "see below"
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(spelled(item) for item in value)}]"
    return str(value) if value != "" else '""'


def meaning_of(cls: type, field: dataclasses.Field[Any], annotation: Any) -> str:
    """The field's docstring, then what each value of an enum is."""
    lines = [docstring_of(cls, field.name)]
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and issubclass(part, enum.Enum):
            documented = member_docstrings(part)
            lines += [f"`{name}`: {text}" for name, text in documented.items()]
    return " ".join(line for line in lines if line)


def sections(cls: type, key: str = "", instance: object | None = None) -> Iterator[Section]:
    """This class's settings, then those of the dataclasses in it."""
    hints = typing.get_type_hints(cls)
    settings: list[Setting] = []
    inner: list[tuple[str, type, object | None]] = []
    for field in dataclasses.fields(cls):
        annotation = hints[field.name]
        full_key = f"{key}.{field.name}" if key else field.name
        value = default_value(field, instance)
        nested = nested_class(annotation)
        if nested is not None:
            group = value if isinstance(value, nested) else None
            inner.append((place_of(full_key, annotation), nested, group))
            if typing.get_origin(annotation) is None:
                continue
        settings.append(
            Setting(
                key=full_key,
                kind=kind_of(annotation),
                default=spelled(value),
                meaning=meaning_of(cls, field, annotation),
            )
        )
    yield Section(key=key, cls=cls, settings=settings)
    for place, nested, group in inner:
        yield from sections(nested, place, group)


# --- writing the page ---------------------------------------------------------------------------


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def table(settings: list[Setting]) -> list[str]:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for one in settings:
        rows.append(
            f"| `{one.key}` | {cell(one.kind)} | `{cell(one.default)}` | {cell(one.meaning)} |"
        )
    return rows


def choices(group: str) -> list[str]:
    """Names of the files in `conf/<group>/`."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml")) if group else []


def summary(cls: type) -> str:
    """The class's own docstring; dataclasses without one get a made-up signature instead."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def section_lines(command: str, section: Section, same_as: str | None) -> list[str]:
    lines = [f"### {command}: `{section.key}`", ""] if section.key else []
    if same_as is not None:
        return [*lines, f"The settings of `{same_as}`, under this key.", ""]
    if text := summary(section.cls):
        lines += [text, ""]
    if names := choices(section.key):
        chosen = ", ".join(f"`{section.key}={name}`" for name in names)
        lines += [f"Choices: {chosen}.", ""]
    return [*lines, *table(section.settings), ""] if section.settings else lines


def render() -> str:
    lines = [HEADER]
    told: dict[tuple[str, type], str] = {}  # a group that several commands share is told once
    for command in COMMANDS:
        lines += [f"## evr-{command}", ""]
        shared: list[str] = []
        here: dict[tuple[object, ...], str] = {}
        for section in sections(root_class(command)):
            if section.key and (owner := told.get((section.key, section.cls))):
                if "." not in section.key:
                    shared.append(f"`{section.key}` (as for {owner})")
                continue
            told[section.key, section.cls] = f"evr-{command}"
            same_as = here.setdefault(section.content, section.key)
            lines += section_lines(command, section, same_as if same_as != section.key else None)
        if shared:
            lines += [f"Shared groups: {', '.join(shared)}.", ""]
    if names := choices("experiment"):
        runs = ", ".join(f"`experiment={name}`" for name in names)
        lines += ["## Experiments", "", f"Named runs in `conf/experiment/`: {runs}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    arguments = parser.parse_args()
    page = render()
    if not arguments.check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit("docs/config.md is not what the dataclasses say: run `make docs`")


if __name__ == "__main__":
    main()
