# %% [markdown]
# # 8 · Which layer died, exploded or made the first NaN?
#
# **Time** 58 minutes, and 7 for what stands behind the recap &nbsp;·&nbsp; **You need** lessons 2, 3 and 5
#
# After this lesson you can
#
# - find the module that made the first inf or nan, on the way forward and on the way back;
# - tell dead, saturated, vanishing and detached layers apart, though the loss looks alike;
# - watch a whole training with `hooklab.monitor`, and read its picture;
# - see when your own hook is the fault.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course.errors import error_of
from hooklab.course.lesson08 import explorer, figures
from hooklab.course.lesson08.clinic import examine, layers, patient
from hooklab.course.lesson08.deaths import first_passes
from hooklab.course.lesson08.evidence import CAUSES

torch.set_num_threads(1)

# %% [markdown]
# ## The loss is nan
#
# In this lesson you are the doctor. The first patient learns to read digits, with far too large a step, and soon its loss
# is `nan`. The loss comes last of all: who began?

# %% tags=["field", "field-190"]
ill = patient("A")
ill.optimizer = torch.optim.SGD(ill.model.parameters(), lr=100.0)
ill.train(steps=20)

print("the first loss:", round(ill.losses[0], 1), "  the last:", ill.losses[-1])
assert ill.losses[-1] != ill.losses[-1]

# %% [markdown]
# A hook sees what goes into each module and what comes out. So it can ask the one question that matters: who put out an inf
# or a nan **though it was given none**?

# %% [markdown] tags=["exercise"]
# ### Exercise 8.1 · Where the first nan was made
# ●●○ · 7 minutes
#
# Run `model(x)` once. Return the name of the first module (as in `named_modules()`) whose output holds an inf or nan though
# none of its inputs does, and the largest magnitude among these inputs. Return `None` if there is no such module. First
# is what finishes first, so a part comes before the module around it; the model itself counts, too. Every module takes
# tensors, its `args`, and puts out one tensor. No hook stays behind.
#
# <details><summary>Hint: the check names a part of a part</summary>
#
# `named_modules()` gives the parts of parts as well, and the model itself under the name `""`.
# </details>
# <details><summary>Hint: "in data that hold a nan already you name a module"</summary>
#
# `tensor.isfinite().all()` of each input: if one is not, this module has not begun it.
# </details>

# %% tags=["solution"]
def first_nonfinite(model: nn.Module, x: torch.Tensor) -> tuple[str, float] | None:
    """Return the module that made the first inf or nan and the largest magnitude it was given, or None."""
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
# ### A logarithm of positive numbers
#
# Somebody wants the logarithm of positive numbers only, and 0 for the rest. The result is right.

# %%
predict("8.a")

# %% tags=["predict"]
x = torch.tensor([0.0, 2.0], requires_grad=True)
y = torch.where(x > 0, x.log(), torch.zeros(2))
y.sum().backward()

print("What came out:")
print("result:  ", [round(value, 2) for value in y.tolist()])
print("gradient:", x.grad.tolist())

# %%
reveal("8.a", x.grad[0].item())
assert y[0] == 0.0 and x.grad[0].isnan() and x.grad[1] == 0.5, (
    "With the page's x, the result at 0 is 0, and its gradient is nan."
)

# %% [markdown]
# Other functions have a finite value at 0, too. How about their gradients?

# %% tags=["folded"]
def gradient_at_zero(function):
    x = torch.zeros(2, requires_grad=True)
    result = function(x)
    assert result.isfinite().all()
    return torch.autograd.grad(result.sum(), x)[0].tolist()


print("What came out:")
print("sqrt:                             ", gradient_at_zero(torch.sqrt))
print("sqrt times 0:                     ", gradient_at_zero(lambda x: x.sqrt() * 0))
print("a vector's length, by hand:       ", gradient_at_zero(lambda x: x.square().sum().sqrt()))
print("a vector's length, by x.norm():   ", gradient_at_zero(lambda x: x.norm()))
assert gradient_at_zero(torch.sqrt)[0] == float("inf") and gradient_at_zero(lambda x: x.norm()) == [0.0, 0.0]

