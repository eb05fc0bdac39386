"""The predictions of lesson 11."""

from __future__ import annotations

from hooklab.course.exercises.predict import Choice, prediction

a_copied_hook = prediction(
    "11.a",
    "A forward hook appends to the list `calls`. You copy the model, remove the hook from the original with its "
    "handle, and run the copy once. How many entries does `calls` have?",
    Choice(
        "none: a copy comes without hooks",
        lambda came: came["calls"] == 0 and came["on the copy"] == 0,
        "You may have thought that a hook isn't part of the model; but it's in one of the module's dictionaries, and "
        "`deepcopy` copies those.",
    ),
    Choice(
        "none: the handle has removed it",
        lambda came: came["calls"] == 0 and came["on the copy"] == 1,
        "You may have thought of one hook in two places; but the handle removes it from the original's table, and the "
        "copy has its own table.",
    ),
    Choice(
        "one: the copy writes into the original's list",
        lambda came: came["calls"] == 1,
        "The copy has its own table of hooks, with the same function in it, because `deepcopy` doesn't copy "
        "functions. So the copy's hook writes into the same list.",
    ),
)

a_late_hook = prediction(
    "11.b",
    "You have called `compiled = torch.compile(model)` once, with a batch of 1. Now you register a forward hook on a "
    "layer of `model`; it replaces the output with sevens. You call `compiled` three times: with a batch of 1, of 2, "
    "and of 1 again. Which of the calls give sevens?",
    Choice(
        "all three",
        lambda came: came == [True, True, True],
        "You may have thought that both models share the layer, so they share its hook. They do share it; but a "
        "compiled call doesn't call the layer. It runs a graph that was recorded before.",
    ),
    Choice(
        "none",
        lambda came: came == [False, False, False],
        "You may have thought that the graph was recorded without the hook, and that nothing checks whether one has "
        "been added. That's right; but the graph doesn't fit every batch.",
    ),
    Choice(
        "only the batch of 2",
        lambda came: came == [False, True, False],
        "torch.compile doesn't check whether a hook has been added, so the recorded graph runs without it. A batch of "
        "2 doesn't fit that graph, so PyTorch recompiles: it records a second graph, with your hook. Both graphs are "
        "kept, and a batch of 1 still fits the first one. `no_grad` forces a recompile too. That's what makes a late "
        "hook so confusing: it runs for some calls and not for others, without a warning.",
    ),
    Choice(
        "the batch of 2, and everything after it",
        lambda came: came == [False, True, True],
        "You may have thought that a recompile replaces the old graph; but both graphs are kept, and a batch of 1 "
        "still fits the first one.",
    ),
)

runs_in_a_checkpoint = prediction(
    "11.c",
    "A block of three layers runs in a checkpoint, in today's way (`use_reentrant=False`), and then `backward()` runs. "
    "How often has the first layer's hook run, and how often the last layer's?",
    Choice(
        "once and once",
        lambda came: came == [1, 1],
        "You may have thought that forward hooks run in the forward pass only; but the block's second run calls its "
        "layers, with their hooks.",
    ),
    Choice(
        "twice and twice",
        lambda came: came == [2, 2],
        "You may have thought that the whole block runs again. That was true of the older, reentrant way; but today's "
        "stops earlier.",
    ),
    Choice(
        "twice and once",
        lambda came: came == [2, 1],
        "The second run stops as soon as it has every value that the backward pass needs (early stop), and the "
        "last layer's output isn't among them. The reentrant way runs all layers twice.",
    ),
)

which_gradient = prediction(
    "11.d",
    "Two processes train one weight with DistributedDataParallel. The gradient from process 0's data is 1, from "
    "process 1's it is 3; the optimizer gets 2 in both. What does process 0 see in a tensor hook on the weight, and "
    "what in `p.grad` in a post-accumulate hook?",
    Choice(
        "1 and 2: DDP averages when the gradient is accumulated",
        lambda came: came == [1.0, 2.0],
        "You may have thought that a post-accumulate hook runs last of all; but DDP's hook runs after it, and "
        "averages once the last gradient of a whole bucket of parameters is there.",
    ),
    Choice(
        "2 and 2: DDP averages before any hook sees the gradient",
        lambda came: came == [2.0, 2.0],
        "You may have thought that DDP is part of autograd; but DDP uses a hook like yours, on the node that writes "
        "`.grad`, and it runs after yours.",
    ),
    Choice(
        "1 and 1: neither sees the average",
        lambda came: came == [1.0, 1.0],
        "Both hooks see what their own process has computed, because they run before the processes exchange anything. "
        "When `backward()` returns, `.grad` holds the average. So if a hook clips, it clips before the average.",
    ),
)

a_hundredth = prediction(
    "11.e",
    "Three networks learn to read digits in two processes. The first sends every number of its gradients. The second "
    "sends the largest hundredth and forgets the rest. The third sends the largest hundredth and keeps the rest for "
    "the next step. Which of them is far behind after five epochs?",
    Choice(
        "both that send a hundredth: the rest of the gradient is missing",
        lambda came: _behind(came, "1 % with a memory") and _behind(came, "1 % without"),
        "You may have thought that what isn't sent is lost; but with a memory it's only sent later.",
    ),
    Choice(
        "none: only the largest numbers matter",
        lambda came: not _behind(came, "1 % with a memory") and not _behind(came, "1 % without"),
        "You may have thought that the largest numbers are enough; but the same few are the largest in every step, "
        "and the other weights never move.",
    ),
    Choice(
        "only the one that forgets",
        lambda came: not _behind(came, "1 % with a memory") and _behind(came, "1 % without"),
        "With a memory, what isn't sent adds up until it is among the largest, so the network gets as far as with all "
        "numbers, some epochs later. The right picture shows why the other one stays behind: without a memory, more "
        "than three in four numbers are never among a process's 38 largest, so their weights never move.",
    ),
    Choice(
        "most of all the one that keeps the rest, because it steps along old gradients",
        lambda came: came["1 % with a memory"] < came["1 % without"] - 0.02,
        "You may have thought that an old gradient is a wrong one; but within a few steps the weights hardly change, "
        "and neither do the gradients.",
    ),
)


def _behind(came: dict[str, float], way: str) -> bool:
    return came[way] < max(came.values()) - 0.1
