"""Do lesson 9's findings hold for other seeds? ``python -m hooklab experiment seeing`` trains with twenty more.

Each seed trains the three networks of the lesson (about ten seconds) and takes the main numbers that the lesson claims.
CLAIMS has the range that each must be in; the lesson's own asserts, about one seed, may be narrower.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from hooklab.course.experiments import run_all
from hooklab.course.lesson09 import copying, heads, maps, shapes

Numbers = dict[str, float]

# name -> the range in which the number is for every seed
NEVER, ALWAYS = (0.0, 0.4), (0.7, 1.0)
CLAIMS: dict[str, tuple[float, float]] = {
    "tagged: right with own tags": (0.98, 1.0),
    "tagged: right with random tags": (0.25, 0.45),
    "mended: right with random tags": (0.6, 1.0),
    "tagged, Grad-CAM: points at the shape": (0.0, 0.15),
    "tagged, occlusion: points at the tag": ALWAYS,
    "mended, Grad-CAM: points at the shape": (0.8, 1.0),
    "chance, Grad-CAM: points at the shape": (0.0, 0.8),
    "chance, gradient × input: points at the shape": (0.6, 1.0),
    "chance, gradient: points at the shape": (0.1, 1.0),
    "chance, guided backprop: points at the shape": (0.35, 1.0),
    **{f"tagged, {method}: points at the shape": NEVER for method in maps.METHODS if method != "Grad-CAM"},
    **{f"mended, {method}: points at the shape": ALWAYS for method in maps.METHODS if method != "Grad-CAM"},
    "gradient × input: points less often with random weights": (-0.1, 0.35),
    "Grad-CAM: alike for another class": (-1.0, 0.3),
    "occlusion: alike for another class": (-1.0, 0.3),
    "gradient: alike for another class": (0.4, 1.0),
    "gradient × input: alike for another class": (0.4, 1.0),
    "guided backprop: alike for another class": (0.4, 1.0),
    "guided backprop: alike with a random head": (0.5, 1.0),
    "chance, occlusion: points at the shape": (0.25, 1.0),
    "copier: right": (0.98, 1.0),
    "layer 0: attention one back, weaker head": (0.2, 1.0),
    "layer 1: attention one back, stronger head": (0.0, 0.2),
    "layer 0: induction, stronger head": (0.0, 0.2),
    "layer 1: induction, weaker head": (0.4, 1.0),
    "layer 0: right without the head that matters less": (0.85, 1.0),
    "layer 0: right without both": (0.0, 0.35),
    "layer 1: right without the head that matters more": (0.85, 1.0),
    "layer 1: right without both": (0.0, 0.3),
    "lens 0: right": (0.0, 0.3),
    "lens 1: right": (0.0, 0.3),
    "lens 2: right": (0.98, 1.0),
    "patch: right in the clean run": (0.95, 1.0),
    "patch: right in the corrupted run": (0.05, 0.85),
    "patch: after the embedding, position 10": (0.9, 1.0),
    "patch: after layer 0, position 11": (0.9, 1.0),
    "patch: after layer 1, position 22": (0.9, 1.0),
    "patch: anywhere else, at most": (0.0, 0.3),
    "steering towards the token: dose 0": (0.0, 0.05),
    "steering towards the token: dose 2": (0.95, 1.0),
    "steering random: dose 2": (0.0, 0.1),
}


def measure(seed: int, pictures: int = 64) -> Numbers:
    """Train with this seed and return every number that the lesson claims, by name; maps are made of some pictures."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _of_shapes(seed, pictures) | _of_copying(seed)
    finally:
        torch.set_num_threads(threads)


