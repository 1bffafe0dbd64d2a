"""One sharp tiny model and one engine per family, one engine at a time."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.live_engine import LiveEngine
from tests.seams.cases import FAMILIES, build_sharp_model


@pytest.fixture(scope="session")
def sharp_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by family."""
    root = tmp_path_factory.mktemp("sharp")
    for family in FAMILIES:
        build_sharp_model(family, root / family)
    return {family: root / family for family in FAMILIES}


@pytest.fixture(scope="session", params=FAMILIES)
def family_engine(
    request: pytest.FixtureRequest, sharp_models: dict[str, Path]
) -> Generator[LiveEngine]:
    """A running engine of each family in turn."""
    live = LiveEngine(str(sharp_models[request.param]))
    yield live
    live.stop()


@pytest.fixture
def seam_engine(family_engine: LiveEngine) -> Generator[LiveEngine]:
    """The same with the checkpoint's weights, which a test may replace."""
    yield family_engine
    family_engine.restore_weights()
