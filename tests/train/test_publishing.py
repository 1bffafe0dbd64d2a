"""How weights travel: which way is taken, and the learner's side of those between GPUs."""

from dataclasses import replace

import pytest
import torch

from easyvideor1.evaluate import weights
from easyvideor1.evaluate.ipc_handles import plain_handle
from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import (
    LearnerConfig,
    LoraConfig,
    RolloutConfig,
    TrainConfig,
    WeightTransferName,
)
from easyvideor1.train.direct_transfer import (
    DirectSetup,
    fixed_segments,
    trainer_info,
    weight_source,
)
from easyvideor1.train.publishing import chosen_transfer, engine_backend
from tests.train.policy_cases import make_learner

SETUP = DirectSetup(backend="nccl", bucket_bytes=1024**3, workers_per_engine=2)


@pytest.mark.parametrize(
    ("gpu", "colocated", "wanted"),
    [
        (False, False, "shared_memory"),
        (False, True, "shared_memory"),
        (True, True, "ipc"),
        (True, False, "nccl"),
    ],
)
def test_the_way_follows_from_the_machine(table, tmp_path, monkeypatch, gpu, colocated, wanted):
    monkeypatch.setattr(environment, "has_nvidia_gpu", lambda: gpu)
    config = table.config(tmp_path, steps=1)
    config.rollout = RolloutConfig(colocated=colocated)
    assert chosen_transfer(config).value == wanted
    backends = {"shared_memory": weights.BACKEND, "ipc": weights.IPC_BACKEND, "nccl": "nccl"}
    assert engine_backend(config) == backends[wanted]
    config.rollout = RolloutConfig(weight_transfer=WeightTransferName.shared_memory)
    assert chosen_transfer(config) is WeightTransferName.shared_memory


def test_ways_that_cannot_be_are_refused_by_name(table, tmp_path):
    with pytest.raises(UserError, match=r"weight_transfer=ipc needs rollout.colocated=true"):
        RolloutConfig(weight_transfer=WeightTransferName.ipc)
    with pytest.raises(UserError, match=r"weight_transfer=nccl needs rollout.colocated=false"):
        RolloutConfig(weight_transfer=WeightTransferName.nccl, colocated=True)
    config: TrainConfig = table.config(tmp_path, steps=1)
    with pytest.raises(UserError, match=r"as many engines as ranks, got rollout.engines=1"):
        replace(config, rollout=RolloutConfig(colocated=True), learner=LearnerConfig(ranks=2))
    engine = replace(config.rollout.engine, tensor_parallel_size=2)
    with pytest.raises(UserError, match=r"colocated=true needs rollout.engine.tensor_parallel"):
        RolloutConfig(colocated=True, engine=engine)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"freeze": ["vision", "merger"]},
        {"freeze": ["language"]},
        {"lora": LoraConfig(rank=2)},
    ],
)
def test_the_source_tells_and_yields_the_same_weights(sharp_model_path, settings):
    """vLLM cuts the stream by what it was told, so both must agree element for element."""
    learner = make_learner(sharp_model_path, **settings)
    source = weight_source(learner)
    head_is_frozen = "lora" in settings or "language" in settings.get("freeze", [])
    state = dict(learner.gather_weights())
    for everything in (True, False):
        source.everything = everything
        told, sent = source.metadata(), list(source)
        assert [(m.name, m.dtype, m.shape) for m in told] == [
            (name, value.dtype, tuple(value.shape)) for name, value in sent
        ]
        names = {m.name for m in told}
        assert ("lm_head.weight" in names) == (everything or not head_is_frozen)
        assert (names == state.keys()) == (everything or not settings)
        assert all(torch.equal(value, state[name]) for name, value in sent)
    # A second publish goes through them again.
    assert len(list(source)) == len(source.metadata())


def test_the_trainer_tells_vllm_who_takes_part():
    nccl = trainer_info(SETUP, 0, ("10.0.0.1", 4242), num_engines=3)
    assert (nccl.master_address, nccl.master_port, nccl.world_size) == ("10.0.0.1", 4242, 7)
    assert nccl.is_sender and nccl.packed
    assert nccl.packed_buffer_size_bytes * nccl.packed_num_buffers == SETUP.bucket_bytes
    ipc = trainer_info(replace(SETUP, backend="ipc"), 1, ("", 0), num_engines=3)
    assert (ipc.backend, ipc.packed, ipc.is_sender) == ("ipc", True, False)
    assert ipc.packed_buffer_size_bytes == SETUP.bucket_bytes


def test_handles_of_gpu_memory_reach_an_engines_process_without_pickle(monkeypatch):
    """In the form that torch gives them, through vLLM's own encoder to its receiving backend."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferUpdateInfo
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    monkeypatch.delenv("VLLM_ALLOW_INSECURE_SERIALIZATION", raising=False)
    storage = torch.storage.TypedStorage
    handle = (torch.Tensor, torch.Size([64]), (1,), 0, storage, torch.uint8, 0, b"memory", 64, 0)
    handle += (False, b"counter", 3, b"event", True)
    message = {
        "names": ["a"],
        "dtype_names": ["float32"],
        "shapes": [[4, 4]],
        "ipc_handles": {"GPU-1": handle},
        "tensor_sizes": [64],
    }
    with pytest.raises(TypeError, match="VLLM_ALLOW_INSECURE_SERIALIZATION"):
        MsgpackEncoder().encode(message)
    plain = message | {"ipc_handles": {"GPU-1": plain_handle(handle)}}
    arrived = MsgpackDecoder().decode(MsgpackEncoder().encode(plain))
    receiver = object.__new__(weights.SharedGPUEngine)
    assert receiver.parse_update_info(arrived) == IPCWeightTransferUpdateInfo(**message)


def test_segments_stay_as_they_are_where_nobody_asked_for_expandable_ones(monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    with fixed_segments():
        assert torch.ones(2).sum() == 2
