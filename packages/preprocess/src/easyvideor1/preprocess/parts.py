"""The data of an `evr-preprocess` config, each set with the store that reads its clips.

What the jobs that concern data share: `cache`, `plan` and `gc`. Checks everything a user can have
got wrong before torch and transformers are imported.
"""

import dataclasses
from typing import TYPE_CHECKING

from easyvideor1.preprocess.config import CacheMode, PreprocessConfig

if TYPE_CHECKING:
    from easyvideor1.preprocess.engine import Parts


def open_parts(config: PreprocessConfig) -> "Parts":
    """Training and validation samples, every row checked, with their stores.

    `cache.mode` is for those who read the cache: here it is always filled.

    Raises:
        UserError: for a missing file or none; `DataError` for a bad row.
    """
    from easyvideor1.preprocess.data import ensure_data, read_files
    from easyvideor1.preprocess.families.tiny import ensure_model

    data = ensure_data(config.data)
    sets = [
        (read_files(data, files, config.cache), validation)
        for files, validation in ((data.train, False), (data.validation, True))
        if files
    ]
    model_path = ensure_model(config.model)

    from easyvideor1.preprocess.rules import load_rules
    from easyvideor1.preprocess.store import ClipStore

    rules = load_rules(model_path, trust_remote_code=config.model.trust_remote_code)
    cache = dataclasses.replace(config.cache, mode=CacheMode.prefer)
    return [
        (samples, ClipStore(cache, config.budget, rules, config.decode, validation))
        for samples, validation in sets
    ]
