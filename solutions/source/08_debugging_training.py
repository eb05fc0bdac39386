# %% [markdown]
# # 8 · Which layer died, exploded or made the first NaN?
#
# **Time** 60 minutes, and 43 for what comes after the recap &nbsp;·&nbsp; **You need** lessons 2, 3 and 5
#
# After this lesson you can
#
# - find the module that made the first inf or nan, in the forward pass and in the backward pass;
# - distinguish dead, saturated, vanishing and detached layers, although their loss curves look alike;
# - watch a whole training with `hooklab.monitor`, and read its picture;
# - examine a training that doesn't learn, and find out why.

# %% tags=["setup"]
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson08 import explorer, figures, ready
from hooklab.course.lesson08.clinic import examine, layers, patient
from hooklab.course.lesson08.deaths import first_passes
from hooklab.course.lesson08.evidence import DIAGNOSES

torch.set_num_threads(1)

# %% [markdown]
# ## The loss is nan
#
# In this lesson you are the doctor. The first patient is a network that learns to read digits. Its learning rate is
# far too large, and soon its loss is `nan`. But the loss is computed last. Where did it begin?


# %% tags=["field", "field-190", "nbval-ignore-output"]
def far_too_fast():
    training = patient("A")
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=100.0)
    return training


ill = far_too_fast().train(steps=20)
for step, loss in enumerate(ill.losses[:6]):
    print(f"step {step}: the loss is {loss:.3g}")
assert ill.losses[3] < float("inf") and ill.losses[-1] != ill.losses[-1]

# %% [markdown]
# A forward hook sees each module's inputs and its output. So it can ask the question that matters: which module
# returned an inf or a nan, **although all of its inputs were finite**?

# %% [markdown] tags=["exercise"]
# ### Exercise 8.1 · Where the first nan was made
# ●●○ · 7 minutes
#
# Write `first_nonfinite(model, x)`. Run `model(x)` once, and find the first module whose inputs are all finite and
# whose output contains an inf or a nan. Return its name, as in `named_modules()`, and the largest magnitude among its
# inputs. If there is no such module, return `None`.
#
# "First" means: the one that finishes first. A submodule finishes before the module around it; the model itself,
# whose name is `""`, counts too. Each module takes one or more tensors and returns one. Leave no hook behind.
#
# <details><summary>Hint: the check names a submodule of a submodule</summary>
#
# `named_modules()` also gives the submodules of submodules, and the model itself under the name `""`.
# </details>
# <details><summary>Hint: you name a module in data that already contains a nan</summary>
#
# Look at `tensor.isfinite().all()` for each input. If one of them isn't finite, this module didn't start it.
# </details>


# %% tags=["solution"]
def first_nonfinite(model: nn.Module, x: torch.Tensor) -> tuple[str, float] | None:
    """Return the module of the first inf or nan and its largest input, or None."""
    ### BEGIN SOLUTION
    found, names = [], {module: name for name, module in model.named_modules()}

    def look(module, args, output):
        if all(one.isfinite().all() for one in args) and not output.isfinite().all():
            found.append((names[module], max(one.abs().max().item() for one in args)))

    handles = [module.register_forward_hook(look) for module in names]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
    ### END SOLUTION


# %% tags=["check"]
check("8.1", first_nonfinite)

# %% [markdown]
# Now send your function to the patient. It runs before each training step, on the batch of this step. (If 8.1 is
# still open, a ready one runs instead.)

# %% tags=["field", "field-190", "nbval-ignore-output"]
find = yours_or("8.1", first_nonfinite, ready.first_nonfinite)
answers = []
ill = far_too_fast()
ill.train(steps=5, before=lambda model, pixels: answers.append(find(model, pixels)))
for step, answer in enumerate(answers):
    print(f"step {step}:", answer)
assert answers[:4] == [None] * 4 and answers[4][0] == "fc2"

# %% [markdown]
# Until step 3 all outputs are finite. In step 4 the layer `fc2` overflows: its inputs are around 10²³. So it began in
# step 4? Your function only looks at the forward pass. A tool of this course, `hooklab.monitor`, looks at gradients
# as well; you'll meet it below. `examine` trains under such a monitor:

# %% tags=["field", "field-190", "nbval-ignore-output"]
health = examine(far_too_fast())
print(health.first_nonfinite.text)
first = health.first_nonfinite
assert (first.step, first.kind, first.module) == (3, "gradient", "act1")
for name in ("fc2", "act1", "fc1"):
    steps, shares = health.series("gradient", name, "nonfinite")
    print(f"step {steps[3]}, gradient at {name:<5} {shares[3]:.1%} are inf or nan")
    assert shares[3] == (24 / 2048 if name == "act1" else 0)

# %% [markdown]
# The first ones came one step earlier, in the backward pass: 24 values of the gradient of `act1`'s output aren't finite.
# The gradient of a module's output is computed by what comes *after* it in the forward pass, here by `fc2`.
#
# At `fc1` the gradient is finite again. So those 24 values belong to units that are off: for these, the ReLU passes
# on 0. They do no harm, but they are the first warning, and no forward hook could have seen it. That is worth
# remembering: **look at both directions.**

# %% [markdown]
# ## One curve, three illnesses
#
# Most trainings that fail don't even produce a nan. Here are three patients that read digits, A, B and D. (C comes
# later.) With ten classes, a network that guesses has a loss of 2.30, the natural logarithm of 10.

# %% tags=["figure", "nbval-ignore-output"]
ill = {name: patient(name).train() for name in "ABD"}
figure = figures.losses({name: training.losses for name, training in ill.items()})
plt.show()

