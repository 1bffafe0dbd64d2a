"""An engine per family, one at a time."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.live_engine import LiveEngine
from tests.seams.cases import FAMILIES


@pytest.fixture(scope="session", params=FAMILIES)
def family_engine(
    request: pytest.FixtureRequest, sharp_models: Callable[[str], Path]
) -> Generator[LiveEngine]:
    """A running engine of each family in turn."""
    live = LiveEngine(str(sharp_models(request.param)))
    yield live
    live.stop()


@pytest.fixture
def seam_engine(family_engine: LiveEngine) -> Generator[LiveEngine]:
    """The same with the checkpoint's weights, which a test may replace."""
    yield family_engine
    family_engine.restore_weights()
