"""Does what is installed work? ``python -m hooklab.course.launcher.checkup``, run by the Python to examine.

It prints one line of JSON: for each question ``[label, works, what was seen]``. The doctor starts it and reads that.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

Answer = tuple[bool, str]


def torch_hook() -> Answer:
    """Whether a hook sees the gradient of a tiny computation."""
    import torch

    seen: list[torch.Tensor] = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.register_hook(seen.append)
    (3 * y).sum().backward()
    works = len(seen) == 1 and seen[0].tolist() == [3.0, 3.0] and x.grad is not None
    device = "with CUDA" if torch.cuda.is_available() else "on the CPU"
    return works, f"runs {device}; a hook saw the gradient" if works else f"a hook saw {seen}, expected [3., 3.]"


def kernel() -> Answer:
    """Whether the kernel that the lessons name starts and can import the course."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd="lessons")
    try:
        reply = client.execute("import hooklab", reply=True, timeout=60)["content"]
        if reply["status"] == "ok":
            return True, "python3 starts, and imports hooklab"
        return False, f"python3 starts, but: {reply['ename']}: {reply['evalue']}"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def figure_font() -> Answer:
    """Whether matplotlib finds the font it draws with."""
    from matplotlib import font_manager

    found = font_manager.findfont("DejaVu Sans", fallback_to_default=False)
    return True, Path(found).name


def chinese_font() -> Answer:
    """Whether some font has the characters of the key terms."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    for font in font_manager.fontManager.ttflist:
        is_placeholder = font.name.startswith("Last Resort")  # draws a box for every character there is
        if not is_placeholder and all(FT2Font(font.fname).get_char_index(ord(sign)) for sign in "钩子"):
            return True, font.name
    return False, "no font has Chinese characters: figures show boxes for them (Noto Sans CJK has them)"


QUESTIONS: dict[str, Callable[[], Answer]] = {
    "torch works": torch_hook,
    "kernel": kernel,
    "figures": figure_font,
    "Chinese font": chinese_font,
}


def examine() -> list[tuple[str, bool, str]]:
    """Ask every question; an exception is an answer too."""
    answers = []
    for label, question in QUESTIONS.items():
        try:
            works, seen = question()
        except Exception as error:  # whatever is wrong with an installation
            first_line = str(error).partition("\n")[0]
            works, seen = False, f"{type(error).__name__}: {first_line}"
        answers.append((label, works, seen))
    return answers


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(examine()) + "\n")
