"""The patch embedding of a vision tower as the matrix product that it is.

A convolution whose windows neither overlap nor leave gaps multiplies every window with one matrix.
Some versions of torch and cuDNN run it as a general three-dimensional convolution, 10 to 20 times
slower. Called by `sharding.load_model`.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class PatchProjection(nn.Module):
    """Computes what an `nn.Conv3d` with stride = kernel computes, under the same parameter names.

    The weight keeps the convolution's five axes [D, C, t, h, w], so that state dicts, checkpoints
    and published weights are those of the original model.
    """

    def __init__(self, convolution: nn.Conv3d):
        super().__init__()
        self.kernel_size = convolution.kernel_size
        self.weight = convolution.weight
        self.bias = convolution.bias

    def forward(self, pixels: Tensor) -> Tensor:
        """[N, C, T, H, W] to [N, D, T/t, H/h, W/w]; an incomplete last window is left out."""
        windows = pixels
        for axis, size in enumerate(self.kernel_size, start=2):
            windows = windows.unfold(axis, size, size)
        # [N, C, …places, …kernel] to [N, …places, C·t·h·w], the order of the flattened weight.
        flat = windows.permute(0, 2, 3, 4, 1, 5, 6, 7).flatten(4)
        return F.linear(flat, self.weight.flatten(1), self.bias).permute(0, 4, 1, 2, 3)


def replace_patch_convolutions(tower: nn.Module) -> None:
    """Put a `PatchProjection` in the place of each convolution in `tower` that is one."""
    for name, module in list(tower.named_modules()):
        if isinstance(module, nn.Conv3d) and _is_patchwise(module):
            tower.set_submodule(name, PatchProjection(module))


def _is_patchwise(convolution: nn.Conv3d) -> bool:
    return (
        convolution.stride == convolution.kernel_size
        and convolution.padding in ((0, 0, 0), "valid")
        and convolution.dilation == (1, 1, 1)
        and convolution.groups == 1
    )
