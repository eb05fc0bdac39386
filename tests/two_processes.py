"""A training step with DistributedDataParallel in two processes, each with a capture and a monitor; run by a test.

    python tests/two_processes.py DIRECTORY

writes what each process saw to DIRECTORY/0.pt and 1.pt. The processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import sys

import torch
import torch._dynamo  # DistributedDataParallel wants it: better once than in each process
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooklab import capture, leftover_hooks, monitor


def step(rank: int, directory: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = torch.full((2, 3), float(rank))
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        capture(model, grads=True) as seen,
        capture(model.module, nn.Linear) as inner,
        monitor(model, grads=True, updates=sgd) as health,
    ):
        for _ in range(2):
            model(x).sum().backward()
            sgd.step()
    saw = {
        "names": list(seen),
        "inner names": list(inner),
        "calls": [len(seen.calls(name)) for name in seen],
        "output": seen["module.0"],
        "expected output": model.module[0](x).detach(),
        "grad": seen.grad("module.2"),
        "weight grad": model.module[0].weight.grad,
        "monitored": [(row.step, row.kind, row.module) for row in health.rows],
        "mean": health.series("output", "module.0", "mean")[1][-1],
        "hooks left": len(leftover_hooks(model)),
    }
    torch.save(saw, f"{directory}/{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.multiprocessing.start_processes(step, (sys.argv[1],), nprocs=2, start_method="fork")
