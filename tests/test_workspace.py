"""Rules of the workspace that no single package can hold up alone."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from easyvideor1.schema.conf import compose
from tools.config_reference import COMMANDS, PAGE, render, root_class

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("schema", "preprocess", "rewards", "evaluate", "train")
HEAVY = ("torch", "vllm", "ray", "transformers")

OWNERS = {
    "evr-preprocess": "easyvideor1.preprocess.cli",
    "evr-train": "easyvideor1.train.cli",
    "evr-evaluate": "easyvideor1.evaluate.cli",
    "evr-score": "easyvideor1.rewards.cli",
}


def source_dir(package: str) -> Path:
    return ROOT / "packages" / package / "src" / "easyvideor1" / package


# --- layout -------------------------------------------------------------------------------------


def test_no_package_claims_the_shared_namespace() -> None:
    """An `easyvideor1/__init__.py` in one package would hide all the others."""
    assert not list(ROOT.glob("packages/*/src/easyvideor1/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_one_typed_portion_of_the_namespace(package: str) -> None:
    assert (source_dir(package) / "__init__.py").exists()
    assert (source_dir(package) / "py.typed").exists()
    portions = [path.name for path in source_dir(package).parent.iterdir() if path.is_dir()]
    assert portions == [package]


# --- imports ------------------------------------------------------------------------------------


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("package", ["schema", "rewards"])
def test_every_module_of_a_light_package_imports_without_heavy_ones(package: str) -> None:
    modules = [
        ".".join(path.relative_to(source_dir(package).parent.parent).with_suffix("").parts)
        for path in source_dir(package).rglob("*.py")
    ]
    names = [module.removesuffix(".__init__") for module in modules]
    done = run_python(
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])",
        *names,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


# Import names that differ from the name of the distribution.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "hydra": "hydra-core",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
    "text_to_num": "text2num",
}
# What comes with a declared one and cannot be had apart from it.
BROUGHT_BY = {"omegaconf": "hydra-core"}


def third_party_imports(package: str) -> dict[str, str]:
    """Top-level module that is imported anywhere in the package to one file that does it."""
    found: dict[str, str] = {}
    for path in source_dir(package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if top == "easyvideor1":
                    top = "-".join(name.split(".")[:2])
                if top not in sys.stdlib_module_names and top != f"easyvideor1-{package}":
                    found[top] = str(path.relative_to(ROOT))
    return found


def declared(package: str) -> set[str]:
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    names = {str(canonicalize_name(Requirement(line).name)) for lines in lists for line in lines}
    if "easyvideor1-evaluate" in names:
        names.add("vllm")  # the extras that bring vLLM live on that one package
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_it_declares(package: str) -> None:
    allowed = declared(package)
    undeclared = {}
    for module, path in third_party_imports(package).items():
        name = canonicalize_name(DISTRIBUTIONS.get(module, module))
        if name not in allowed and BROUGHT_BY.get(name) not in allowed:
            undeclared[module] = path
    assert not undeclared


# --- commands -----------------------------------------------------------------------------------

ANSWER = """\
import atexit, sys
atexit.register(lambda: print("HEAVY", [n for n in {heavy} if n in sys.modules], file=sys.stderr))
sys.argv = [{command!r}, *sys.argv[1:]]
from {module} import main
main()
"""


def answer(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command says, with the heavy modules it imported on the last line of its errors."""
    code = ANSWER.format(heavy=HEAVY, command=command, module=OWNERS[command])
    return run_python(code, *arguments)


@pytest.mark.parametrize("command", OWNERS)
def test_help_answers_without_importing_anything_heavy(command: str) -> None:
    done = answer(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(command)
    assert done.stderr.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize("command", OWNERS)
def test_a_mistyped_key_is_named_without_importing_anything_heavy(command: str) -> None:
    done = answer(command, "no_such_key=1")
    assert done.returncode == 2
    message, heavy = done.stderr.strip().splitlines()
    assert "no_such_key" in message
    assert heavy == "HEAVY []"


@pytest.mark.parametrize("command", OWNERS)
def test_the_command_is_installed_beside_the_interpreter(command: str) -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name=command)
    assert entry.value == f"{OWNERS[command]}:main"
    assert os.access(Path(sys.executable).parent / command, os.X_OK)


# --- configuration ------------------------------------------------------------------------------

EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


# What a command cannot do without and has no default for.
REQUIRED = {"score": ["input=answers.jsonl"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_primary_config_of_a_command_composes(command: str) -> None:
    expected = root_class(command)
    assert isinstance(compose(command, REQUIRED.get(command, []), expected), expected)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_composes_against_the_class_of_its_command(experiment: str) -> None:
    command = "evaluate" if experiment.startswith("eval") else "train"
    expected = root_class(command)
    assert isinstance(compose(command, [f"experiment={experiment}"], expected), expected)


# --- documents ----------------------------------------------------------------------------------


def test_the_configuration_reference_is_current() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


def tracked_text_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.suffix in {".md", ".py", ".yaml", ".toml", ""}]


def test_every_relative_link_in_the_documents_leads_somewhere() -> None:
    broken = []
    for page in (path for path in tracked_text_files() if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