# %% [markdown]
# With `torch.where`, one way is always safe: put a harmless number into the branch that isn't taken.

# %%
mended = torch.tensor([0.0, 2.0], requires_grad=True)
positive = mended > 0
torch.where(positive, torch.where(positive, mended, 1.0).log(), 0.0).sum().backward()
print("gradient:", mended.grad.tolist())
assert mended.grad.tolist() == [0.0, 0.5]

# %% [markdown]
# A forward hook sees nothing wrong in any of these. Put a tensor hook on each output (lesson 2): what made the first nan
# comes, in the forward pass, right after the output at which that nan **arrives**.
#
# ## One curve, three illnesses
#
# Most trainings that fail don't even produce a nan. Here are three patients. They read digits; a loss of 2.30, the
# logarithm of 10, means that they are guessing.

# %%
ill = {name: patient(name).train() for name in "ABD"}
for name, training in ill.items():
    print(f"patient {name}: the loss goes from {training.losses[0]:.1f} to {training.losses[-1]:.1f}")
assert all(training.accuracy() < 0.2 for training in ill.values())

# %% [markdown]
# The loss does not say which layer is ill, nor of what. So look inside, by hand first: a hook that writes down a **number**
# of each output, and one of its gradient.

# %% tags=["field", "field-193"]
def statistics(training) -> tuple[dict, dict]:
    """One step under hooks: the share of zeros in each output, the deviation of each gradient."""
    zeros, deviations = {}, {}

    def look(name):
        def hook(module, args, output):
            zeros[name] = (output == 0).float().mean().item()
            output.register_hook(lambda grad: deviations.update({name: grad.std().item()}))

        return hook

    handles = [module.register_forward_hook(look(name)) for name, module in training.model.named_children()]
    training.train(steps=1)
    for handle in handles:
        handle.remove()
    return zeros, deviations

# %%
zeros, _ = statistics(ill["A"])
for name in ("act1", "act2", "act3", "act4"):
    print(f"patient A, {name}: more than half zeros {zeros[name] > 0.5}, nearly all zeros {zeros[name] > 0.95}")
assert zeros["act1"] == 1.0

# %% [markdown]
# Patient A: there are ReLUs that put out **zero for every picture**. What comes after them is the same for all digits, and no
# gradient comes back through them: dead. Patient B has sigmoids, and no zeros at all. How about its gradients?

# %%
predict("8.b")

# %% tags=["predict"]
_, deviations = statistics(patient("B"))
share = deviations["fc1"] / deviations["out"]
print("What came out:")
for name in ("out", "fc8", "fc6", "fc4", "fc2", "fc1"):
    size = torch.tensor(deviations[name]).log10().round().int().item()
    print(f"gradient at {name:<4} about 10^{size}")

# %%
reveal("8.b", share)
assert share < 1e-6, (
    "In the page's patient B, less than a millionth of the gradient is left."
)

# %% [markdown]
# And patient D? Its gradients are healthy; look for it below.
#
# ## The whole training in one picture
#
# By hand you saw one step. `hooklab.monitor` writes down such numbers for every module and every step, of outputs, gradients
# and updates. It keeps numbers and never tensors, so it can stay on for a whole training.

# %% tags=["figure"]
training = patient("A")
with hooklab.monitor(training.model, grads=True, updates=training.optimizer) as health:
    training.train()
figure = health.plot()
plt.show()

assert len(health.rows) == 80 * (9 + 9 + 5)  # outputs and gradients of 9 modules, updates of 5
assert health.first_nonfinite is None and hooklab.leftover_hooks(training.model) == []

# %% [markdown]
# *What to see:* steps go from left to right, layers down. In the first picture, three of the four ReLUs turn yellow: dead.
# In the second, the outputs had grown just before. In the third, the gradients in front of the dead layers are gone; and in
# the last, the first step changes the weights by about their own size, |Δw| / |w| near 1. In a healthy
# training that is a few hundredths at first, and less later.

# %%
with_care = patient("A")
with_care.optimizer.param_groups[0]["lr"] = 0.003
healthy = examine(with_care)  # trains under a monitor, as above
print("a hundredth of the learning rate: right for more than 3 of 4 digits:", with_care.accuracy() > 0.75)
assert with_care.accuracy() > 0.75
assert max(healthy.series("update", "fc1", "ratio")[1]) < 0.1 < 1 < health.series("update", "fc1", "ratio")[1][0]