for training in ill.values():
    first, last = training.losses[0], training.losses[-1]
    assert abs(first - 2.3) < 0.1 and abs(last - 2.3) < 0.1
    assert training.accuracy() < 0.2
too_large = patient("A")
for parameter in too_large.model.parameters():
    parameter.data *= 4
assert too_large.train(steps=1).losses[0] > 100

# %% [markdown]
# *What to see:* all three end on the grey line: after 80 steps they still guess. (A jumps up before.) All three also
# *begin* there, which is healthy. So look at the **first loss** before anything else. If it's far above 2.30, the first
# scores are too large. (With initial weights four times as large, patient A begins above 100.)
#
# The loss doesn't say which layer is ill, or what is wrong with it. So look inside, by hand first: for each layer, a
# hook stores **one number** about its output and one about its gradient.


# %% tags=["field", "field-193"]
def statistics(training) -> tuple[dict, dict]:
    """Take one step; return each output's share of zeros and each gradient's spread."""
    zeros, spreads = {}, {}

    def look(name):  # returns the forward hook for the module of this name
        def hook(module, args, output):
            zeros[name] = (output == 0).float().mean().item()
            output.register_hook(store)

        def store(grad):
            spreads[name] = grad.std().item()

        return hook

    handles = [
        module.register_forward_hook(look(name))
        for name, module in training.model.named_children()
    ]
    training.train(steps=1)
    for handle in handles:
        handle.remove()
    return zeros, spreads


# %% tags=["nbval-ignore-output"]
zeros, _ = statistics(ill["A"])
for name in ("act1", "act2", "act3", "act4"):
    print(f"patient A: {zeros[name]:.0%} of the outputs of {name} are zero")
assert zeros["act1"] == 1.0

# %% [markdown]
# Patient A has ReLUs whose output is **zero for every picture**. The layers after them get the same input for every
# digit, and no gradient comes back through them: they are dead. Patient B has sigmoids, and no zeros at all. What
# about its gradients?

# %%
predict("8.a")

# %% tags=["predict", "nbval-ignore-output"]
_, spreads = statistics(patient("B"))
share = spreads["fc1"] / spreads["out"]
print("What came out:")
for name in ("out", "fc8", "fc6", "fc4", "fc2", "fc1"):
    print(f"gradient at {name:<4} {spreads[name]:.0e}")

# %%
reveal("8.a", share)
assert share < 1e-6, (
    "In the page's patient B, less than a millionth of the gradient is left."
)

# %% [markdown]
# And patient D? It's one of the riddles below.
#
# ## The whole training in one picture
#
# Your hooks looked at one step. `hooklab.monitor` computes such numbers in every step, for the outputs, gradients and
# updates of every module. It stores numbers, never tensors, so it can stay on for a whole training.

# %% tags=["figure", "nbval-ignore-output"]
training = patient("A")
with hooklab.monitor(training.model, grads=True, updates=training.optimizer) as health:
    training.train()
figure = health.plot()
plt.show()

# outputs and gradients of 9 modules, updates of 5
assert len(health.rows) == 80 * (9 + 9 + 5)
assert health.first_nonfinite is None
assert hooklab.leftover_hooks(training.model) == []
reaches = health.series("gradient", "act1", "std")[1]
for name in ("act3", "act4"):  # not all zeros, if a gradient reaches act1
    zeros = health.series("output", name, "zeros")[1]
    assert all(share < 1 for share, at in zip(zeros, reaches, strict=True) if at > 0)
steps, spread = health.series("output", "out", "std")
assert max(spread[:5]) > 20 * spread[0]
steps, ratio = health.series("update", "fc1", "ratio")
print(f"fc1, first step: |Δw| / |w| = {ratio[0]:.2f}")
assert 1 < ratio[0] < 2

# %% [markdown]
# *What to see:* steps go from left to right, layers from top to bottom. Read the four pictures from the top:
#
# - **Zeros.** Three of the four ReLUs turn yellow: nearly all of their outputs are zero. (A linear layer has no zeros,
#   so its rows stay dark.)
# - **Outputs.** In the first steps they get far too large: the spread of `out` grows more than twentyfold.
# - **Gradients.** Before a dead ReLU, the layers get none any more. (The bright stripes are steps in which `act3` and
#   `act4` let a few pictures through once more.)
# - **Updates.** Here is the cause. |Δw| / |w| compares a step with the weights that it changes. In `fc1` the first step
#   is larger than the weights themselves! In a healthy training it starts near a hundredth, and gets smaller.
#
# You're going to treat patient A in a moment.

# %% [markdown]
# ## Four patients
#
# Each exercise is a training that doesn't learn as it should. Your function gets the training, **fixes** it, and
# returns a diagnosis: the name of a module, and what is wrong there, in one of the words below.
#
# To fix it, change or replace `training.model`, `training.optimizer` or `training.prepare` (a function of the pixels,
# called before the model). Your function doesn't train, and leaves no hook. The check trains the fixed patient for 80
# steps, and does it again from other initial weights.

# %%
for diagnosis, meaning in DIAGNOSES.items():
    print(f"{diagnosis:<22}{meaning}")

# %% [markdown]
# The first five are **symptoms**. A ReLU can be dead for many reasons; patient A's is a learning rate of 0.3. Your
# fix has to remove the cause.

# %% [markdown] tags=["exercise"]
# ### Exercise 8.2 · Patient A
# ●○○ · 4 minutes
#
# You've seen its picture. Write `treat_a(training)`: choose a learning rate with which |Δw| / |w| of `fc1` starts near a
# hundredth, and set it. Return the name of one module that is ill and its diagnosis, such as `("fc3", "exploding")`.
#
# <details><summary>Hint: which module?</summary>
#
# `print(health)` shows the last step as a table. Any ReLU whose outputs are all zero will do.
# </details>
# <details><summary>Hint: how do I change a learning rate?</summary>
#
# `training.optimizer.param_groups[0]["lr"] = …`, or create a new optimizer. Half the learning rate makes half the step.
# </details>


