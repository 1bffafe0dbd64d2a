"""A request that vLLM breaks off is a failure, not an empty answer."""

import pytest

from easyvideor1.evaluate.engine_request import RequestFailedError
from tests.clips import sample_about, video
from tests.live_engine import LiveEngine


def test_a_medium_that_only_one_side_has_cached_fails_the_request(engine: LiveEngine) -> None:
    clips = [video(4, seed=71)]
    prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer.")
    # Processed here and never sent, so that the next request carries the clip's name alone.
    engine.run(engine.engine._render(engine.request(prompt, clips)))
    with pytest.raises(RequestFailedError, match=r"broken off \(error\)|cache"):
        engine.generate(prompt, clips, n=4, max_new_tokens=4)
    again = engine.generate(prompt, clips, n=4, max_new_tokens=4)
    assert all(completion.token_ids for completion in again.completions)
