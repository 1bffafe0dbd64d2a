"""Commands as users run them: a small one, started in a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from easyvideor1.schema.cli import known_keys

DEMO = """
import sys
from dataclasses import dataclass, field
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING
from easyvideor1.schema.cli import run_command
from easyvideor1.schema.errors import DataError, UserError

@dataclass(kw_only=True, slots=True)
class Part:
    weight: float = 1.0

@dataclass(kw_only=True, slots=True)
class Rollout:
    group_size: int = 8
    note: str | None = None

    def __post_init__(self):
        if self.group_size < 2:
            raise UserError(f"rollout.group_size must be at least 2, got {self.group_size}")
        if self.note == "odd":
            raise ValueError("rollout.note must not be odd")

@dataclass(kw_only=True, slots=True)
class Config:
    path: str = MISSING
    seed: int = 0
    rollout: Rollout = field(default_factory=Rollout)
    part: Part | None = None
    parts: list[Part] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)

ConfigStore.instance().store(name="demo_schema", node=Config)

def run(config):
    assert not {"torch", "ray", "vllm", "transformers"} & set(sys.modules)
    if config.path == "gone.mp4":
        raise UserError("gone.mp4 does not\\nexist; check data.media_root")
    if config.path == "rows":
        raise DataError("rows.jsonl", 3, "answer", 7, "a letter from A to D")
    if config.path == "bug":
        raise ZeroDivisionError("ours")
    if config.seed == 5:
        raise UserError("seed 5 is unlucky")
    print("ran", config)
    return 0.5

run_command("demo", Config, run, advice={"rollout/huge": "Take rollout=small."})
"""

PRIMARY = """
defaults: [demo_schema, rollout: small, _self_, experiment: null]
hydra: {run: {dir: out}, sweep: {dir: out, subdir: "${hydra.job.num}"}, output_subdir: null}
"""


@pytest.fixture
def demo(tmp_path: Path):
    """Runs the demo command with arguments; gives the finished process."""
    conf = tmp_path / "conf"
    (conf / "experiment").mkdir(parents=True)
    (conf / "rollout").mkdir()
    (conf / "demo.yaml").write_text(PRIMARY)
    (conf / "rollout" / "small.yaml").write_text("group_size: 4\n")
    (conf / "rollout" / "typo.yaml").write_text("group_sise: 4\n")
    (conf / "experiment" / "large.yaml").write_text(
        "# @package _global_\nrollout: {group_size: 16}\n"
    )
    (tmp_path / "demo.py").write_text(DEMO)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "demo.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "EVR_CONF_DIR": str(conf)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_job_gets_its_typed_config(demo):
    done = demo("path=a.mp4", "experiment=large", "+weights.x=2")
    assert done.returncode == 0, done.stderr
    assert "ran Config(path='a.mp4', seed=0, rollout=Rollout(group_size=16" in done.stdout
    assert "weights={'x': 2.0}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "paragraph"),
    [
        (["pth=a"], "unknown key 'pth' in the config. Did you mean path?"),
        (
            ["path=a", "rollout.group_sice=3"],
            "unknown key 'rollout.group_sice' in the config. Did you mean rollout.group_size?",
        ),
        (
            ["path=a", "group_size=3"],
            "unknown key 'group_size' in the config. Did you mean rollout.group_size?",
        ),
        (
            ["path=a", "+colour=red"],
            "unknown key 'colour' in the config. "
            "Known at the top: path, seed, rollout, part, parts, weights.",
        ),
        (
            ["path=a", "+rollout.size=3"],
            "unknown key 'rollout.size' in the config. Did you mean rollout.group_size?",
        ),
        (
            ["path=a", "rollout.group_size=many"],
            "Error merging override rollout.group_size=many (invalid literal for int() with base "
            "10: 'many'). rollout.group_size takes int.",
        ),
        (
            ["path=a", "rollout.group_size=1.5"],
            "Error merging override rollout.group_size=1.5. rollout.group_size takes int.",
        ),
        (
            ["path=a", "rollout=large"],
            "In 'demo': Could not find 'rollout/large' Available options in 'rollout': small typo. "
            "The overrides are: path=a rollout=large",
        ),
        (
            ["path=a", "rollout=huge"],
            "In 'demo': Could not find 'rollout/huge' Available options in 'rollout': small typo. "
            "The overrides are: path=a rollout=huge. Take rollout=small.",
        ),
        (
            ["path=a", "rollout=typo"],
            "In 'rollout/typo': ConfigKeyError raised while composing config: Key 'group_sise' not "
            "in 'Rollout' full_key: rollout.group_sise reference_type=Rollout object_type=Rollout. "
            "Did you mean rollout.group_size?",
        ),
        (
            ["path=a", "part.weight=2"],
            "An override sets values within a setting that is null; choose a YAML that has it. "
            "The overrides are: path=a part.weight=2",
        ),
        (
            [],
            "Structured config of type `Config` has missing mandatory value: path; set it on the "
            "command line",
        ),
        (
            ["path=a", "rollout.group_size=1"],
            "rollout.group_size must be at least 2, got 1",
        ),
        (["path=a", "rollout.note=odd"], "rollout.note must not be odd."),
        (["path=gone.mp4"], "gone.mp4 does not exist; check data.media_root"),
        (["path=rows"], "rows.jsonl:3:answer: got 7, expected a letter from A to D"),
    ],
)
def test_a_mistake_ends_as_one_paragraph_with_status_2(demo, arguments: list[str], paragraph: str):
    done = demo(*arguments)
    assert done.stderr.startswith(f"evr-demo: {paragraph}")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (2, "")


def test_an_error_of_our_own_code_keeps_its_traceback(demo):
    done = demo("path=bug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError: ours" in done.stderr


def test_a_sweep_goes_on_after_a_job_that_fails(demo):
    done = demo("--multirun", "path=a", "seed=5,6")
    assert done.returncode == 2
    assert "ran Config(path='a', seed=6" in done.stdout
    assert done.stderr.splitlines()[-1] == "evr-demo: seed 5 is unlucky"


def test_help_and_the_composed_config_are_printed(demo):
    assert "rollout: small, typo" in demo("--help").stdout
    assert "group_size: 4" in demo("--cfg", "job").stdout


def test_a_command_without_its_conf_folder_says_where_it_looked(tmp_path: Path):
    (tmp_path / "demo.py").write_text(DEMO)
    done = subprocess.run(
        [sys.executable, "demo.py"],
        cwd=tmp_path,
        env={**os.environ, "EVR_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"evr-demo: EVR_CONF_DIR={tmp_path / 'conf'} is not a folder\n"


@dataclass(kw_only=True)
class Inner:
    depth: int = 1


@dataclass(kw_only=True)
class Outer:
    name: str = ""
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    many: dict[str, Inner] = field(default_factory=dict)


def test_known_keys_reach_through_groups_and_optional_groups():
    assert list(known_keys(Outer)) == [
        "name",
        "inner",
        "inner.depth",
        "maybe",
        "maybe.depth",
        "many",
        "many.depth",
    ]
    assert known_keys(Outer)["inner.depth"] is int