def _of_shapes(seed: int, pictures: int) -> Numbers:
    nets = {
        "tagged": shapes.trained("own", seed),
        "mended": shapes.trained("random", seed),
        "chance": shapes.untrained(seed),
    }
    tests = {tags: shapes.pictures(500, 10_000, tags) for tags in ("own", "random")}
    found: Numbers = {}
    for name, net in nets.items():
        for tags, made in tests.items():
            with torch.no_grad():
                hits = net(made.images).argmax(dim=1) == made.labels
            found[f"{name}: right with {tags} tags"] = hits.float().mean().item()
        some = shapes.Pictures(*(part[:pictures] for part in tests["own"]))
        for method, function in maps.METHODS.items():
            made_maps = function(net, some.images, some.labels)
            found[f"{name}, {method}: points at the shape"] = maps.points_at(made_maps, some.masks)
            found[f"{name}, {method}: points at the tag"] = maps.points_at(made_maps, shapes.tag_masks(pictures))
    usual, chance = (found[f"{net}, gradient × input: points at the shape"] for net in ("mended", "chance"))
    found["gradient × input: points less often with random weights"] = usual - chance
    some = shapes.Pictures(*(part[:pictures] for part in tests["random"]))
    other = (some.labels + 1) % 3
    reset = shapes.trained("random", seed)
    reset.head.load_state_dict(shapes.untrained(seed).head.state_dict())
    for method, function in maps.METHODS.items():
        own = function(nets["mended"], some.images, some.labels)
        found[f"{method}: alike for another class"] = maps.alike(own, function(nets["mended"], some.images, other))
        found[f"{method}: alike with a random head"] = maps.alike(own, function(reset, some.images, some.labels))
    return found


def _of_copying(seed: int) -> Numbers:
    model, made = copying.trained_copier(seed), copying.sequences(300, 10_000)
    fixed = copying.sequences(100, 20_000, period=8)
    back, induction = heads.scores(model, 1, fixed), heads.scores(model, 7, fixed)
    found: Numbers = {"copier: right": copying.accuracy(model, made)}
    for layer in range(2):
        found[f"layer {layer}: attention one back, stronger head"] = back[layer].max().item()
        found[f"layer {layer}: attention one back, weaker head"] = back[layer].min().item()
        found[f"layer {layer}: induction, stronger head"] = induction[layer].max().item()
        found[f"layer {layer}: induction, weaker head"] = induction[layer].min().item()
        alone = [heads.accuracy_without(model, [(layer, head)], made) for head in range(2)]
        found[f"layer {layer}: right without the head that matters more"] = min(alone)
        found[f"layer {layer}: right without the head that matters less"] = max(alone)
        both = [(layer, head) for head in range(2)]
        found[f"layer {layer}: right without both"] = heads.accuracy_without(model, both, made)
    for number, share in enumerate(heads.lens(model, made)):
        found[f"lens {number}: right"] = share
    patching = heads.for_patching()
    for name, tokens in (("clean", patching.inputs), ("corrupted", heads.corrupted(patching, 10))):
        with torch.no_grad():
            hits = model(tokens)[:, -1].argmax(dim=-1) == patching.tokens[:, -1]
        found[f"patch: right in the {name} run"] = hits.float().mean().item()
    back = heads.carried(model, patching, 10)
    for row, (place, column) in enumerate((("the embedding", 10), ("layer 0", 11), ("layer 1", 22))):
        found[f"patch: after {place}, position {column}"] = back[row, column].item()
        back[row, column] = 0.0
    found["patch: anywhere else, at most"] = back.max().item()
    for name, said in heads.steering(model, made, token=3, doses=(0.0, 1.0, 2.0), seed=seed).items():
        for dose, share in zip((0, 1, 2), said.tolist(), strict=True):
            found[f"steering {name}: dose {dose}"] = share
    return found


def main(argv: Sequence[str]) -> int:
    """Run the seeds, print the range of every number, and return 1 if one is out of the range that is claimed."""
    parser = argparse.ArgumentParser(prog="python -m hooklab experiment seeing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on (default: 20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0, the lesson's own)")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(argv)
    seeds = range(options.first, options.first + options.seeds)
    results = run_all(measure, [(seed,) for seed in seeds], options.processes)
    outside = 0
    for name in results[0]:  # every claim is one of them: a test says so
        values = sorted(result[name] for result in results)
        low, high = CLAIMS.get(name, (float("-inf"), float("inf")))
        is_outside = values[0] < low or values[-1] > high
        outside += is_outside
        claim = f"  claimed: {low:g} to {high:g}" if name in CLAIMS else ""
        numbers = " ".join(f"{one:6.3f}" for one in (values[0], values[len(values) // 2], values[-1]))
        print(f"{numbers}  {name:<58}{claim}{'  BROKEN' if is_outside else ''}")
    print(f"lowest, median, highest of {len(seeds)} seeds; {len(CLAIMS)} claims, {outside} broken")
    return 1 if outside else 0
