"""Another processor, imitated: `HOOKLAB_ELSEWHERE=1 pytest lessons solutions`; 2, 3 and so on are others.

With other vector units a sum comes out differently in its last bits, and a training makes a third digit of them. What a
page prints and asserts must not depend on it. So here the first weights differ by about a millionth, which is some ten
last bits. Forked kernels look at the variable, so this is for Linux.
"""

import os

import torch

ELSEWHERE = "HOOKLAB_ELSEWHERE"
DRAWN = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "xavier_normal_",
)
BY = 1e-6


def imitate(number: int) -> None:
    """Make what torch.nn.init draws differ a little from now on, by the same for the same number and weights.

    Args:
        number: which processor.
    """
    for name in DRAWN:
        setattr(torch.nn.init, name, _a_little_off(getattr(torch.nn.init, name), number))


def _a_little_off(draw, number: int):
    def drawn(tensor: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        draw(tensor, *args, **kwargs)
        generator = torch.Generator().manual_seed(number)  # and not the page's, whose numbers stay as they are
        with torch.no_grad():
            return tensor.mul_(1 + BY * torch.randn(tensor.shape, generator=generator))

    return drawn


if os.environ.get(ELSEWHERE):
    imitate(int(os.environ[ELSEWHERE]))
