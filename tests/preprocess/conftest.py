"""Fixtures of the decode and cache tests."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from easyvideor1.preprocess.config import CacheConfig, DecodeConfig, Decoder, RayConfig
from easyvideor1.preprocess.decoders import torchcodec_problem
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.rules import FamilyRules


@pytest.fixture(scope="session")
def rules() -> FamilyRules:
    return FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)


@pytest.fixture(scope="session")
def torchcodec() -> None:
    """Skip without FFmpeg's libraries; fail where `EVR_REQUIRE_TORCHCODEC` demands them."""
    if problem := torchcodec_problem():
        if os.environ.get("EVR_REQUIRE_TORCHCODEC"):
            pytest.fail(f"torchcodec is required and does not load: {problem}")
        pytest.skip(f"torchcodec does not load: {problem}")


@pytest.fixture(params=["torchcodec", "pyav"])
def decode_config(request: pytest.FixtureRequest) -> DecodeConfig:
    if request.param == "torchcodec":
        request.getfixturevalue("torchcodec")
    return DecodeConfig(decoder=Decoder(request.param))


@pytest.fixture
def cache_config(tmp_path: Path) -> CacheConfig:
    return CacheConfig(dir=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def our_ray() -> Generator[None]:
    """One Ray for a whole file; the engine uses it because it is there."""
    with ray_session(RayConfig(), num_cpus=2):
        yield
