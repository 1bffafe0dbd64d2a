"""Penalties that are added to a reward: for answers that are too long or repeat themselves.

Each is a part of the score of its own, 0 or negative, and reads the model's whole text, thoughts
included. All are off by default. Called by `scoring`.
"""

import re
import unicodedata

from easyvideor1.rewards.config import OverlongConfig, RepetitionConfig, RewardConfig
from easyvideor1.schema.errors import UserError

_TOKEN = re.compile(
    # Han and kana are written without spaces: by character.
    r"[\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|[^\s\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


def penalties(text: str, num_tokens: int | None, config: RewardConfig) -> dict[str, float]:
    """The penalties that are on, by name, 0 or negative.

    Args:
        text: all that the model wrote.
        num_tokens: length of that, in tokens of the model.
        config: of the rewards.

    Raises:
        UserError: the overlong penalty is on and the number of tokens is not known.
    """
    found: dict[str, float] = {}
    if config.overlong.max_tokens is not None:
        found["overlong"] = overlong(require_num_tokens(num_tokens), config.overlong)
    if config.repetition.weight > 0:
        found["repetition"] = repetition(text, config.repetition)
    return found


def require_num_tokens(num_tokens: int | None) -> int:
    """The number of tokens, which the overlong penalty needs.

    Raises:
        UserError: it is None.
    """
    if num_tokens is None:
        raise UserError(
            "reward.overlong.max_tokens is set, but the answers come without their number of "
            "tokens; pass num_tokens, or set reward.overlong.max_tokens=null"
        )
    return num_tokens


def overlong(num_tokens: int, config: OverlongConfig) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13) times the weight.

    With L = `max_tokens` and C = `buffer`: 0 up to L - C, (L - C - n) / C up to L, then -1.
    """
    assert config.max_tokens is not None
    over = num_tokens - (config.max_tokens - config.buffer)
    return -config.weight * min(1.0, max(0.0, over / config.buffer))


def repetition(text: str, config: RepetitionConfig) -> float:
    """Minus the share of n-grams that occurred before in the text, times the weight.

    share = 1 - (different n-grams) / (n-grams), as Open-R1's `get_repetition_penalty_reward` has it
    after arXiv 2502.03373, appendix C.2. Words are what stands between white space, in lower case;
    a text of fewer than n words has no n-gram.
    """
    words = _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())
    ngrams = list(zip(*(words[start:] for start in range(config.ngram)), strict=False))
    if not ngrams:
        return 0.0
    return -config.weight * (1 - len(set(ngrams)) / len(ngrams))
