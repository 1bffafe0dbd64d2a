"""What vLLM is told for an engine on one and on several GPUs."""

import pytest

from easyvideor1.evaluate import engine_args
from easyvideor1.evaluate.config import EngineConfig, VisionParallel
from easyvideor1.preprocess.families import load_family
from easyvideor1.schema.errors import UserError


def args_of(path: str, config: EngineConfig):
    return engine_args.engine_args(
        path, config, load_family(path), weight_transfer=None, sleep=False
    )


def test_media_reach_several_gpus_through_one_copy_in_shared_memory(tiny_model_path):
    config = EngineConfig(tensor_parallel_size=2, media_cache_gb=0.01)
    args = args_of(tiny_model_path, config)
    assert args.tensor_parallel_size == 2
    assert args.mm_processor_cache_type == "shm"
    # One medium may fill the cache: vLLM would send a larger one through a pipe to every GPU.
    assert args.mm_shm_cache_max_object_size_mb == 10
    assert args.mm_encoder_tp_mode == "data"
    config.vision_parallel = VisionParallel.weights
    assert args_of(tiny_model_path, config).mm_encoder_tp_mode == "weights"


def test_one_gpu_needs_neither(tiny_model_path):
    args = args_of(tiny_model_path, EngineConfig())
    assert args.mm_processor_cache_type == "lru"
    assert args.mm_encoder_tp_mode == "weights"


def test_a_media_cache_that_shared_memory_cannot_hold_is_refused(tiny_model_path):
    config = EngineConfig(tensor_parallel_size=2, media_cache_gb=1e6)
    with pytest.raises(UserError, match=r"engine.media_cache_gb=1e\+06 needs as much in /dev/shm"):
        args_of(tiny_model_path, config)
    assert args_of(tiny_model_path, EngineConfig(media_cache_gb=1e6)).mm_processor_cache_gb == 1e6


def test_an_encoder_cache_holds_a_token_at_least():
    with pytest.raises(UserError, match="encoder_cache_tokens must be at least 1"):
        EngineConfig(encoder_cache_tokens=0)
