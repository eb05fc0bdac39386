"""In a real kernel: an endless answer is stopped, an interrupt still is one, and the kernel lives on."""

import re

import pytest
from jupyter_client.manager import start_new_kernel

ENDLESS = "def leaves(named):\n    started.append(print('started'))\n    while True:\n        pass\n"


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(kernel, code, interrupt_at=None):
    """Run a cell; interrupt the kernel as soon as this text is printed. Return what it showed, or the error's name."""
    manager, client = kernel
    shown = []

    def see(message):
        content = message["content"]
        shown.append(content.get("text") or content.get("ename") or content.get("data", {}).get("text/plain", ""))
        if interrupt_at and interrupt_at in shown[-1]:
            manager.interrupt_kernel()

    client.execute_interactive(code, timeout=120, output_hook=see)
    return "".join(shown).strip()


def test_an_endless_answer_is_stopped_and_the_kernel_lives_on(kernel):
    run(kernel, "from hooklab import check\nstarted = []\n" + ENDLESS)
    text = run(kernel, 'check("1.1", leaves, seconds=0.4)')
    assert re.search(r"✗ 1.1 not yet: leaves was stopped after \S+ seconds, at line 5: `while True:`", text)
    assert run(kernel, "print(1 + 1)") == "2"


def test_an_interrupt_from_the_menu_interrupts_a_check(kernel):
    run(kernel, "from hooklab import check\nstarted = []\n" + ENDLESS)
    text = run(kernel, 'check("1.1", leaves, seconds=60)', interrupt_at="started")
    assert text.endswith("KeyboardInterrupt")
    assert run(kernel, "print(1 + 1)") == "2"
