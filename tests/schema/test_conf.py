from pathlib import Path

import pytest

from easyvideor1.schema.conf import conf_dir, outputs_dir, resolve_output
from easyvideor1.schema.errors import UserError

REPOSITORY = Path(__file__).resolve().parents[2]


def checkout(folder: Path) -> Path:
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "packages" / "schema").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EVR_CONF_DIR", raising=False)
    monkeypatch.delenv("EVR_OUTPUTS", raising=False)


def test_conf_lies_above_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = checkout(tmp_path / "clone")
    monkeypatch.chdir(root / "packages" / "schema")
    assert conf_dir() == root / "conf"
    assert outputs_dir() == root / "outputs"


def test_elsewhere_conf_is_that_of_the_installed_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert conf_dir() == REPOSITORY / "conf"


def test_the_environment_names_another_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVR_CONF_DIR", str(tmp_path))
    assert conf_dir() == tmp_path
    monkeypatch.setenv("EVR_CONF_DIR", str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"EVR_CONF_DIR=.*gone is not a folder"):
        conf_dir()


def test_outputs_are_anchored_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = checkout(tmp_path / "clone")
    monkeypatch.chdir(root / "packages")
    assert resolve_output("outputs/cache") == root / "outputs" / "cache"
    assert resolve_output("outputs") == root / "outputs"
    assert resolve_output("elsewhere/cache") == root / "packages" / "elsewhere" / "cache"
    assert resolve_output("/data/cache") == Path("/data/cache")
    assert resolve_output("~/cache") == Path.home() / "cache"


def test_outputs_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path / "big-disk"))
    assert resolve_output("outputs/cache") == tmp_path / "big-disk" / "cache"
    assert resolve_output("outputs") == tmp_path / "big-disk"