# %% tags=["figure"]
figure = healthy.plot("zeros")
plt.show()

assert all(0.3 < zeros < 0.7 for n in range(1, 5) for zeros in healthy.series("output", f"act{n}", "zeros")[1])

# %% [markdown]
# *What to see:* mended, between a third and two thirds of each ReLU's output are zero, in all steps.
#
# And the patient from the beginning, with its nan? A monitor also says who began: print `found.text`. (It may be the
# gradient: outputs that are finite, only just, give gradients that are not.)

# %% tags=["field", "field-190"]
ill = patient("A")
ill.optimizer = torch.optim.SGD(ill.model.parameters(), lr=100.0)
found = examine(ill).first_nonfinite
print("found within the first five steps:", found.step < 5)
assert found.step < 5 and found.kind != "update"

# %% [markdown]
# Try the three things that decide most: the learning rate; the gain, a factor on the first weights (1 keeps the size of what
# goes through); and batch normalisation before each ReLU.

# %% tags=["explorer"]
explorer.going_wrong()

# %% tags=["figure"]
for position in ((3.0, 1.0, False, 39), (3.0, 1.0, True, 39), (1.0, 0.1, False, 39)):  # without a kernel: three of them
    print("lr, gain, normalisation:", *position[:3])
    display(explorer.draw(*position))

assert explorer.trained(3.0, 1.0, False).accuracy < 0.2 < 0.5 < explorer.trained(3.0, 1.0, True).accuracy

# %% [markdown]
# *What to see:* at a learning rate of 3 the numbers grow until they are not finite. With batch normalisation the same
# rate is fine: each batch is brought back to one size. With small first weights the deviation (lower picture) shrinks from layer to
# layer, and with it what the last layer can tell digits by.
#
# ## Six patients
#
# Each exercise is a training that does not learn as it should. Your function gets the training, **mends** it, and returns its
# diagnosis: the module and the cause. Mend it by changing or replacing `training.model`, `training.optimizer` or
# `training.prepare` (which is given the pixels). Your function does not train it, and puts no hook on it (patient E may get
# one that returns nothing). The check trains it for 80 steps, also from other first weights. These are the causes:

# %%
for cause, meaning in CAUSES.items():
    print(f"{cause:<22}{meaning}")

# %% [markdown] tags=["exercise"]
# ### Exercise 8.2 · Patient A
# ●○○ · 2 minutes
#
# You have seen its picture. Return one module that is ill and the cause, and mend the training.
#
# <details><summary>Hint: which of the modules?</summary>
#
# `print(health)` shows the last step as a table. Any ReLU that puts out zeros only will do.
# </details>
# <details><summary>Hint: how do I change a learning rate?</summary>
#
# `training.optimizer.param_groups[0]["lr"] = …`, or make a new optimizer.
# </details>

