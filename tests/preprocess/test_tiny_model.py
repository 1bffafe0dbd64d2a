"""The tiny random models are ordinary Hugging Face folders."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from easyvideor1.preprocess.config import ModelConfig, TinyModelConfig
from easyvideor1.preprocess.families import tiny
from easyvideor1.schema.errors import UserError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny.build(TinyModelConfig(), path)
    return path


def test_plain_transformers_load_one_to_two_million_parameters(path: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(path)
    assert model.config.model_type == "qwen3_vl"
    assert 1e6 < sum(parameter.numel() for parameter in model.parameters()) < 2e6


def test_the_seed_alone_decides_the_weights(path: Path, tmp_path: Path) -> None:
    def weights(folder: Path) -> torch.Tensor:
        model = AutoModelForImageTextToText.from_pretrained(folder)
        return torch.cat([parameter.flatten() for parameter in model.parameters()])

    tiny.build(TinyModelConfig(), tmp_path / "same")
    tiny.build(TinyModelConfig(seed=1), tmp_path / "other")
    assert torch.equal(weights(path), weights(tmp_path / "same"))
    assert not torch.equal(weights(path), weights(tmp_path / "other"))


def test_any_text_survives_its_tokenizer(path: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(path).tokenizer
    for text in ("Which colour are the squares?", "<answer>42</answer>", "naïve 漢字 🙂\n\ttab"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
    assert len(tokenizer.encode(" squares", add_special_tokens=False)) == 1


def test_building_happens_once(path: Path) -> None:
    before = (path / "model.safetensors").stat().st_mtime_ns
    config = ModelConfig(path=str(path), build=TinyModelConfig())
    assert tiny.ensure_model(config) == str(path)
    assert (path / "model.safetensors").stat().st_mtime_ns == before


def test_a_model_built_under_other_settings_is_refused(path: Path) -> None:
    with pytest.raises(UserError, match=r"built with \{'seed': 0\}.*\{'seed': 7\}"):
        tiny.ensure_model(ModelConfig(path=str(path), build=TinyModelConfig(seed=7)))


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; give a folder or a hub id"):
        tiny.ensure_model(ModelConfig(path=str(tmp_path / "nowhere")))


def test_an_unknown_family_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tiny model of family 'gpt2'; known: qwen2_5_vl, "):
        tiny.build(TinyModelConfig(family="gpt2"), tmp_path / "x")


def test_a_checkpoint_at_the_path_is_taken_whatever_would_be_built(tmp_path):
    checkpoint = tmp_path / "export"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "qwen3_vl"}')
    config = ModelConfig(path=str(checkpoint), build=TinyModelConfig())
    assert tiny.ensure_model(config) == str(checkpoint)
    assert [file.name for file in checkpoint.iterdir()] == ["config.json"]
