"""Handles of shared GPU memory as plain numbers, strings and bytes.

torch describes shared memory with Python types among the numbers. vLLM passes those to its engine's
process only by pickle, and only where pickle was allowed; plain values pass without.
"""

from typing import Any

import torch

_SIZE, _STRIDE, _DTYPE = 1, 2, 5
"""Places in what `torch.multiprocessing.reductions.reduce_tensor` gives for a CUDA tensor."""
_TYPES = {0: torch.Tensor, 4: torch.storage.TypedStorage}
"""Places that hold a type, which is always this one for a plain tensor."""


def plain_handle(arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments of torch's `rebuild_cuda_tensor` without types.

    Raises:
        TypeError: for a tensor of another class, whose type would be lost.
    """
    for place, expected in _TYPES.items():
        if arguments[place] is not expected:
            raise TypeError(f"a weight is shared as {arguments[place]}, expected {expected}")
    plain = list(arguments)
    for place in _TYPES:
        plain[place] = None
    plain[_SIZE], plain[_STRIDE] = list(arguments[_SIZE]), list(arguments[_STRIDE])
    plain[_DTYPE] = str(arguments[_DTYPE]).removeprefix("torch.")
    return plain


def torch_handle(plain: list[Any]) -> tuple[Any, ...]:
    """What `plain_handle` was given."""
    arguments = list(plain)
    for place, its_type in _TYPES.items():
        arguments[place] = its_type
    arguments[_SIZE], arguments[_STRIDE] = torch.Size(plain[_SIZE]), tuple(plain[_STRIDE])
    arguments[_DTYPE] = getattr(torch, plain[_DTYPE])
    return tuple(arguments)