# %% tags=["solution"]
def treat_a(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.optimizer.param_groups[0]["lr"] = 0.003
    return "act1", "dead"
    ### END SOLUTION

# %% tags=["check"]
check("8.2", treat_a)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.3 · Patient B
# ●●○ · 3 minutes
#
# Eight sigmoid layers; you know what happens to the gradient. Return a module where next to nothing is left of it, and the cause. For
# the mend, `layers(nn.ReLU, 8, spread=2**0.5)` of this lesson makes such a model, with any activation;
# `spread` is the deviation of its first weights, times the root of a layer's inputs.
#
# <details><summary>Hint: "the optimizer has no parameter of the model"</summary>
#
# A new model has new parameters. Make the optimizer after it.
# </details>
# <details><summary>Hint: still guessing</summary>
#
# Eight ReLU layers with PyTorch's own first weights vanish as well: give them a spread. Adam with `lr=0.01` learns it in 80 steps.
# </details>

# %% tags=["solution"]
def treat_b(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.model = layers(nn.ReLU, 8, spread=2**0.5)
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=0.003)
    return "fc1", "vanishing"
    ### END SOLUTION

# %% tags=["check"]
check("8.3", treat_b)

# %% [markdown]
# Patient C learns a little and stays far from what it could. Look at it first.

# %% tags=["figure"]
health = examine(patient("C"))
figure = health.plot("std", "saturated")
plt.show()
assert health.series("output", "act1", "saturated")[1][-1] > 0.5

# %% [markdown]
# *What to see:* the numbers in front of the first activation, and how much of its output lies within 1 % of an end of
# its range.

# %% [markdown] tags=["exercise"]
# ### Exercise 8.4 · Patient C
# ●○○ · 2 minutes
#
# Diagnose and mend. Look at what `training.prepare` does to a pixel of 1.0.
#
# <details><summary>Hint: why is the first layer's output so large?</summary>
#
# `patient("C").prepare(torch.ones(1))`
# </details>
# <details><summary>Hint: what may I put in place of it?</summary>
#
# Any function of the pixels: `training.prepare = lambda pixels: …`. A normalisation in front of the activation is a mend as well.
# </details>

# %% tags=["solution"]
def treat_c(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.prepare = lambda pixels: pixels
    return "act1", "saturated"
    ### END SOLUTION

# %% tags=["check"]
check("8.4", treat_c)

# %% [markdown]
# Three ways in which a layer does not learn have nothing to do with the size of numbers. What is different?

# %% tags=["field", "field-194"]
class Three(nn.Module):
    def __init__(self):
        super().__init__()
        self.spare, self.cut, self.used = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return self.used(self.cut(x).detach())


three = Three()
three.used.bias.requires_grad_(False)
adam = torch.optim.Adam(three.parameters())
with hooklab.monitor(three, updates=adam) as health:
    three(torch.rand(8, 4)).sum().backward()
    adam.step()

print("never ran:         ", health.silent)
print("without a gradient:", health.without_gradient)
assert health.silent == ["spare"]
assert health.without_gradient == ["spare.weight", "spare.bias", "cut.weight", "cut.bias", "used.bias"]

# %% [markdown]
# `spare` is **never called**: no forward hook fires. `cut` runs, and gets no gradient: **detached**. The bias of `used` asks
# for none: **frozen**, by intention perhaps. A fourth way: the gradient comes, and the optimizer **does not have** the
# parameter. Then there is a row of kind `"gradient"` for a module, and no row of kind `"update"`.

# %% [markdown] tags=["exercise"]
# ### Exercise 8.5 · Patient D
# ●●○ · 3 minutes
#
# A body that was trained elsewhere and is frozen, by intention, and a new head for ten classes. It does not learn. Diagnose,
# and mend.
#
# <details><summary>Hint: what do I look at?</summary>
#
# `health = examine(patient("D"))`, and then `{(row.kind, row.module) for row in health.rows}`.
# </details>
# <details><summary>Hint: "is not the cause"</summary>
#
# What is so by intention is no illness. Is everything that should learn in the optimizer? Keep Adam's `lr=0.01`: the check has 80 steps.
# </details>

# %% tags=["solution"]
def treat_d(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.optimizer = torch.optim.Adam(training.model.head.parameters(), lr=0.01)
    return "head", "not in the optimizer"
    ### END SOLUTION

# %% tags=["check"]
check("8.5", treat_d)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.6 · Patient E: mend this hook
# ●●○ · 3 minutes
#
# An encoder makes four numbers of a picture, and a reader reads these. Somebody wanted to know them, and has added this hook
# (its handle is `training.handles[0]`). Now it learns a little, and then no more. Examine it, diagnose, and mend it.
#
# ```python
# def keep_numbers(module, args, output):
#     numbers = output.detach()
#     module.kept = numbers.mean(dim=0).tolist()
#     return numbers
# ```
#
# <details><summary>Hint: which part does not learn?</summary>
#
# `examine(patient("E")).without_gradient`. Frozen, detached or never called? Look at `requires_grad`, and at `health.silent`.
# </details>
# <details><summary>Hint: what is wrong with the hook?</summary>
#
# What a forward hook returns takes the output's place (lesson 3). Remove the hook; one that returns nothing may take its place.
# </details>

# %% tags=["solution"]
def treat_e(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.handles[0].remove()
    return "encoder", "detached"
    ### END SOLUTION

# %% tags=["check"]
check("8.6", treat_e)

# %% [markdown]
# The last patient, F, has a nan from the second step on. A monitor says what it meets first, of each kind.

# %%
for finding in examine(patient("F")).findings:
    print(finding.text)

# %% [markdown] tags=["exercise"]
# ### Exercise 8.7 · Patient F
# ●●○ · 3 minutes
#
# The head of this network gives minus the distance to a centre for each class. One picture in forty is empty: a page that
# the scanner missed. Read the findings in their order. Who made the first nan? Diagnose and mend.
#
# <details><summary>Hint: where it arrives and who made it</summary>
#
# The gradient of an output is made by what comes after it.
# </details>
# <details><summary>Hint: what do I change?</summary>
#
# `training.model.head` has an `eps`, which it adds under the root.
# </details>

# %% tags=["solution"]
def treat_f(training) -> tuple[str, str]:
    """Mend the training; return the module and the cause."""
    ### BEGIN SOLUTION
    training.model.head.eps = 1e-6
    return "head", "nan in the backward"
    ### END SOLUTION

# %% tags=["check"]
check("8.7", treat_f)

# %% [markdown]
# ## How a unit dies
#
# In lesson 3, two of sixteen channels never fired, on any digit. Now you can see it happen. The same network, the same first
# weights: a hook on `relu2` writes down in each step on which share of the batch each channel fires.

# %% tags=["field", "field-192"]
seen = first_passes(seed=0, steps=184)  # eight times through the data, as in lesson 3
dead = seen.dead()
print("dead in the end:", dead)
for channel in dead:
    print(f"channel {channel}: fires on {seen.fires[0, channel].item():.0%} of the first batch")
assert len(dead) == 2 and seen.fires[0, dead[0]] > 0.8 and seen.fires[0, dead[1]] == 0.0

# %% [markdown]
# One of the two was born dead: its first weights put it below zero for every digit, so it gets no gradient. The
# other one was among the busiest of all.

# %%
predict("8.c")

# %% tags=["predict", "figure"]
last = seen.last_fired(dead[0])
print("What came out:")
print(f"channel {dead[0]} fires for the last time in step", last)
figure = figures.deaths(seen.first(40))
plt.show()

# %%
reveal("8.c", last)
assert last < 10 and not seen.fires[last + 1 :, dead[0]].any(), (
    "In the page's training, seed 0, channel 0 is dead after ten steps."
)
assert not seen.fires[3:10, 13].any() and not seen.fires[:4, 15].any(), (
    "In the page's training, seed 0, channels 13 and 15 are dark for some steps."
)
assert seen.fires[16, [13, 15]].min() > 0.9, (
    "In the page's training, seed 0, channels 13 and 15 fire again in step 16."
)

# %% [markdown]
# How far does Adam move a weight? It divides the gradient by its own running size. So its **first step** moves every weight by
# the whole learning rate, whatever the size of the gradient:

# %%
model = nn.Linear(3, 1)
adam = torch.optim.Adam(model.parameters(), lr=0.005)
with hooklab.monitor(model, updates=adam) as health:
    (model(torch.ones(1, 3)) * 1e-3).sum().backward()  # a small gradient
    adam.step()
print("the largest move:", round(health.series("update", "", "largest")[1][0], 4))
assert abs(health.series("update", "", "largest")[1][0] - 0.005) < 1e-4

# %% [markdown]
# Back to channel 0. A channel that is below zero for every digit lets no gradient through.

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
# A dark channel isn't always a dead one: its inputs come from layers that do learn, and may lift it above zero again. So judge a
# unit over many steps, never by one.
#
# Is that one unlucky start? `python -m hooklab experiment deaths` takes twenty. Here they gave 22 dead channels: 4 born dead, 16 that
# fired last in one of the first ten steps, and 2 later. So "the network has learned not to need it" is not what happened. The first
# steps were too large, as for patient A: one reason why people warm the learning rate up.

# %% [markdown]
# ## In the field
#
# ### "Under a GradScaler, my hook sees gradients a thousand times too large"
#
# In half precision, small gradients become 0. A scaler multiplies the loss, and so every gradient that flows; before the
# step it divides the parameters' `.grad`. A hook sees what flows: divide by `scaler.get_scale()`.
# ([A thread about it](https://github.com/ashawkey/stable-dreamfusion/issues/158))

# %% tags=["field", "field-138"]
model, x = nn.Linear(2, 1), torch.ones(4, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
sgd = torch.optim.SGD(model.parameters(), lr=0.0)
with hooklab.monitor(model, grads=True) as health:
    scaler.scale(model(x).mean()).backward()
flows = health.series("gradient", "", "mean")[1][0]
scaler.unscale_(sgd)

print("a hook sees", flows, "  divided by the scale:", flows / scaler.get_scale(), "  bias.grad:", model.bias.grad.item())
assert flows == 256.0 and flows / scaler.get_scale() == 0.25 and model.bias.grad.item() == 1.0

# %% [markdown] tags=["recap"]
# ## Recap
#
# The loss comes last and tells least. Ask each module: finite in, finite out? Then look at shares and sizes over the steps:
# zeros, deviations, gradients, |Δw| / |w|. And ask of each part: does it run, does a gradient come, does it move?
#
# | what you see | what it means | what helps |
# |---|---|---|
# | a module's inputs are finite, its output is not | it was made there | its input's range says how: overflow, log, 0 / 0 |
# | outputs finite, a gradient arrives as nan | made by what comes after | a harmless number in the branch not taken; eps under a root |
# | outputs zero for every picture | dead units | smaller first steps, warm-up, normalisation |
# | outputs at an end of the range | saturated | smaller inputs or first weights, normalisation |
# | gradient shrinks layer by layer | vanishing | ReLU with a fitting spread, normalisation |
# | no output | never called | the module, by its call and not by `.forward` |
# | output, and `.grad` is None | detached, or frozen | find the `detach`, `no_grad`, `requires_grad`; a hook that returns |
# | gradient, and no update | not in the optimizer | make the optimizer after the last change of the model |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | non-finite value | 非有限值 | inf or nan |
# | dead unit | 死亡神经元 | a ReLU that is off for every input, and gets no gradient |
# | saturation | 饱和 | an activation at the flat end of its range |
# | vanishing gradient | 梯度消失 | it shrinks from layer to layer on the way back |
# | exploding | 爆炸 | outputs or gradients grow beyond all measure |
# | update ratio | 更新比率 | the size of a step beside the size of the weights |
# | loss scaling | 损失缩放 | the loss is multiplied so that half precision holds the gradients |
# | warm-up | 学习率预热 | the learning rate grows over the first steps |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** In the first step a forward hook finds every output finite, and in the second the loss is nan. Where do you look?
#
# <details><summary>Answer</summary>
#
# At the gradients of the first step. A nan in one of them goes into the weights with `optimizer.step()`, and in the next forward
# everything is nan.
# </details>
#
# **2.** The share of zeros after a ReLU is 50 %. Is half of the layer dead?
#
# <details><summary>Answer</summary>
#
# That cannot be said: each unit may be off for half of the pictures, or half of the units for all. Take the share per unit, as in
# "How a unit dies".
# </details>
#
# **3.** A layer has gradients of a healthy size, and |Δw| / |w| is 0. What has happened?
#
# <details><summary>Answer</summary>
#
# The optimizer has the parameters and does not move them: a learning rate of 0 in their group, or of a schedule. If it did not
# have them, there would be no update at all.
# </details>

# %%
progress(8)

# %% [markdown]
# ## If you want more
#
# ### Four other starts, and a smaller step
#
# With a tenth of the learning rate no busy channel is killed.

# %%
starts = [first_passes(seed, steps=25) for seed in range(1, 5)]
slower = [first_passes(seed, steps=25, lr=5e-4) for seed in range(1, 5)]
last_signs = [seen.last_fired(channel) for seen in starts for channel in seen.dead()]
killed = [sum(seen.fires[0, channel].item() > 0.5 for channel in seen.dead()) for seen in (starts + slower)]
print("four other starts, every dead channel fired last before step 10:", max(last_signs) < 10)
print("busy channels killed, with the same learning rate and with a tenth:", sum(killed[:4]) > 0, sum(killed[4:]) > 0)
assert max(last_signs) < 10 and sum(killed[:4]) > 0 and sum(killed[4:]) == 0

# %% [markdown]
# ### `torch.autograd.detect_anomaly`
#
# PyTorch has a detector of its own. It raises at the first node of the backward that returns a nan, and shows the line of
# the forward that made the node: more exact than a module's name. It sees no inf, nothing of the forward, and keeps a
# stack trace for every operation. On a small model as here a step took 2.4 times as long when we measured, and as long under a
# monitor of outputs and gradients; that one can look at every tenth step only (`every=10`).

# %% tags=["field", "field-191"]
def anomaly(function) -> str:
    with torch.autograd.set_detect_anomaly(True):
        return error_of(gradient_at_zero, function).split(".")[0]


print("sqrt(0) * 0:", anomaly(lambda x: x.sqrt() * 0))
print("sqrt(0):    ", anomaly(torch.sqrt))
assert anomaly(lambda x: x.sqrt() * 0) == "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output"
assert anomaly(torch.sqrt) == "no error"  # the gradient is inf

# %% [markdown]
# ### "inf in half precision, and in single precision all is well"
#
# float16 holds no more than 65504. The monitor says so by name, at the module that overflows; bfloat16 has the range of
# float32 and fewer digits.

# %% tags=["field", "field-195"]
layer = nn.Linear(1, 1, bias=False).half()
nn.init.constant_(layer.weight, 100.0)
with hooklab.monitor(layer, on_nonfinite="ignore") as health:
    layer(torch.full((1, 1), 1000.0, dtype=torch.float16))
print(health.first_nonfinite.text)
assert health.first_nonfinite.text.endswith("float16 holds no more than 65504.")
assert layer.bfloat16()(torch.full((1, 1), 1000.0, dtype=torch.bfloat16)).isfinite().all()

# %% [markdown]
# ### "Under a GradScaler, a gradient is inf in some step"
#
# When a scaled gradient overflows, the scaler skips the step and halves its scale: one inf is no illness there.

# %% tags=["field", "field-scaler-inf"]
sgd.param_groups[0]["lr"], before = 1.0, model.weight.detach().clone()
sgd.zero_grad()
scaler.update()
scaler.scale(model(x).mean() * float("inf")).backward()
scaler.step(sgd)
scaler.update()
print("moved:", not torch.equal(model.weight, before), "  scale:", scaler.get_scale())
assert torch.equal(model.weight, before) and scaler.get_scale() == 512.0

# %% [markdown]
# ### "Accuracy falls after I looked"
#
# Looking is a forward like any other. In train mode it moves the statistics of batch normalisation, under `no_grad`
# as well: call `model.eval()` to look. ([A thread about it](https://github.com/sksq96/pytorch-summary/issues/67))

# %% tags=["field", "field-113"]
model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
means = [model[1].running_mean.clone()]
for mode in (model.eval, model.train):
    mode()
    with torch.no_grad(), hooklab.monitor(model):
        model(torch.rand(8, 2) + 9)
    means.append(model[1].running_mean.clone())
print("moved by a look in eval mode:", not torch.equal(means[0], means[1]), "  in train mode:", not torch.equal(means[1], means[2]))
assert torch.equal(means[0], means[1]) and not torch.equal(means[1], means[2])

# %% [markdown]
# ### The hook as the fault
#
# The doctor can make ill. Two hooks below watch the same training; one keeps what it is given, one keeps a number. How
# many graphs are alive after five steps?

# %%
import gc
import weakref


def graphs_alive(keep) -> int:
    """Train five steps with a hook that stores keep(output); count the outputs whose graph is still there."""
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
assert graphs_alive(lambda output: output) == graphs_alive(lambda output: output.std()) == 5
assert graphs_alive(lambda output: output.std().item()) == 0

# %% [markdown] tags=["field", "field-slow"]
# Without `.item()`, `output.std()` is a tensor with a graph of its own, which keeps the whole output. But on a GPU,
# `.item()` in each hook has a price: Python waits there until the device has caught up. `monitor` leaves its numbers on the
# device and fetches them once a step.
