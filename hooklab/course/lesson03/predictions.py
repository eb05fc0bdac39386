"""The predictions of lesson 3."""

from __future__ import annotations

from hooklab.course.exercises.predict import ByNumber, Choice, prediction

order_of_reports = prediction(
    "3.a",
    "You register `report` on the model itself, then on its three layers, and call the model once. In which order are "
    "the four hooks called?",
    Choice(
        "the model, then its layers: in the order of registration",
        lambda came: came == ["Sequential", "Times", "ReLU", "Times"],
        "You may have thought of one list of hooks that runs from the top; but each module has its own list, and runs "
        "it when its own `forward` has returned.",
    ),
    Choice(
        "the layers in their order, then the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"],
        "A module's hook runs when its `forward` has returned, and the model's `forward` returns last.",
    ),
    Choice(
        "the last layer first, then back to the model",
        lambda came: came == ["Times", "ReLU", "Times", "Sequential"][::-1],
        "You may have thought of gradients, which flow from the last layer to the first; but forward hooks follow the "
        "values.",
    ),
)

an_accidental_return = prediction(
    "3.b",
    "The hook `remember_the_first` is on the first layer. What does the model return for the second input?",
    Choice(
        "(100, 100)",
        lambda came: came == [100.0, 100.0],
        "You may have thought that a hook which only stores something changes nothing; but this hook also returns "
        "something.",
    ),
    Choice(
        "(20, 0), the same as for the first input",
        lambda came: came == [20.0, 0.0],
        "`setdefault` returns what is stored in the dictionary, and the hook returns that. So the first output "
        "replaces the second.",
    ),
    Choice(
        "an error",
        lambda came: not isinstance(came, list),
        "You may have read that a hook must not return anything; but that was before PyTorch 1.2.",
    ),
)

what_a_channel_is_worth = prediction(
    "3.c",
    "Five networks with sixteen channels each make 80 trials. In each trial, one channel of `relu2` is switched off, "
    "and the accuracy drops, or doesn't. How large is the largest drop of the 80, in percentage points?",
    Choice(
        "less than half a point",
        lambda worst: worst < 0.005,
        "You may have thought that networks are redundant, so the other fifteen channels make up for the missing one; "
        "but some pictures are close calls, and there a single channel decides.",
    ),
    Choice(
        "between half a point and ten points",
        lambda worst: 0.005 <= worst < 0.1,
        "The last layer adds up many small contributions, so most channels cost less than one point, and some trials "
        "even gain a little. But every network has channels that it relies on more than on others.",
    ),
    Choice(
        "between ten and fifty points",
        lambda worst: 0.1 <= worst < 0.5,
        "You may have thought that each channel stands for one or two of the ten digits; but every digit is recognised "
        "by many channels together.",
    ),
    Choice(
        "more than fifty points",
        lambda worst: worst >= 0.5,
        "You may have thought that a network can't work with a part missing that it was trained with; but the last "
        "layer only adds up what the channels contribute, and fifteen of sixteen are still there.",
    ),
)

hooks_that_run = ByNumber(
    "3.d",
    "The model is called once. Seven modules have a hook: the model, the list `blocks`, the two blocks in it, "
    "`direct`, `unused` and `last`. How many of the seven hooks run?",
    {
        4: "Those of the two blocks, of `last` and of the model itself. `blocks` is a container: the model calls its "
        "blocks and never the list. `self.direct.forward(x)` bypasses `__call__`, which runs the hooks. And `unused` "
        "isn't called at all.",
        5: "You may have thought that `direct` does its work, so its hook runs; but the model calls its `forward`, and "
        "that bypasses the code that runs hooks. (Or you counted `blocks`; but the list itself is never called.)",
        6: "You may have thought that all modules but `unused` take part; but a hook needs a call of its module, and "
        "two of these modules aren't called.",
        7: "You may have thought that a registered hook runs; but it only runs when its module is called.",
    },
    otherwise="You may have counted differently; but only calls count. Go through `forward`, count each "
    "`something(x)`, and add the call of the model itself.",
)