# %% tags=["solution"]
def treat_a(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.optimizer.param_groups[0]["lr"] = 0.003
    return "act1", "dead"
    ### END SOLUTION


# %% tags=["check"]
check("8.2", treat_a)

# %% [markdown]
# What has your treatment changed?

# %% tags=["nbval-ignore-output"]
treat = yours_or("8.2", treat_a, ready.treat_a)
treated = patient("A")
treat(treated)
healthy = examine(treated)  # trains under a monitor, as above
steps, now = healthy.series("update", "fc1", "ratio")
print(f"|Δw| / |w| in the first step: {ratio[0]:.2f}, now {now[0]:.3f}")
print(f"digits read right: {training.accuracy():.0%}, now {treated.accuracy():.0%}")
assert training.accuracy() < 0.2 and treated.accuracy() > 0.75
assert 0.003 < now[0] < 0.3 and now[-1] < now[0], (
    "With the page's treatment, the first step is about a hundredth of the weights."
)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.3 · Patient B
# ●●○ · 6 minutes
#
# Patient B has eight sigmoid layers, and you've measured its gradients. Return a module where less than a thousandth
# of the gradient arrives, and the diagnosis.
#
# To fix it, you may build a new model: `layers(nn.ReLU, 8, spread=2**0.5)` makes one with the same names and any
# activation. Its initial weights have the standard deviation `spread / inputs**0.5`, where `inputs` is the number of a
# layer's inputs.
#
# <details><summary>Hint: "the optimizer still holds the parameters of the old one"</summary>
#
# A new model has new parameters. Create the optimizer after the model.
# </details>
# <details><summary>Hint: it still guesses</summary>
#
# With PyTorch's default weights the gradient vanishes in eight ReLU layers too, so give them a spread. Adam with
# `lr=0.01` learns it in 80 steps.
# </details>


# %% tags=["solution"]
def treat_b(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.003)
    return "fc1", "vanishing"
    ### END SOLUTION


# %% tags=["check"]
check("8.3", treat_b)

# %% [markdown]
# ### Layers that don't learn
#
# Sometimes the numbers are fine, and still a layer doesn't learn. Here are four linear layers, each with another fault:


# %% tags=["field", "field-194"]
class Four(nn.Module):
    def __init__(self):
        super().__init__()
        self.spare, self.cut, self.new, self.used = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        return self.used(self.new(self.cut(x).detach()))


four = Four()
four.used.bias.requires_grad_(False)
known = [one for name, one in four.named_parameters() if "new" not in name]
adam = torch.optim.Adam(known)
with hooklab.monitor(four, updates=adam, grads=True) as health:
    four(torch.rand(8, 4)).sum().backward()
    adam.step()

print("never ran:         ", health.silent)
print("without a gradient:", health.without_gradient)
for kind in ("output", "gradient", "update"):
    print(f"{kind:<9}", [row.module for row in health.rows if row.kind == kind])
assert health.silent == ["spare"]
assert health.without_gradient == [
    "spare.weight", "spare.bias", "cut.weight", "cut.bias", "used.bias",
]  # fmt: skip
assert "new" not in [row.module for row in health.rows if row.kind == "update"]

# %% [markdown]
# `spare` is **never called**, so none of its hooks runs. `cut` runs, but no gradient arrives: it is **detached**. The
# bias of `used` has `requires_grad=False`: it is **frozen**, perhaps on purpose. And `new` gets a gradient but no
# update: it is **not in the optimizer**.
#
# So these are the questions for any patient: Is the first loss right? Is everything finite? Which outputs are zero,
# or at the ends of their range? Where does the gradient stop? What never moves? One more question decides whether the
# model *can* learn: does its loss fall to zero if it sees **the same batch** again and again? (Tried after the recap.)

# %% [markdown]
# The next two patients come without a word. You know how well they read, and nothing else.

# %% tags=["nbval-ignore-output"]
for name in "CD":
    ill = patient(name).train()
    print(f"patient {name}: {ill.accuracy():.0%} of the digits are read right")
    assert ill.accuracy() < 0.75

# %% [markdown] tags=["exercise"]
# ### Exercise 8.4 · Patient C
# ●●○ · 8 minutes
#
# Examine, diagnose, fix: `treat_c(training)` returns the module and the diagnosis. `health = examine(patient("C"))`
# is where you start; `health.plot()` draws it, `print(health)` shows the last step, and `health.rows` has all the
# numbers.
#
# <details><summary>Hint: where do I look first?</summary>
#
# Draw more statistics: `health.plot("mean", "std", "zeros", "saturated")`. Compare `act1` with `act2`.
# </details>
# <details><summary>Hint: I know what is wrong, but not why</summary>
#
# Follow the values back: from the activation to the layer before it, and from there to its input.
# </details>


# %% tags=["solution"]
def treat_c(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.prepare = lambda pixels: pixels  # without the factor of 255
    return "act1", "saturated"
    ### END SOLUTION


# %% tags=["check"]
check("8.4", treat_c)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.5 · Patient D
# ●●○ · 7 minutes
#
# The same for patient D. Some things in it look odd but were done on purpose, so they aren't the reason. (The check
# takes 80 steps, so keep the kind of optimizer and its learning rate.)
#
# <details><summary>Hint: where do I look first?</summary>
#
# For each kind of row, which modules have one? `{(row.kind, row.module) for row in health.rows}`
# </details>
# <details><summary>Hint: my diagnosis is true, but not the reason</summary>
#
# A layer that is frozen on purpose isn't ill. Which layer *should* learn, and doesn't?
# </details>


# %% tags=["solution"]
def treat_d(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.optimizer = torch.optim.Adam(training.model.head.parameters(), lr=0.01)
    return "head", "not in the optimizer"
    ### END SOLUTION


# %% tags=["check"]
check("8.5", treat_d)

# %% [markdown]
# ## How a unit dies
#
# In lesson 3, two of the sixteen channels of `relu2` never fired, on any digit. Now you can watch how that happens.
# Here is the same network with the same initial weights. In each step, a hook stores the share of the batch on which
# each channel fires.

# %% tags=["field", "field-192", "nbval-ignore-output"]
# eight times through the data, as in lesson 3
seen = first_passes(seed=0, steps=184)
dead = seen.dead()
for channel in dead:
    share = seen.fires[0, channel].item()
    print(f"channel {channel} ends up dead; it fires on {share:.0%} of the first batch")
assert len(dead) == 2
assert seen.fires[0, dead[0]] > 0.8 and seen.fires[0, dead[1]] == 0.0

# %% [markdown]
# One of the two was **born dead**: it never fired, in any of the 184 steps, and so its weights never got a gradient. The
# other one was among the busiest of all.

# %%
predict("8.b")

# %% tags=["predict", "figure", "nbval-ignore-output"]
last = seen.last_fired(dead[0])
print("What came out:")
print(f"channel {dead[0]} fires for the last time in step", last)
figure = figures.deaths(seen.first(40))
plt.show()

# %%
reveal("8.b", last)
assert last < 10 and not seen.fires[last + 1 :, dead[0]].any(), (
    "In the page's training, seed 0, channel 0 is dead after ten steps."
)
assert not seen.fires[:, dead[1]].any() and not seen.gradient[:, dead[1]].any(), (
    "In the page's training, seed 0, channel 14 never fires and gets no gradient."
)
assert not seen.fires[3:10, 13].any() and not seen.fires[:4, 15].any(), (
    "In the page's training, seed 0, channels 13 and 15 are dark for some steps."
)
assert seen.fires[16, [13, 15]].min() > 0.9, (
    "In the page's training, seed 0, channels 13 and 15 fire again in step 16."
)

# %% [markdown]
# *What to see:* twelve channels fire on nearly every digit (yellow), in every step. Channels 13 and 15 are dark for some
# steps, but they aren't dead: the layers before them do learn, and lift them above zero again. Channel 15 woke up that way
# while its own weights stood still. So judge a unit over many steps.

# %% tags=["nbval-ignore-output"]
wakes = (seen.fires[:, 15] > 0).nonzero()[0].item()
print("channel 15 first fires in step", wakes)
print("how far its weights had moved until then:", seen.moved[:wakes, 15].sum().item())
assert wakes > 0 and seen.moved[:wakes, 15].sum() == 0

# %% [markdown]
# Was channel 0 one unlucky case? `python -m hooklab experiment deaths` tries 20 seeds. Here they gave 22 dead channels: 4
# were born dead, 16 fired for the last time in one of the first ten steps, and 2 later. So the network did not
# *learn* that it could do without them. Its first steps were too large, as for patient A. That's one reason why
# people warm the learning rate up. (And what do a dead channel's weights do? See "The weights of a dead channel" below.)

# %% [markdown] tags=["recap"]
# ## Recap
#
# The loss comes last and says least. Ask each module: are the inputs finite, and is the output? Then look at zeros,
# spreads, gradients and |Δw| / |w| over the steps. And for each part ask: does it run, does a gradient arrive, does
# it move?
#
# | what you see | what it means | what helps |
# |---|---|---|
# | the first loss is far above the logarithm of the number of classes | the first scores are too large | smaller initial weights, smaller inputs |
# | a module's inputs are finite, its output isn't | the value was made in this module | its inputs show how: overflow, log, 0 / 0 |
# | outputs are finite, a gradient arrives as nan | the nan was made by what comes after | keep that operation away from its edge, with an eps under a root, say |
# | outputs are zero for every picture | dead units | smaller first steps, warm-up, normalisation |
# | outputs at the ends of the range | saturated | smaller inputs or initial weights, normalisation |
# | the gradient shrinks layer by layer | vanishing | ReLU with a fitting spread, normalisation |
# | no output | never called | call the module, not its `.forward` |
# | an output, and `.grad` is None | detached, or frozen | look for `detach`, `no_grad`, `requires_grad`, a hook that returns something |
# | a gradient and no update | not in the optimizer | create the optimizer after the last change of the model |
#
# PyTorch's own detector of nan in the backward pass is `torch.autograd.detect_anomaly` ([its
# documentation](https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection)). It's compared with a monitor
# below.
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | non-finite value | 非有限值 | inf or nan |
# | dead unit | 死亡神经元 | a ReLU that is off for every input, and gets no gradient |
# | saturation | 饱和 | an activation at the flat ends of its range |
# | vanishing gradient | 梯度消失 | a gradient that shrinks from layer to layer in the backward pass |
# | exploding | 爆炸 | outputs or gradients that grow without limit |
# | update ratio | 更新比率 | the size of a step divided by the size of the weights |
# | ↓ loss scaling | 损失缩放 | the loss is multiplied so that small gradients survive half precision |
# | warm-up | 学习率预热 | the learning rate grows over the first steps |
#
# (↓ is shown below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** In the first step a forward hook finds every output finite, and in the second the loss is nan. Where do you
# look?
#
# <details><summary>Answer</summary>
#
# At the gradients of the first step. If one of them is nan, `optimizer.step()` writes it into the weights, and the
# next forward pass returns nan.
# </details>
#
# **2.** After a ReLU, 50 % of the values are zero. Is half of the layer dead?
#
# <details><summary>Answer</summary>
#
# You can't say. Each unit may be off for half of the pictures, or half of the units for all pictures. Compute the
# share for each unit, as in "How a unit dies".
# </details>
#
# **3.** A layer's gradients have a healthy size, and its |Δw| / |w| is 0. What has happened?
#
# <details><summary>Answer</summary>
#
# The optimizer has the parameters and doesn't move them: the learning rate of their group is 0, perhaps because of a
# schedule. If it didn't have them, there would be no update row at all.
# </details>

# %%
progress(8)

# %% [markdown]
# ## If you want more

# %% [markdown]
# ### A logarithm of positive numbers
#
# This code takes the logarithm of positive numbers only, and gives 0 for the others. The result is right.

# %%
predict("8.c")

# %% tags=["predict"]
x = torch.tensor([0.0, 2.0], requires_grad=True)
y = torch.where(x > 0, x.log(), torch.zeros(2))
y.sum().backward()

print("What came out:")
print("result:  ", [round(value, 2) for value in y.tolist()])
print("gradient:", x.grad.tolist())

# %%
reveal("8.c", x.grad[0].item())
assert y[0] == 0.0 and x.grad[0].isnan() and x.grad[1] == 0.5, (
    "With the page's x, the result at 0 is 0, and its gradient is nan."
)

# %% [markdown]
# With `torch.where`, one fix always works: put a harmless number into the branch that isn't used.

# %% tags=["field", "field-170"]
fixed = torch.tensor([0.0, 2.0], requires_grad=True)
positive = fixed > 0
harmless = torch.where(positive, fixed, 1.0)
torch.where(positive, harmless.log(), 0.0).sum().backward()
print("gradient:", fixed.grad.tolist())
assert fixed.grad.tolist() == [0.0, 0.5]

# %% [markdown]
# A forward hook sees nothing wrong here: every output is finite. To find the place, put a tensor hook on
# each output (lesson 2). The nan was made by the operation right after the output where it **arrives** first.

# %% [markdown]
# ### A patient with a hook, and a patient with a nan
#
# You may have seen what is wrong with the next patient by the time you've read its card. The other one needs an
# examination.

# %% [markdown] tags=["exercise"]
# ### Exercise 8.6 · Patient E
# ●●○ · 5 minutes
#
# An encoder turns a picture into four numbers, and a reader turns these into ten scores. To watch the four numbers,
# another program registered the hook below; its handle is `training.handles[0]`. Now the model learns a little, and
# then stops. Examine, diagnose, fix. You may replace the hook by one that returns nothing.
#
# ```python
# def keep_numbers(module, args, output):
#     numbers = output.detach()
#     module.kept = numbers.mean(dim=0).tolist()
#     return numbers
# ```
#
# <details><summary>Hint: which part doesn't learn?</summary>
#
# `examine(patient("E")).without_gradient`. Is it frozen, detached or never called? Look at `requires_grad` and at
# `health.silent`.
# </details>
# <details><summary>Hint: what is wrong with the hook?</summary>
#
# Whatever a forward hook returns replaces the output (lesson 3).
# </details>


# %% tags=["solution"]
def treat_e(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.handles[0].remove()
    return "encoder", "detached"
    ### END SOLUTION


# %% tags=["check"]
check("8.6", treat_e)

# %% [markdown]
# The last patient, F, has a nan from the second step on. A monitor reports the first case of each kind:

# %% tags=["nbval-ignore-output"]
for finding in examine(patient("F")).findings:
    print(finding.text)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.7 · Patient F
# ●●○ · 5 minutes
#
# This network's head gives each class a score: minus the distance to a centre. One picture in forty is empty, because
# the scanner missed a page. Read the findings in their order. Which module made the first nan? Diagnose and fix.
#
# <details><summary>Hint: the nan arrives at one module and was made by another</summary>
#
# The gradient of an output is computed by what comes after it in the forward pass.
# </details>
# <details><summary>Hint: what do I change?</summary>
#
# `training.model.head` has an `eps`, which it adds under the root.
# </details>


# %% tags=["solution"]
def treat_f(training) -> tuple[str, str]:
    """Fix the training; return the module and the diagnosis."""
    ### BEGIN SOLUTION
    training.model.head.eps = 1e-6
    return "head", "nan in the backward"
    ### END SOLUTION


# %% tags=["check"]
check("8.7", treat_f)

# %% [markdown]
# ### One batch, again and again
#
# A model that can learn at all brings its loss to zero on a single batch. If it can't do that, more data won't help:


# %% tags=["nbval-ignore-output"]
def on_one_batch(training, steps=60):
    """Train on one batch only; return the first and the last loss."""
    for _ in range(steps):
        training.train(steps=1, seed=0)  # the same seed draws the same batch
    return training.losses[0], training.losses[-1]


careful = patient("A")
careful.optimizer.param_groups[0]["lr"] = 0.003
losses = {"A": on_one_batch(patient("A")), "A, small step": on_one_batch(careful)}
for name, (before, after) in losses.items():
    print(
        f"{name:<14} first loss {before:.2f}, after 60 steps on one batch {after:.2f}"
    )
assert losses["A"][1] > 2 and losses["A, small step"][1] < 0.1

# %% [markdown]
# ### Learning rate, gain, normalisation
#
# Three settings decide most of what can go wrong. Try them: the learning rate; the gain, a factor on the initial weights
# (1 keeps the spread of the values from layer to layer); and batch normalisation before each ReLU.

# %% tags=["explorer"]
explorer.going_wrong()

# %% tags=["figure"]
# without a kernel: three positions
for settings in ((3.0, 1.0, False), (3.0, 1.0, True), (0.1, 0.1, False)):
    print("learning rate {}, gain {}, batch normalisation {}".format(*settings))
    display(explorer.draw(*settings, step=39))

broken, normalised = (explorer.trained(3.0, 1.0, norm) for norm in (False, True))
assert broken.accuracy < 0.2 < 0.6 < normalised.accuracy
at_step_0 = [spread[0] for spread in explorer.trained(0.1, 0.1, False).std]
assert all(after < 0.2 * before for before, after in pairwise(at_step_0))
assert explorer.trained(0.1, 4.0, False).losses[0] > 100 * 2.3

# %% [markdown]
# *What to see:* with a learning rate of 3 the values grow until they aren't finite. With batch normalisation the same
# rate works, because each batch is brought back to the same spread. With a gain of 0.1, the spread of the very first
# outputs (lowest picture, left edge) shrinks tenfold in each layer, and the digits can hardly be distinguished at the end.
# Now try a gain of 4, and read the first loss. (In a healthy network it's near 2.3.)

# %% [markdown]
# ### The weights of a dead channel
#
# How far does Adam move a weight? In its **first step** it divides the gradient by the gradient's own size. So every
# weight moves by the whole learning rate, however small its gradient is:

# %%
model = nn.Linear(3, 1)
adam = torch.optim.Adam(model.parameters(), lr=0.005)
with hooklab.monitor(model, updates=adam) as health:
    (model(torch.ones(1, 3)) * 1e-3).sum().backward()  # a small gradient
    adam.step()
largest = health.series("update", "", "largest")[1][0]
print(
    "gradient:", round(model.bias.grad.item(), 4), "  largest move:", round(largest, 4)
)
assert abs(largest - 0.005) < 1e-4

# %% [markdown]
# Back to channel 0. Once it has fired for the last time, its value is below zero for every digit, so the ReLU lets no
# gradient through.

# %%
predict("8.d")

# %% tags=["predict", "figure"]
moved = seen.moved[last + 1 : last + 11, dead[0]]
afterwards = {
    "steps": int((moved > 0).sum()),
    "fires": bool(seen.fires[last + 1 : last + 11, dead[0]].any()),
}
print("What came out:")
print("of ten steps, its weights move in", afterwards["steps"])
print("it fires again:", afterwards["fires"])
figure = figures.after_death(seen.first(40), dead[0])
plt.show()

# %%
reveal("8.d", afterwards)
assert moved.min() > 0 and seen.gradient[last + 1 :, dead[0]].max() == 0.0, (
    "In the page's training, seed 0, the weights move in all ten steps."
)

# %% [markdown]
# *What to see:* right of the dashed line the gradient (orange) is 0. The weights (purple) move on, less in each step.
#
# ### All values of a layer, in every step
#
# A mean and a spread are two numbers for thousands of values. A **histogram** shows them all: count the values of each
# size, and draw the counts of each step as one column. Here is `fc1` before its ReLU, in patient A and in the training
# with the smaller step:


# %% tags=["figure"]
def histograms(training, name, steps=40):
    """Return the histogram of one module's outputs in each step, shape (steps, 60)."""
    counts = []

    def count(module, args, output):
        counts.append(output.detach().clamp(-15, 15).histc(60, -15, 15))

    with training.model.get_submodule(name).register_forward_hook(count):
        training.train(steps)
    return torch.stack(counts)


too_far, careful = patient("A"), patient("A")
careful.optimizer.param_groups[0]["lr"] = 0.003
counted = {
    "learning rate 0.3": histograms(too_far, "fc1"),
    "learning rate 0.003": histograms(careful, "fc1"),
}
figure = figures.histograms(counted, lowest=-15, highest=15)
plt.show()

# the share of the values above zero, in each step
far, near = (one[:, 30:].sum(dim=1) / one.sum(dim=1) for one in counted.values())
assert far[0] > 0.3 and far[-1] < 0.01 and near.min() > 0.3

# %% [markdown]
# *What to see:* bright means many values. On the left nearly all of them fall below the dashed line within a dozen
# steps, and there the ReLU returns 0. On the right about half of them stay above it. (The outermost rows also count the
# values beyond them.)

# %% [markdown]
# ### Four other starts, and a smaller step
#
# With a tenth of the learning rate, no busy channel dies in these four starts, which are few.

# %% tags=["nbval-ignore-output"]
starts = [first_passes(seed, steps=25) for seed in range(1, 5)]
slower = [first_passes(seed, steps=25, lr=5e-4) for seed in range(1, 5)]


def busy_and_dead(runs):
    return sum(
        run.fires[0, channel].item() > 0.5 for run in runs for channel in run.dead()
    )


last_signs = [run.last_fired(channel) for run in starts for channel in run.dead()]
print("the last step in which any dead channel fired:", max(last_signs))
print("busy channels that died:", busy_and_dead(starts))
print("with a tenth of the learning rate:", busy_and_dead(slower))
assert max(last_signs) < 10 and busy_and_dead(starts) > 0 and busy_and_dead(slower) == 0

# %% [markdown]
# ### "Under a GradScaler, my hook sees gradients a thousand times too large"
#
# In half precision, small gradients become 0. A scaler multiplies the loss, and with it every gradient in the
# backward pass. Before the step it divides the parameters' `.grad` again. A hook sees the scaled gradient: divide it
# by `scaler.get_scale()`. ([A thread about it](https://github.com/ashawkey/stable-dreamfusion/issues/158))

# %% tags=["field", "field-138"]
model, x = nn.Linear(2, 1), torch.ones(4, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
sgd = torch.optim.SGD(model.parameters(), lr=0.0)
with hooklab.monitor(model, grads=True) as health:
    scaler.scale(model(x).mean()).backward()
seen_by_hook = health.series("gradient", "", "mean")[1][0]
scaler.unscale_(sgd)

print("a hook sees", seen_by_hook, "  divided:", seen_by_hook / scaler.get_scale())
print("bias.grad:", model.bias.grad.item(), "(the sum over four samples)")
assert seen_by_hook == 256.0 and seen_by_hook / scaler.get_scale() == 0.25
assert model.bias.grad.item() == 1.0

# %% [markdown]
# ### "Under a GradScaler, a gradient is inf in some step, and no weight moves"
#
# When a scaled gradient overflows, the scaler skips the step and halves its scale: a single inf is part of how it
# works. Usually the scaler doesn't call `optimizer.step()` at all. A **fused** optimizer is different: its `step()` is
# called, undoes the scale itself, and decides itself whether to move. So its hooks run in a skipped step too, and a pre-hook
# sees gradients that are still scaled. To know whether a step was taken, compare the weights, or the scale before and
# after `scaler.update()`. ([A report](https://github.com/huggingface/accelerate/issues/4242))


# %% tags=["field", "field-scaler-inf", "field-207"]
def two_steps(**kind):
    """Take a good step and one with an inf; return what a pre-hook saw, and moves."""
    layer, seen, moves = nn.Linear(2, 1), [], []
    adam = torch.optim.Adam(layer.parameters(), lr=0.1, **kind)
    adam.register_step_pre_hook(lambda *args: seen.append(layer.bias.grad.item()))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (1.0, float("inf")):
        before = layer.bias.item()
        adam.zero_grad()
        scaler.scale(layer(torch.ones(4, 2)).mean() * factor).backward()
        scaler.step(adam)
        scaler.update()
        moves.append(round(layer.bias.item() - before, 3))
    assert scaler.get_scale() == 512.0  # halved: the second step was skipped
    return seen, moves


usual, fused = two_steps(), two_steps(fused=True)
for name, (seen_before, moves) in {"usual": usual, "fused": fused}.items():
    print(f"{name}: its pre-hook saw {seen_before}, the weight moved by {moves}")
assert usual == ([1.0], [-0.1, 0.0])
assert fused == ([1024.0, float("inf")], [-0.1, 0.0])

# %% [markdown]
# ### "After `clip_grad_norm_` all gradients are zero or NaN"
#
# It divides every gradient by the norm of all of them. With one inf among them, the norm is inf: the inf becomes
# inf / inf = NaN, and everything else becomes 0. So look for the inf *before* the clipping, or let the function raise.
# And call it after `backward()`: before the first one there is nothing to clip, and it returns 0.
# ([A report](https://github.com/pytorch/pytorch/issues/46849))


# %% tags=["field", "field-220"]
def clipped(value, **options):
    """Clip gradients of 1, this value and 3 to a norm of 1; return them."""
    layer = nn.Linear(2, 1)
    early = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert early == 0.0  # no gradient yet
    layer.weight.grad = torch.tensor([[1.0, value]])
    layer.bias.grad = torch.tensor([3.0])
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0, **options)
    after = torch.cat([layer.weight.grad[0], layer.bias.grad])
    return [round(one, 2) for one in after.tolist()]


raises = error_of(lambda: clipped(float("inf"), error_if_nonfinite=True))
print("1, 1, 3:  ", clipped(1.0))
print("1, inf, 3:", clipped(float("inf")))
print("or:", raises[:95], "…")
assert clipped(1.0) == [0.3, 0.3, 0.9]
assert str(clipped(float("inf"))) == "[0.0, nan, 0.0]"
assert "for gradients from `parameters` is non-finite" in raises

# %% [markdown]
# ### "A NaN, and every module computes correctly"
#
# Not every NaN is made by a module. Three that aren't: an attention **mask** forbids all places of a row, so its
# softmax is 0 / 0, in a line between two modules. One bad batch has passed through a batch normalisation: training goes
# on, but its **running statistics** stay NaN, and in evaluation mode every output is NaN. And the **file** that you
# loaded had a NaN in it, or a parameter was never filled. The monitor's findings distinguish them. For the last two,
# ask the state dict, which has buffers too. ([A thread about
# masks](https://github.com/pytorch/pytorch/issues/41508))


# %% tags=["field", "field-236", "field-238", "field-243"]
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, forbidden):
        scores = (self.score(x) @ x.mT).masked_fill(forbidden, float("-inf"))
        return self.out(scores.softmax(dim=-1) @ x)


def finding(model, *inputs):
    with hooklab.monitor(model, on_nonfinite="ignore") as health, torch.no_grad():
        model(*inputs)
    return health.first_nonfinite.text.removeprefix("step 0: ")


def not_finite(model):
    state = model.state_dict()
    return [name for name, one in state.items() if not one.isfinite().all()]


x = torch.rand(8, 4)
# each place may look at earlier ones: the first at none
forbidden = torch.arange(8) >= torch.arange(8)[:, None]
masked = finding(Attention(), x, forbidden)
normal = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
normal(torch.full((8, 4), float("nan")))  # one bad batch
assert normal(x).isfinite().all()  # in training mode nothing is wrong
running = finding(normal.eval(), x)
loaded = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
bad = {"1.bias": torch.full((4,), float("nan"))}
loaded.load_state_dict(loaded.state_dict() | bad)
from_file = finding(loaded, x)
print("mask:", masked, "statistics:", running, "file:", from_file, sep="\n")
print("in the state dicts:", not_finite(normal), not_finite(loaded))
assert "of 'score', was finite: look at what runs between the two" in masked
assert "not its running_mean and running_var" in running
assert "not its bias" in from_file and not_finite(loaded) == ["1.bias"]

# %% [markdown]
# What helps: a mask that leaves a row alone if it forbids all of it; `reset_running_stats()`, and then a pass over good
# data; a look at the file before you train.

# %%
softer = forbidden & ~forbidden.all(dim=-1, keepdim=True)
normal[1].reset_running_stats()
assert Attention()(x, softer).isfinite().all() and normal(x).isfinite().all()

# %% [markdown]
# ### Other functions that are finite at 0
#
# The logarithm isn't the only one. What about the gradients of these?


# %% tags=["folded"]
def gradient_at_zero(function):
    x = torch.zeros(2, requires_grad=True)
    result = function(x)
    assert result.isfinite().all()
    return torch.autograd.grad(result.sum(), x)[0].tolist()


def length(x):
    return x.square().sum().sqrt()


print("What came out:")
print("sqrt:                        ", gradient_at_zero(torch.sqrt))
print("sqrt times 0:                ", gradient_at_zero(lambda x: x.sqrt() * 0))
print("a vector's length, by hand:  ", gradient_at_zero(length))
print("a vector's length, x.norm(): ", gradient_at_zero(lambda x: x.norm()))
assert gradient_at_zero(torch.sqrt)[0] == float("inf")
assert gradient_at_zero(lambda x: x.norm()) == [0.0, 0.0]

# %% [markdown]
# ### `torch.autograd.detect_anomaly`
#
# PyTorch has its own detector. It raises at the first node of the backward pass that returns a nan, and shows the
# line of the forward pass that created the node, which is more exact than a module's name. It doesn't report an inf,
# or anything in the forward pass, and it stores a stack trace for every operation. When we measured on a small model
# like this one, a step took 2.4 times as long with it, and about as long with a monitor of outputs and gradients. But a
# monitor can look at every tenth step only (`every=10`).


# %% tags=["field", "field-191"]
def anomaly(function) -> str:
    with torch.autograd.set_detect_anomaly(True):
        return error_of(gradient_at_zero, function).split(".")[0]


print("sqrt(0) * 0:", anomaly(lambda x: x.sqrt() * 0))
print("sqrt(0):    ", anomaly(torch.sqrt))
message = "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output"
assert anomaly(lambda x: x.sqrt() * 0) == message
assert anomaly(torch.sqrt) == "no error"  # the gradient is inf

# %% [markdown]
# ### "inf in half precision, and everything is fine in single precision"
#
# The largest float16 is 65504. The monitor says so at the module that overflows. bfloat16 has the range of float32,
# with fewer digits.

# %% tags=["field", "field-195"]
layer = nn.Linear(1, 1, bias=False).half()
nn.init.constant_(layer.weight, 100.0)
x = torch.full((1, 1), 1000.0)
with hooklab.monitor(layer, on_nonfinite="ignore") as health:
    layer(x.half())
print(health.first_nonfinite.text)
assert health.first_nonfinite.text.endswith("float16 holds no more than 65504.")
assert layer.bfloat16()(x.bfloat16()).isfinite().all()

# %% [markdown]
# ### "Accuracy falls after I looked"
#
# Looking means running the model. In training mode that changes the statistics of batch normalisation, under
# `no_grad` too. Call `model.eval()` before you look. ([A thread about
# it](https://github.com/sksq96/pytorch-summary/issues/67))

# %% tags=["field", "field-113"]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
moved = {}
for mode in (model.eval, model.train):
    before = model[1].running_mean.clone()
    mode()
    with torch.no_grad(), hooklab.monitor(model):
        model(torch.rand(8, 2) + 9)
    moved[mode.__name__] = (model[1].running_mean - before).abs().max().item()
print("the running mean moves by", moved["eval"], "in evaluation mode")
print(f"and by {moved['train']:.1f} in training mode")
assert moved["eval"] == 0 < moved["train"]

# %% [markdown]
# ### The hook as the fault
#
# Sometimes the doctor's own tool is the illness. Below, a hook watches a training in three ways: it keeps the output,
# one Python number, or a tensor with one number. Count the graphs that are still alive after five steps:

# %%
import gc
import weakref


def graphs_alive(keep) -> int:
    """Train for five steps while a hook stores keep(output); count the live graphs."""
    layer, stored, graphs = nn.Linear(4, 4), [], []

    def hook(module, args, output):
        stored.append(keep(output))
        graphs.append(weakref.ref(output))

    with layer.register_forward_hook(hook):
        for _ in range(5):
            layer(torch.rand(2, 4)).sum().backward()
    gc.collect()
    return sum(graph() is not None for graph in graphs)


print("keeps the output:            ", graphs_alive(lambda output: output))
print("keeps a number:              ", graphs_alive(lambda output: output.std().item()))
print("keeps a tensor of one number:", graphs_alive(lambda output: output.std()))
assert graphs_alive(lambda output: output) == 5
assert graphs_alive(lambda output: output.std()) == 5
assert graphs_alive(lambda output: output.std().item()) == 0

# %% [markdown] tags=["field", "field-slow"]
# Without `.item()`, `output.std()` is a tensor with a graph, and that graph keeps the whole output alive. But on a
# GPU, `.item()` has a price: Python waits until the device has finished its queue. `monitor` leaves its numbers on
# the device and fetches them once per step.
