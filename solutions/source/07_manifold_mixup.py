# %% [markdown]
# # 7 · How does one forward hook become a training method?
#
# **Time** 60 minutes, and 63 for the extras after the recap &nbsp;·&nbsp; **You need** lesson 3: a forward hook that returns, and a `with` block that cleans up
#
# After this lesson you can
#
# - mix the samples of a batch, and their labels, at any layer of a network that you didn't write;
# - train with your own manifold mixup, and with `hooklab.ManifoldMixup`;
# - name the mistakes that raise no error and spoil such a method, and test for each of them;
# - read an experiment: how its settings were chosen, and how sure its result is.
#
# PyTorch's documentation of
# [`register_forward_hook`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook)
# says that a hook may replace the output. Here you'll make a training method out of that one sentence.

# %% tags=["setup"]
import contextlib
import functools
import textwrap
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.distributions import Beta
from torch.nn import functional as F

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course import plots
from hooklab.course.digits import digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson07 import explorer, figures, ready, report
from hooklab.course.lesson07.experiment import POOL, SCENARIOS, run

torch.set_num_threads(1)

# %% [markdown]
# ## Half of one digit, half of another
#
# What does a network say about a picture that is half one digit and half another? Choose two digits and how much of each you
# want, and look at the answer. Then mix the same two deeper in the network.

# %% tags=["explorer"]
explorer.mixing()

# %% tags=["figure"]
an_eight = []
for layer in ("input", "relu2"):  # without a kernel: two positions
    mixture = explorer.mix(1, 8, 0.5, layer)
    words = explorer.describe_mixture(mixture, 1, 8, 0.5, layer)
    plots.show(explorer.draw_mixture(mixture, (1, 8)), words)
    assert torch.isclose(mixture.probabilities.sum(), torch.tensor(1.0))
    an_eight.append(mixture.probabilities.flatten()[8].item())
assert 0.5 < an_eight[0] < an_eight[1] - 0.05  # the place makes a difference

# %% [markdown]
# *What to see:* the two pictures above are half a 1 and half an 8. In the first, the images are mixed. In the second, the outputs
# of `relu2`, the network's second ReLU, are mixed (four of its 16 maps are shown). The purple bars should be equal: half and
# half. But this network was never trained on mixtures. It prefers the 8, more clearly at `relu2` than at the input.
#
# **Mixup** trains a network on such mixtures, with labels that are mixed in the same way. **Manifold mixup** makes them somewhere
# inside the network. One forward hook does it, and you're going to write it.

# %% [markdown]
# ## A network that is too sure
#
# Where would that help? Here are two spirals in the plane, one for each class. The network has a hidden layer of only **two
# units**, so that we can draw it. (The example is from the authors of manifold mixup.)

# %%
points, arms = figures.two_spirals()


def plain_loss(net):
    return F.cross_entropy(net(points), arms)


def train(loss_of, seed: int = 0) -> figures.SpiralNet:
    torch.manual_seed(seed)
    net = figures.SpiralNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(500):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
    return net.eval()


plain_net = train(plain_loss)

# %% tags=["figure"]
plots.show(
    figures.spirals({"without mixup": plain_net}, points, arms),
    "Two spirals in the plane, and the same points in the hidden layer; "
    "there's hardly any white between the two colours.",
)
assert (plain_net(points).argmax(dim=1) == arms).float().mean() > 0.98
assert figures.sure_share(plain_net) > 0.9

# %% [markdown]
# *What to see:* on the left is the plane. Black is the line between the classes, and white is where the network is undecided.
# There's hardly any white, even far from every point that it has seen: the title says on how much of the plane the network is
# sure (it gives one class 90 % or more). On the right are the two hidden units. The small dark dots are points from all over
# the plane, and *width* says how wide a class is there: 0 is a line, and 0.5 is as wide as long.
#
# Later in this lesson, you'll train the same network with your own mixup, and see what changes.

# %% [markdown]
# ## Before the ReLU or after it?
#
# To **mix** two samples, you add them with weights: a share λ ("lambda") of one sample, and 1 − λ of the other, its **partner**.
# Here are two samples, 4 and −4. Each is the other's partner, and λ is three quarters.

# %%
lam = 0.75
indices = torch.tensor([1, 0])  # each sample's partner is the other one

def mix(values):  # uses the current lam and indices
    return lam * values + (1 - lam) * values[indices]

# %%
predict("7.a")

# %% tags=["predict"]
relu, x = nn.ReLU(), torch.tensor([4.0, -4.0])
before, after = relu(mix(x)).tolist(), mix(relu(x)).tolist()
print("What came out:")
print("mixed, then ReLU:", before)
print("ReLU, then mixed:", after)

# %%
reveal("7.a", (before, after))
assert mix(x).tolist() == [2.0, -2.0], (
    "With the page's λ, 4 and −4 mix to 2 and −2."
)
assert before == [2.0, 0.0] and after == [3.0, 1.0], (
    "With the page's numbers, it's (2, 0) before the ReLU and (3, 1) after it."
)

# %% [markdown]
# And in a linear layer? There, the order makes no difference:

# %%
linear, column = nn.Linear(1, 1), torch.tensor([[4.0], [-4.0]])
assert torch.allclose(linear(mix(column)), mix(linear(column)))  # the bias included

# %% [markdown]
# Mixing inputs is called
# [mixup (Zhang and others, 2018)](https://arxiv.org/abs/1710.09412), and mixing inside the network
# [manifold mixup (Verma and others, 2019)](https://arxiv.org/abs/1806.05236).
#
# ## One batch is enough
#
# Where do the partners come from? From the same batch. `indices` is a **permutation** of its row numbers, so each row gets one
# partner, and each row is the partner of one row (possibly of itself). `x[indices]` is the batch in the order of the partners.

# %%
indices = torch.tensor([2, 0, 1])
x = torch.tensor([[0.0], [4.0], [8.0]])

print("samples: ", x.flatten().tolist())
print("partners:", x[indices].flatten().tolist())
print("mixed:   ", mix(x).flatten().tolist())
assert x[indices].flatten().tolist() == [8.0, 0.0, 4.0]
assert mix(x).flatten().tolist() == [2.0, 3.0, 7.0]

# %% [markdown]
# A mixed sample needs a mixed target. For that, write a target as **one-hot**: a row with a 1 at the index of its class. Three
# quarters of a cat and a quarter of a dog then have the target (¾, ¼).

# %%
labels = torch.tensor([0, 2, 1])
one_hot = F.one_hot(labels, num_classes=3).float()

print("one-hot:", one_hot.tolist())
print("mixed:  ", mix(one_hot).tolist())
assert mix(one_hot).sum(dim=1).tolist() == [1.0, 1.0, 1.0]  # still shares of a whole
assert mix(one_hot)[0].tolist() == [0.75, 0.25, 0.0]  # class 0, its partner class 1

# %% [markdown] tags=["exercise"]
# ### Exercise 7.1 · Mix a batch and its targets
# ●○○ · 5 minutes
#
# `x` holds n samples of any shape, and `y` holds their one-hot targets. Return the **mixed x** and the **mixed y**: λ times each
# row plus 1 − λ times its partner. The partner of row i is row `indices[i]`.
#
# <details><summary>Hint: the check says that my partners are the wrong way round</summary>
#
# Row i gets row `indices[i]` as its partner. Indexing with the whole tensor does that for all rows at once.
# </details>
# <details><summary>Hint: the check says that I changed a tensor in place</summary>
#
# `x *= lam` writes into the batch that you were given. `lam * x` makes a new tensor.
# </details>

# %% tags=["solution"]
def mix_batch(
    x: torch.Tensor, y: torch.Tensor, lam: float, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x and y, each mixed with its rows in the order of `indices`."""
    ### BEGIN SOLUTION
    mixed_x = lam * x + (1 - lam) * x[indices]
    mixed_y = lam * y + (1 - lam) * y[indices]
    return mixed_x, mixed_y
    ### END SOLUTION

# %% tags=["check"]
check("7.1", mix_batch)

# %% [markdown]
# Six real digits, mixed by your function. The numbers under a mixture are its target:

# %% tags=["figure"]
mix_rows = yours_or("7.1", mix_batch, ready.mix_batch)
images, labels = digits().test_images[67:73], digits().test_labels[67:73]
order = torch.tensor([1, 2, 3, 4, 5, 0])
mixed, targets = mix_rows(images, F.one_hot(labels, 10).float(), 0.75, order)
plots.show(
    figures.batch(images, images[order], mixed, targets),
    "Six digits, their partners, and ghosts of both, in which the first is darker.",
)
assert targets[0, labels[0]] == 0.75 and targets[0, labels[1]] == 0.25

# %% [markdown]
# ## Two losses instead of one
#
# Class labels are usually numbers: 3, 5. **Never mix those.** Half a 3 and half a 5 make a 4, and neither of the two samples is
# a 4.
#
# But look at the cross entropy of a mixed target. Here the network says: one quarter class 0, three quarters class 1. The loss is
# log 4 if class 0 is right, and log 4/3 if class 1 is right.

# %%
logits = torch.tensor([[1.0, 3.0]]).log()  # softmax turns this into (1/4, 3/4)
if_class_0 = F.cross_entropy(logits, torch.tensor([0]))
if_class_1 = F.cross_entropy(logits, torch.tensor([1]))
if_mixed = F.cross_entropy(logits, torch.tensor([[0.75, 0.25]]))

print(f"class 0: {if_class_0:.3f}   class 1: {if_class_1:.3f}")
print(f"¾ and ¼: {if_mixed:.3f}")
assert torch.isclose(if_class_0, torch.tensor(4.0).log())
assert torch.isclose(if_class_1, torch.tensor(4 / 3).log())
assert torch.isclose(if_mixed, 0.75 * if_class_0 + 0.25 * if_class_1)

# %% [markdown]
# The loss of the mixed target equals the mixture of the two losses, because cross entropy is **linear in its target**. So you
# don't need mixed targets: compute the loss twice from **the same** logits, and mix the two results. (If a loss isn't linear in
# its target, the two ways differ. "If you want more" has an example.)

# %% [markdown] tags=["exercise"]
# ### Exercise 7.2 · The loss of a mixture
# ●○○ · 5 minutes
#
# A mixed batch has gone through the network, and `logits` is the result. `y` holds the **class numbers** of the samples. Return
# the mixed loss: λ times the loss for each sample's own class, plus 1 − λ times the loss for its partner's class.
# `loss_fn(logits, y)` is any loss function that takes class numbers; it may return one loss for the batch, or one for each
# sample.
#
# <details><summary>Hint: "expected … Long … but got Float"</summary>
#
# You mixed class numbers, and the result isn't a class number. Call `loss_fn` twice, each time with unmixed targets.
# </details>
# <details><summary>Hint: my loss is the loss without mixing</summary>
#
# Did you also put the logits in the partners' order? The network's result is already mixed. Only the targets change places.
# </details>

# %% tags=["solution"]
def mixed_loss(
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    logits: torch.Tensor,
    y: torch.Tensor,
    lam: float,
    indices: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of logits that a mixed batch gave."""
    ### BEGIN SOLUTION
    own = loss_fn(logits, y)
    partner = loss_fn(logits, y[indices])
    return lam * own + (1 - lam) * partner
    ### END SOLUTION

# %% tags=["check"]
check("7.2", mixed_loss)

# %% [markdown]
# ## In the middle of a network
#
# To mix the input, you don't need a hook: mix `x` before you call the model. To mix in the middle, you would have to rewrite the
# model's `forward`. Or you use a forward hook: what it returns replaces the layer's output (lesson 3). S3 does it this way. Its
# λ and permutation are stored in an object, and the hook is a method:

# %%
class Mixer:
    def __init__(self, lam, indices):
        self.lam, self.indices = lam, indices

    def layer_hook(self, module, inp, out):
        out = self.lam * out + (1 - self.lam) * out[self.indices]
        return out


class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


# %% [markdown]
# The ReLU returns (4, 0), and the mixture of these is (3, 1), as above. The next layer multiplies by 10.

# %% tags=["claim-S3.9"]
model, x = nn.Sequential(nn.ReLU(), Times(10)), torch.tensor([4.0, -4.0])
mixer = Mixer(0.75, torch.tensor([1, 0]))
usual = model(x)
with model[0].register_forward_hook(mixer.layer_hook):
    mixed = model(x)

print("usual:", usual.tolist(), "  mixed at the ReLU:", mixed.tolist())
assert usual.tolist() == [40.0, 0.0]
assert mixed.tolist() == [30.0, 10.0]
assert model(x).tolist() == [40.0, 0.0]  # and the hook is gone

# %% [markdown]
# "Only the output can be changed, best by return", says S3. Both halves matter. When a forward hook runs, the input has already
# been used. And if you forget the `return`, nothing changes: `out = …` only gives the name `out` a new tensor, inside the hook.
# The targets are then mixed and the features aren't, and there's no error.

# %% [markdown]
# ## Two hooks that look alike
#
# A layer multiplies by its weight, 2. Its input is the samples 1 and 5. A hook mixes its output, either with `out[indices]` or
# with `out[indices].detach()`.

# %%
def there_and_back(hook):
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    with layer.register_forward_hook(hook):
        mixed = layer(torch.tensor([[1.0], [5.0]]))
    mixed[0].sum().backward()
    return mixed.flatten().tolist(), layer.weight.grad.item()


lam, indices = 0.75, torch.tensor([1, 0])

def one_hook(module, args, out):
    return lam * out + (1 - lam) * out[indices]

def other_hook(module, args, out):
    return lam * out + (1 - lam) * out[indices].detach()

# %%
predict("7.b")

# %% tags=["predict"]
whole, detached = there_and_back(one_hook), there_and_back(other_hook)
print("What came out:")
print("                       mixed values, gradient of the weight")
print("out[indices]:         ", *whole)
print("out[indices].detach():", *detached)

# %%
reveal("7.b", (whole, detached))
assert whole == ([4.0, 8.0], 2.0), (
    "With the page's numbers, the first hook gives 4 and 8, and a gradient of 2."
)
assert detached == ([4.0, 8.0], 0.75), (
    "With the page's numbers, the second hook gives 4 and 8, and a gradient of 0.75."
)

# %% [markdown]
# The mixed values and the loss are the same. Only a gradient shows the difference, and who prints gradients while training? "If
# you want more" has other mistakes that raise no error.

# %% [markdown] tags=["exercise"]
# ### Exercise 7.3 · A hook that mixes, and cleans up
# ●●○ · 9 minutes
#
# Write `with mixing(layer, lam, indices):`.
#
# 1. Inside the block, the output of `layer` is mixed.
# 2. After the block, your hook is gone, **even if the block raises**.
# 3. Gradients must flow through both parts of each mixture.
# 4. The tensor that the layer itself returned must not change.
#
# <details><summary>Hint: "object is not an iterator", or "does not support the context manager protocol"</summary>
#
# The function needs a `yield`, at the place where the lines of the block run. Lesson 3 has an example.
# </details>
# <details><summary>Hint: after an exception, my hook is still there</summary>
#
# A handle works in a `with` statement, so your function can use one. Or use `try … finally`.
# </details>

# %% tags=["solution"]
@contextlib.contextmanager
def mixing(layer: nn.Module, lam: float, indices: torch.Tensor) -> Iterator[None]:
    """Mix the layer's output during the block: λ of each row, 1 - λ of its partner."""
    ### BEGIN SOLUTION
    def mix_output(module, args, out):
        return lam * out + (1 - lam) * out[indices]

    with layer.register_forward_hook(mix_output):
        yield
    ### END SOLUTION

# %% tags=["check"]
check("7.3", mixing)

# %% [markdown]
# ## How much to mix
#
# For each batch, λ is drawn again, from a **Beta distribution**, Beta(α, α). The number α controls how strongly to mix.

# %% tags=["figure", "claim-S3.14"]
torch.manual_seed(0)
draws = {alpha: Beta(alpha, alpha).sample((4000,)) for alpha in (0.2, 1.0, 2.0, 8.0)}
plots.show(
    figures.lambdas(draws),
    "Histograms of λ. For α = 0.2 most draws are near 0 and 1, "
    "for α = 1 they are even, for 2 and 8 they gather around a half.",
)

def between(lams):
    return ((lams > 0.25) & (lams < 0.75)).float().mean().item()


in_the_middle = [between(lams) for lams in draws.values()]
assert all(0 <= lam <= 1 for lams in draws.values() for lam in lams)
assert in_the_middle == sorted(in_the_middle)  # the larger α, the closer to a half

# %% [markdown]
# *What to see:* grey are 4000 draws of λ, and purple is the density. With a small α, most batches stay almost unmixed. The larger
# α is, the nearer the mixtures come to half and half. We take α = 2. For this α there's a shortcut: **take the middle one of three
# uniform random numbers.** ("A generator, and the place" below says why.)
#
# ## Train with your own mixup
#
# This is the whole method:

# %% tags=["figure"]
plots.show(
    figures.method(),
    "x goes through layer 1, a box that mixes, and layer 2 to two losses; "
    "λ and partners go to the box and to the losses.",
)

# %% [markdown]
# *What to see:* λ and the partners (purple) are drawn once for each batch, and both go to two places: to the features and to the
# losses. (If you allow several layers, the place is drawn, too.)
#
# Now the spirals again. The network, its initial weights and the number of steps are the same as before. Only the loss is new: it
# uses your `mixing` and your `mixed_loss`, at the hidden layer.

# %%
mix_layer = yours_or("7.3", mixing, ready.mixing)
loss_of_mixture = yours_or("7.2", mixed_loss, ready.mixed_loss)
generator = torch.Generator().manual_seed(0)


def manifold_loss(net):
    lam = torch.rand(3, generator=generator).median().item()
    indices = torch.randperm(len(points), generator=generator)
    with mix_layer(net.encoder, lam, indices):
        logits = net(points)
    return loss_of_mixture(F.cross_entropy, logits, arms, lam, indices)


mixed_net = train(manifold_loss)
nets = {"without mixup": plain_net, "with your mixup": mixed_net}

# %% tags=["figure"]
plots.show(
    figures.spirals(nets, points, arms),
    "The two spirals for both networks; with mixup, "
    "a wide white band lies between the classes.",
)

sure = [figures.sure_share(net) for net in nets.values()]
flat = [figures.flatness(net.encoder(points), arms) for net in nets.values()]
assert (mixed_net(points).argmax(dim=1) == arms).float().mean() > 0.98
assert sure[1] < sure[0] - 0.05 and flat[1] < 0.5 * flat[0]

# %% [markdown]
# *What to see:* both networks classify (nearly) all points correctly. With your mixup, there's a wide undecided band between
# the classes. In the hidden layer, each class is now nearly a line: its width is less than half of what it was. (This is seed
# 0; try others.)

# %% [markdown]
# ## The same with `hooklab`
#
# `hooklab.ManifoldMixup` is this lesson in one object. It takes the model unchanged, and names of layers. Each `with` block draws
# a place (the input or one of the layers), λ and a permutation, and `mixed.loss` mixes the loss with the same λ and permutation.
# Here are twenty batches, each computed a second time with your own `mixing` and `mixed_loss`:

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Identity(), nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
own_generator = torch.Generator().manual_seed(0)
mixup = hooklab.ManifoldMixup(model, ["2"], generator=own_generator)

for _ in range(20):
    with mixup(x, y) as mixed:
        loss = mixed.loss(F.cross_entropy, model(mixed.x))
    # the same draw with yours; the identity returns the input
    layer = model[0] if mixed.layer == "input" else model[2]
    with mix_layer(layer, mixed.lam, mixed.permutation):
        logits = model(x)
    yours = loss_of_mixture(F.cross_entropy, logits, y, mixed.lam, mixed.permutation)
    assert torch.allclose(loss, yours)
print("places:", mixup.choices, "  hooks left:", len(hooklab.leftover_hooks(model)))

# %% [markdown]
# ## Does it help?
#
# We tried it on three tasks that are hard enough for errors and small enough for a laptop:
#
# - **few clean labels**: 100 of scikit-learn's digits to train on, all labels right;
# - **20 % wrong labels**: 600 digits, and one label in five is wrong;
# - **shapes in noise**: 500 generated images of discs, rings, squares, triangles and crosses.
#
# Look at the second task first. We trained for 600 steps, without mixup and with it (α = 2), and measured the error on other
# examples, which we used for choosing settings (**validation examples**). With mixup, the error was 5.1 to 6.6 points lower,
# depending on the place of the mixing. That looks like a great method!
#
# But is it fair? 600 steps may suit one method and not the other. So give each of the two its own best number of steps.

# %%
results = report.committed()
few, wrong, shapes = results["settings"]["scenarios"]
lowest = functools.partial(report.lowest, results)

gains = report.gains(results, wrong, steps=600, alpha=2.0)
print(f"error with mixup, 600 steps: {min(gains):.1f} to {max(gains):.1f} points lower")
assert min(gains) > 5 and 6.5 < max(gains) < 7

# %%
predict("7.c")

# %% tags=["predict", "figure"]
without, with_mixup = lowest(wrong, places=[]), lowest(wrong, alpha=2.0)
gain = without - with_mixup
print("What came out:")
print(f"without mixup: {without:.1f} %, with mixup: {with_mixup:.1f} %")
rows = [row for row in results["validation"] if row["scenario"] == wrong]
two_ways = [row for row in rows if row["alpha"] in (0.0, 2.0)]  # 0: without mixup
plots.show(
    figures.by_steps(two_ways, results["settings"]["places"]),
    figures.TWO_WAYS,
)

# %%
reveal("7.c", gain)
assert 1 < gain < 2.5, "In the stored results, the gain is about 1.6 points."
assert lowest(wrong, places=[], steps=150) == without, (
    "In the stored results, 150 steps are best without mixup."
)

# %% [markdown]
# *What to see:* compare the two circles, the lowest error without mixup (grey) and with it. At 600 steps, the distance is much
# larger: there the network without mixup has learned the wrong labels by heart, and mixup slows that down. (Each point is the
# mean of four trainings of that many steps. One in five validation labels is wrong, too, so even a perfect network has an
# error of 20 %. Each colour is a set of places: 0 is the input, 1 and 2 are the network's two convolutional blocks, and 3 is
# its hidden layer. The circle with mixup is the best of all five sets.)
#
# We made this mistake ourselves: most of the gain of our first comparison came from a rival that was trained for too long. **If
# you compare two methods at settings that suit one of them, you learn about the settings.**
#
# So we started again. Each method got its own best number of steps (and mixup its own best α and places), chosen on validation
# examples. Then each was trained from 20 new seeds and measured once on **test** examples. Here is how many points the error
# changes with manifold mixup:

# %%
print(report.in_short(results))

# %% [markdown]
# A negative number is a lower error. The range in brackets, the **confidence interval**, is what the 20 seeds leave open (95 %).
# "May be chance" also takes into account that this was one of 18 comparisons: three pairs of methods, three tasks,
# and two measures (the second one, and all results, are below).
#
# So it depends. Compared with no mixup, manifold mixup gains almost two points in two tasks, and it **costs** 1.7 points in the
# third. Compared with input mixup, it's clearly better in one task of three. We don't know why it fails with the shapes.
#
# But manifold mixup had more tries than its rivals (each setting was judged by the mean of four seeds):

# %%
tried = report.tried(results)
print("settings tried:", tried)
assert tried == {"no mixup": 6, "input mixup": 24, "manifold mixup": 96}

# %% [markdown]
# That's one of six things that you can hold against us. The others come after the recap, with all the results.

# %% [markdown] tags=["recap"]
# ## Recap
#
# A forward hook that returns `lam * out + (1 - lam) * out[indices]` mixes a batch anywhere in a model. The loss is the mixture
# of two losses with the same `lam` and `indices`. Whether that helps depends on the task. To find out, give each method its
# own best settings before you compare.
#
# | the documents say | today |
# |---|---|
# | only the output can be changed, best by return: manifold mixup as `lam * out + (1 - lam) * out[indices]` (S3) | true. A training method needs more: one λ, permutation and place for each batch, the **same** for features and targets, gradients to both parts, and a hook that is removed afterwards |
#
# | a mistake without an error | a test for it |
# |---|---|
# | ↓ the hook returns nothing | with λ = 0, each sample must turn into its partner |
# | ↓ x and y have different partners | use samples whose values are their classes |
# | ↓ λ is folded in one of two places | compare with a mixture made by hand, with λ below ½ |
# | gradients are cut off | look at the gradient of a layer before the mixture |
# | ↓ the model, or the layer, runs twice | count the calls |
# | ↓ the hook is inside a residual block | look at the shares in the block's output |
# | the rival was trained for too long | choose the number of steps for each method on validation examples |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | mixup | 混合增强 | train on weighted sums of two samples, and of their targets |
# | manifold mixup | 流形混合 | the same with features from inside the network |
# | permutation | 置换 | every row number once, in a different order |
# | one-hot target | 独热标签 | a row with a 1 at the index of the class |
# | Beta distribution | 贝塔分布 | the distribution of λ; Beta(1, 1) is uniform |
# | generator | 随机数生成器 | an object with its own random state |
# | ↓ residual block | 残差块 | adds its input to the result of its layers |
# | validation examples | 验证集 | used to choose settings, so they can't be used to judge the result |
# | ↓ negative log-likelihood (NLL) | 负对数似然 | the mean cross entropy on test data; punishes being sure and wrong |
# | confidence interval | 置信区间 | the range that the data leave open for a difference |
#
# (↓ comes below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Your hook is on the first layer of a network, a convolution. Your colleague mixes the images instead, with the same λ and
# the same partners. Who gets the better network?
#
# <details><summary>Answer</summary>
#
# Neither. A convolution is linear, so both train on the same mixtures, up to rounding. Register the hook on the activation after
# it.
# </details>
#
# **2.** A hook mixes with `out.detach()[indices]`, and the network still learns. What is lost?
#
# <details><summary>Answer</summary>
#
# The layers before the mixture get no gradient through the partners. The values and the loss are right: only the gradients of
# these layers show it.
# </details>
#
# **3.** In a table, a new method has 6 points less error than plain training. Both were trained for 600 steps. What do you ask?
#
# <details><summary>Answer</summary>
#
# How were the 600 chosen, and for which method? If plain training is best at 150 steps, any method looks good at 600. Also: how
# many seeds, which interval, after how many comparisons, and how many settings were tried for each method?
# </details>

# %%
progress(7)

# %% [markdown]
# ## If you want more
#
# The rest is optional: two exercises, more mistakes without an error, all results of the comparison, and other tools.

# %% [markdown]
# ### A generator, and the place
#
# `Beta.sample` takes no **generator**, an object with its own random state. But you want one: it makes a run repeatable, and
# switching mixup on then doesn't change the order of the batches. For Beta(2, 2), take the middle one of three uniform numbers.
# (One of the three is below it and one above, in one of 3! = 6 orders, and 6·λ·(1 − λ) is the density of Beta(2, 2).)

# %%
generator = torch.Generator().manual_seed(0)
three = torch.rand(100_000, 3, generator=generator)
middle = three.median(dim=1).values

at = torch.linspace(0.1, 0.9, 9)
assert torch.allclose(Beta(2.0, 2.0).log_prob(at).exp(), 6 * at * (1 - at), atol=1e-5)
print(f"between ¼ and ¾: {between(middle):.2f}, and in theory 11/16 = {11 / 16:.2f}")
assert abs(between(middle) - 11 / 16) < 0.01

# %% [markdown]
# The **place** is drawn, too: for each batch one of a fixed set, which may include the input (Section 2 of the paper).

# %% [markdown] tags=["exercise"]
# ### Exercise 7.4 · The dice of a batch
# ●●○ · 6 minutes
#
# Draw what one batch of n samples needs, and return it in this order:
#
# 1. λ from Beta(2, 2), as a float;
# 2. a random permutation of the rows (a row may draw itself);
# 3. a **place**, an integer: 0 for the input, 1 … `layers` for the layers, all equally likely.
#
# All randomness must come from `generator`. Don't seed it, and don't reset it.
#
# <details><summary>Hint: the check says that the dice are global</summary>
#
# `torch.rand`, `torch.randperm` and `torch.randint` all take `generator=generator`. One of your calls doesn't.
# </details>
# <details><summary>Hint: the check says that the same came twice</summary>
#
# A generator moves on with each draw. `manual_seed` in your function puts it back to the start every time.
# </details>
# <details><summary>Hint: the check says that a place never comes</summary>
#
# With n layers there are n + 1 places. `torch.randint(k, (1,), …)` draws 0 … k − 1.
# </details>

# %% tags=["solution"]
def draw(
    n: int, layers: int, generator: torch.Generator
) -> tuple[float, torch.Tensor, int]:
    """Return λ ~ Beta(2, 2), a permutation of n rows, and a place, 0 to `layers`."""
    ### BEGIN SOLUTION
    share = torch.rand(3, generator=generator).median().item()
    order = torch.randperm(n, generator=generator)
    return share, order, int(torch.randint(layers + 1, (1,), generator=generator))
    ### END SOLUTION

# %% tags=["check"]
check("7.4", draw)

# %% [markdown] tags=["exercise"]
# ### Exercise 7.5 · Fix it: a whole step
# ●●● · 15 minutes
#
# This function takes one training step with λ, partners and place that are given. `place` 0 is the input, and place k is
# `layers[k - 1]`. It has at least five bugs. Fix them: one pass of the model, one place, the loss returned as a float, and no hook
# left, **even if the model raises**. x and y are given unmixed.
#
# ```python
# def manifold_step(model, layers, optimizer, x, y, lam, indices, place):
#     def blend(module, args, out):
#         out = lam * out + (1 - lam) * out[indices].detach()
#     handle = layers[place].register_forward_hook(blend)
#     logits = model(x)
#     handle.remove()
#     lam = max(lam, 1 - lam)
#     loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[indices])
#     loss.backward()
#     optimizer.step()
# ```
#
# <details><summary>Hint: "cannot access local variable", or "place is not …"</summary>
#
# A name that a function assigns anywhere is local everywhere in that function. So read `lam` and `x` in the hook, and assign them
# outside of it, before the pass. And `layers[0]` is place 1.
# </details>
# <details><summary>Hint: "the weights moved, but not by the gradient of the mixed loss"</summary>
#
# Does the loss use the same λ and indices that mixed the features? And do gradients reach both parts?
# </details>
# <details><summary>Hint: the check says that gradients add up</summary>
#
# What clears the gradients of the previous step?
# </details>

# %% tags=["solution"]
def manifold_step(
    model: nn.Module, layers: list[nn.Module], optimizer: torch.optim.Optimizer,
    x: torch.Tensor, y: torch.Tensor, lam: float, indices: torch.Tensor, place: int,
) -> float:  # fmt: skip
    """Take one step, mixed at the input (place 0) or at a layer; return the loss."""
    ### BEGIN SOLUTION
    def blend(values):
        return lam * values + (1 - lam) * values[indices]

    if place == 0:
        logits = model(blend(x))
    else:
        layer = layers[place - 1]
        with layer.register_forward_hook(lambda module, args, out: blend(out)):
            logits = model(x)
    own, partner = F.cross_entropy(logits, y), F.cross_entropy(logits, y[indices])
    loss = lam * own + (1 - lam) * partner
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION

# %% tags=["check"]
check("7.5", manifold_step)

# %% [markdown]
# ### More mistakes without an error
#
# **The hook returns nothing.** This was in published code, until
# [this pull request](https://github.com/shivamsaboo17/ManifoldMixup/pull/1). The targets are mixed and the features aren't. A test
# for it: **choose λ = 0.** Then every sample must turn into its partner.

# %% tags=["field", "field-24", "claim-S3.9"]
class Forgetful(Mixer):
    def layer_hook(self, module, inp, out):
        out = self.lam * out + (1 - self.lam) * out[self.indices]


model, x = nn.Sequential(nn.ReLU(), Times(10)), torch.tensor([4.0, -4.0])
outputs = {}
for mixer_class in (Mixer, Forgetful):
    mixer = mixer_class(0.0, torch.tensor([1, 0]))
    with model[0].register_forward_hook(mixer.layer_hook):
        outputs[mixer_class.__name__] = model(x).tolist()

print("without a hook:", model(x).tolist())
print("with λ = 0:    ", outputs)
assert outputs == {"Mixer": [0.0, 40.0], "Forgetful": [40.0, 0.0]}

# %% [markdown]
# **A layer that is used twice.** A model uses the same ReLU in two places, and your hook is on it. The input is three one-hot
# samples, so each output row shows how much of each sample is in it.

# %%
mixer = Mixer(0.75, torch.tensor([1, 2, 0]))  # partners in a ring
shared = nn.ReLU()
twice = nn.Sequential(shared, shared)

# %%
predict("7.d")

# %% tags=["predict"]
with shared.register_forward_hook(mixer.layer_hook):
    shares = twice(torch.eye(3))[0].tolist()
print("What came out:")
print("the shares of the three samples in the first row:", shares)

# %%
reveal("7.d", shares[0])
assert shares == [0.75**2, 2 * 0.75 * 0.25, 0.25**2], (
    "With the page's λ and ring of partners, the shares are 9/16, 6/16 and 1/16."
)

# %% [markdown]
# **The model runs twice.** Some code runs a second pass of the network for the partners
# ([a thread](https://github.com/shivamsaboo17/ManifoldMixup/pull/1)). That costs a second forward pass, and batch normalisation
# counts the batch twice. It gains nothing: the partners are rows of the same batch, and `out[indices]` has them all.

# %%
norm = nn.BatchNorm1d(1)
batch, order = torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([2, 0, 1])

out = norm(batch)
assert norm.num_batches_tracked == 1
partners = norm(batch[order])  # the second pass
print("batches counted:", norm.num_batches_tracked.item())
assert norm.num_batches_tracked == 2
assert torch.allclose(out[order], partners)

# %% [markdown]
# **λ is folded.** Some code writes `lam = max(lam, 1 - lam)`, so that each sample is the larger part of its mixture. Is this a
# mistake? A quarter of each sample and three quarters of its partner give the same three mixtures as three quarters of the partner
# and a quarter of the sample, in a different order:

# %%
x, order = torch.tensor([0.0, 4.0, 8.0]), torch.tensor([2, 0, 1])
backwards = order.argsort()  # the permutation that undoes `order`

quarter = 0.25 * x + 0.75 * x[order]
folded = 0.75 * x + 0.25 * x[backwards]
print("λ = ¼:         ", quarter.tolist())
print("λ = ¾, backwards:", folded.tolist())
assert torch.equal(folded[order], quarter)

# %% [markdown]
# So folding changes nothing **if hook and loss both do it**. If the hook folds λ and the loss doesn't, about every second batch
# (λ below ½) has its labels the wrong way round. Draw such a number once, and use it unchanged in both places.
#
# **"Images and labels get different partners."** The code shuffled the batch twice, once for the images and once for the
# labels. ([A thread](https://github.com/xudonmao/VMT/issues/1)) Nothing breaks, but the partner's share of each target is
# noise. A test: let each sample's value be its class number. Then you can compute from a mixed target what the mixed sample
# must be.

# %% tags=["field", "field-partners"]
x, one_hot = torch.arange(5.0), torch.eye(5)
order, other_order = torch.tensor([3, 0, 4, 2, 1]), torch.tensor([1, 2, 3, 4, 0])

def fitting(order_x, order_y) -> int:
    mixed_x = 0.75 * x + 0.25 * x[order_x]
    mixed_y = 0.75 * one_hot + 0.25 * one_hot[order_y]
    return torch.isclose(mixed_y @ x, mixed_x).sum().item()


print("one permutation:  ", fitting(order, order), "of 5 targets fit")
print("two permutations: ", fitting(order, other_order), "of 5 targets fit")
assert fitting(order, order) == 5 and fitting(order, other_order) == 0

# %% [markdown]
# **"May I put the hook on any layer, or only after a block?"** The authors mixed right after a residual block, and doubt that
# mixing inside one is a good idea. ([The thread](https://github.com/vikasverma1077/manifold_mixup/issues/8)) A **residual**
# block adds its input to the result of its layers. A hook on one of those layers mixes only one of the two summands. Say the
# branch doubles its input. Then two thirds of the sum are mixed, so the sum holds 5/6 of each sample, and the loss assumes 3/4.
# So give `ManifoldMixup` whole blocks. It can't see what bypasses a layer.

# %% tags=["field", "field-any-layer"]
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = Times(2)

    def forward(self, x):
        return x + self.branch(x)


block, x = Residual(), torch.tensor([4.0, -4.0])
mixer = Mixer(0.75, torch.tensor([1, 0]))
with block.register_forward_hook(mixer.layer_hook):
    after_block = block(x)
with block.branch.register_forward_hook(mixer.layer_hook):
    inside = block(x)

print("after the block:", after_block.tolist())
print("inside it:      ", inside.tolist())
assert after_block.tolist() == [6.0, -6.0]  # ¾ · 12 − ¼ · 12
assert inside.tolist() == [8.0, -8.0]  # 4, unmixed, and ¾ · 8 − ¼ · 8
assert torch.allclose(inside, 5 / 6 * block(x) + 1 / 6 * block(x)[mixer.indices])

# %% [markdown]
# ### Other losses: mix the targets, or the losses?
#
# If a loss isn't linear in its target, these are two different things. Look at the gradient: the network's output is 3, one target
# is 0, the other is 4.

# %%
def value_and_gradient(loss_of):
    output = torch.tensor(3.0, requires_grad=True)
    value = loss_of(output)
    value.backward()
    return value.item(), output.grad.item()


own, partner = torch.tensor(0.0), torch.tensor(4.0)
mixed_target = value_and_gradient(
    lambda out: (out - (0.75 * own + 0.25 * partner)).abs()
)
mixed_losses = value_and_gradient(
    lambda out: 0.75 * (out - own).abs() + 0.25 * (out - partner).abs()
)

print("absolute error, targets mixed: value and gradient", mixed_target)
print("absolute error, losses mixed:  value and gradient", mixed_losses)
assert mixed_target == (2.0, 1.0)  # |3 − 1|
assert mixed_losses == (2.5, 0.5)  # ¾ · 3 + ¼ · 1: the partner pulls the other way

squares = [
    lambda out: (out - (0.75 * own + 0.25 * partner)) ** 2,
    lambda out: 0.75 * (out - own) ** 2 + 0.25 * (out - partner) ** 2,
]
assert [value_and_gradient(one) for one in squares] == [(4.0, 4.0), (7.0, 4.0)]

# %% [markdown]
# With the squared error, the two forms have different values, 4 and 7, and the same gradient. With any loss, decide which form
# you mean.

# %% [markdown]
# ### The errors of `ManifoldMixup`
#
# Many of the mistakes above raise an error in `ManifoldMixup`, or a warning. Each message says what is wrong, and what would be
# right:

# %%
x, y = torch.rand(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))


def says(layers, model, x=x, y=y, **options) -> str:
    try:
        mixup = hooklab.ManifoldMixup(model, layers, include_input=False, **options)
        with mixup(x, y) as mixed:
            model(mixed.x)
    except (RuntimeError, LookupError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
        return textwrap.fill(message, 86, subsequent_indent="  ")
    raise AssertionError("no error came")


shared = nn.ReLU()
for message in (
    says(["0"], nn.Sequential(shared, shared)),
    says(["rleu"], model),
    says(["0"], nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (6, 2)))),
    says(["0"], nn.Sequential(nn.TransformerEncoderLayer(2, 1, 4))),
    says(["1"], model.eval()),
):
    print("-", message)
assert hooklab.leftover_hooks(model) == []

# %% [markdown]
# ### Targets and batches in other forms
#
# More questions from public threads. **"Does mixing labels equal mixing losses with class weights as well?"** For each
# example, yes. For the weighted *mean*, no: with class numbers, PyTorch divides by the summed weights of the targets, and with
# soft targets by the number of examples.

# %% tags=["field", "field-120"]
model = nn.Sequential(nn.Linear(4, 3))
x, y = torch.rand(4, 4), torch.tensor([0, 1, 2, 2])
weight = torch.tensor([1.0, 5.0, 20.0])
own_generator = torch.Generator().manual_seed(0)
mixup = hooklab.ManifoldMixup(model, [], generator=own_generator)  # at the input alone
with mixup(x, y) as mixed:
    logits = model(mixed.x)

soft = mixed.soft_targets(3)
each = nn.CrossEntropyLoss(weight=weight, reduction="none")
mean = nn.CrossEntropyLoss(weight=weight)
by_example = torch.allclose(mixed.loss(each, logits), each(logits, soft), atol=1e-5)
by_mean = torch.allclose(mixed.loss(mean, logits), mean(logits, soft), atol=1e-2)
print("the same for each example:   ", by_example)
print("the same for a weighted mean:", by_mean)
assert by_example and not by_mean
assert torch.allclose(mean(logits, soft), each(logits, soft).mean())  # by 4, the number
assert torch.allclose(mean(logits, y), each(logits, y).sum() / weight[y].sum())

# %% [markdown]
# **"My labels are maps, with a class for each pixel."** `mixed.loss` takes them unchanged. Soft targets have the classes in
# dimension 1, where cross entropy expects them.

# %% tags=["field", "field-121"]
pixels = nn.Sequential(nn.Conv2d(1, 3, 1))
images, classes = torch.rand(4, 1, 2, 2), torch.arange(16).reshape(4, 2, 2) % 3
with hooklab.ManifoldMixup(pixels, ["0"])(images, classes) as mixed:
    logits = pixels(mixed.x)
soft = mixed.soft_targets(3)

for name, one in (("logits", logits), ("labels", classes), ("soft", soft)):
    print(name, tuple(one.shape))
assert soft.shape == logits.shape == (4, 3, 2, 2)
two_losses = mixed.loss(F.cross_entropy, logits)
assert torch.allclose(two_losses, F.cross_entropy(logits, soft), atol=1e-5)

# %% [markdown]
# **"I have two tasks: my targets are a dict, or a pair."** Pass them unchanged. The loss function gets them in the same form.

# %% tags=["field", "field-136"]
targets = {"class": y, "size": torch.rand(4)}

def two_tasks(out, target):
    return F.cross_entropy(out, target["class"]) + F.mse_loss(out[:, 0], target["size"])


with mixup(x, targets) as mixed:
    logits = model(mixed.x)
swapped = {name: values[mixed.permutation] for name, values in targets.items()}
own, partner = two_tasks(logits, targets), two_tasks(logits, swapped)
by_hand = mixed.lam * own + (1 - mixed.lam) * partner
assert torch.allclose(mixed.loss(two_tasks, logits), by_hand)

# %% [markdown]
# **"My batch is the second dimension, and time steps got mixed."** By default, transformer layers and LSTMs take (time, batch,
# features). Pass `batch_dim=1`. If `ManifoldMixup` can tell that it's missing, it raises an error.

# %% tags=["field", "field-137"]
time_first = nn.Sequential(nn.TransformerEncoderLayer(4, 1, 8, dropout=0.0))
print(says(["0"], time_first, torch.rand(4, 4, 4), y))  # 4 time steps, 4 examples

along = hooklab.ManifoldMixup(time_first, ["0"], include_input=False, batch_dim=1)
sequences = torch.rand(7, 4, 4)
with along(sequences, y) as mixed:
    out = time_first(mixed.x)
usual = time_first(sequences)
partner = usual[:, mixed.permutation]
by_hand = mixed.lam * usual + (1 - mixed.lam) * partner
assert torch.allclose(out, by_hand, atol=1e-5)

# %% [markdown]
# **"With mixup, my training accuracy is lower than my validation accuracy."**
# ([A thread](https://github.com/vikasverma1077/manifold_mixup/issues/9)) Even a perfect network names the larger part of a mixture,
# and for half of all λ that's the partner. Look at the loss instead, and measure accuracy on batches that aren't mixed.

# %% tags=["field", "field-185"]
labels = torch.arange(100) % 10
perfect = nn.Identity()  # its one-hot "images" already are the probabilities
own_generator = torch.Generator().manual_seed(0)
mixup, right = hooklab.ManifoldMixup(perfect, [], generator=own_generator), []
for _ in range(200):
    with mixup(F.one_hot(labels, 10).float(), labels) as mixed:
        named = perfect(mixed.x).argmax(dim=1)
        right.append((named == labels).float().mean().item())

mean = sum(right) / len(right)
print(f"a perfect network's accuracy on mixed batches: {mean:.0%}")
assert 0.5 < mean < 0.6  # some partners have the same class

# %% [markdown]
# ### "My model splits its batch, and mixing fails"
#
# A `forward` that calls `x.chunk(2)` sends half of the batch through each layer (two views, say). A row's partner may be in the
# other half, so a hook there can't find it. Mix where all rows are together: at the input, or after the halves are joined.

# %% tags=["field", "field-split-batch"]
class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.joined = Times(2), Times(3), nn.Identity()

    def forward(self, x):
        left, right = x.chunk(2)
        return self.joined(torch.cat([self.left(left), self.right(right)]))


halves, x = Halves(), torch.tensor([[1.0], [2.0], [3.0], [4.0]])
mixer = Mixer(0.75, torch.tensor([3, 2, 1, 0]))
with halves.left.register_forward_hook(mixer.layer_hook):
    print("by hand:", error_of(halves, x))
    assert error_of(halves, x).startswith("IndexError")
print(says(["left"], halves, x, torch.arange(4)))

with halves.joined.register_forward_hook(mixer.layer_hook):
    mixed = halves(x)
print("after the halves are joined:", mixed.flatten().tolist())
assert torch.equal(mixed, mixer.layer_hook(None, None, halves(x)))

# %% [markdown]
# ### "Some of my labels are unknown: -1, -100 or NaN"
#
# Don't mix such targets. The mixture of a label and a -1 is a number like any other, so no mask finds it. Mix the losses: each
# of the two leaves out the entries that are unknown in *its* targets, and takes the mean of the others.

# %% tags=["field", "field-unknown-targets"]
def known_only(logits, target):
    known = target != -1
    return F.binary_cross_entropy_with_logits(logits[known], target[known])


targets = torch.tensor([[1.0, -1.0], [0.0, 1.0]])  # two labels for each; -1: unknown
model, x = nn.Sequential(nn.Linear(2, 2)), torch.rand(2, 2)
own_generator = torch.Generator().manual_seed(1)
with hooklab.ManifoldMixup(model, ["0"], generator=own_generator)(x, targets) as mixed:
    logits = model(mixed.x)

mixed_targets = 0.75 * targets + 0.25 * targets[[1, 0]]
print("unknown entries: ", (targets == -1).sum().item())
print("after the mixing:", (mixed_targets == -1).sum().item(), mixed_targets.tolist())
assert mixed_targets.tolist() == [[0.75, -0.5], [0.25, 0.5]]
own, partner = (known_only(logits, t) for t in (targets, targets[mixed.permutation]))
by_hand = mixed.lam * own + (1 - mixed.lam) * partner
assert torch.allclose(mixed.loss(known_only, logits), by_hand)

# %% [markdown]
# ### "I draw a λ for each example"
#
# Then multiply the loss of each example by its own λ **before** you take the mean, with `reduction="none"`. If you mix the two
# means, you get a different number. And for features, give λ the shape (n, 1, 1, 1), because a λ of shape (n,) is spread over
# the *last* dimension.

# %% tags=["field", "field-lam-each"]
lams = torch.tensor([0.75, 0.25])
own_losses, partner_losses = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 8.0])
each = lams * own_losses + (1 - lams) * partner_losses
too_late = lams * own_losses.mean() + (1 - lams) * partner_losses.mean()
print("λ before the mean:", each.mean().item(), "  after it:", too_late.mean().item())
assert each.tolist() == [3.0, 6.0] and each.mean() == 4.5 and too_late.mean() == 3.0

features = torch.ones(2, 2)  # two examples, two numbers each
assert (lams.view(2, 1) * features).tolist() == [[0.75, 0.75], [0.25, 0.25]]
assert (lams * features).tolist() == [[0.75, 0.25], [0.75, 0.25]]  # wrong, no error

# %% [markdown]
# ### Inside the network, two mixtures differ
#
# How do real mixed features look? We take lesson 3's small digits network, a 0 and a 7, and half of each. First we mix the images.
# Then we pass the two images unmixed, and mix the output of `relu1`.

# %%
cnn, data = trained_digits_cnn(seed=0), digits()
zero, seven = (data.test_images[data.test_labels == label][0] for label in (0, 7))
pair = torch.stack([zero, seven])
half = Mixer(0.5, torch.tensor([1, 0]))
images = half.layer_hook(None, None, pair)

with torch.no_grad(), hooklab.capture(cnn, "conv1", "relu1") as seen:
    cnn(pair)
    conv, relu = seen["conv1"], seen["relu1"]
    cnn(images)
    conv_of_mixture, relu_of_mixture = seen["conv1"], seen["relu1"]

assert torch.allclose(half.layer_hook(None, None, conv), conv_of_mixture, atol=1e-5)
gain = half.layer_hook(None, None, relu) - relu_of_mixture
print("conv1: the same either way")
print("relu1: never below, and above in some places:", bool((gain > 0.01).any()))
assert (gain > -1e-5).all() and (gain > 0.01).any()

# %% tags=["figure"]
maps = {
    "a 0": relu[0],
    "a 7": relu[1],
    "mixed at the input": relu_of_mixture[0],
    "mixed at relu1": half.layer_hook(None, None, relu)[0],
}
most_changed = gain[0].sum(dim=(1, 2)).argsort(descending=True)[:3].tolist()
everything = torch.cat([pair, images[:1]]).squeeze(1)
plots.show(
    figures.mixed_digits(everything, maps, most_changed),
    "A 0, a 7 and their mixture; three channels of relu1 for each, "
    "for the features' mixture, and the difference.",
)

# %% [markdown]
# *What to see:* the mixed image is a ghost of both digits. Its feature maps look much like the mixed feature maps, with one
# difference. Where one digit made a channel positive and the other made it negative, mixing at the input (third column) gives too
# small a value. The last column shows by how much, in a stronger colour. `conv1` is linear, so there it makes no difference.

# %% [markdown]
# ### All results of the comparison
#
# First the validation errors. Each dot is one combination of α, places and number of steps, the mean of four seeds. (With wrong
# labels, one in five validation labels is wrong, too, so a perfect network has an error of 20 %.)

# %% tags=["figure"]
plots.show(
    figures.by_steps(results["validation"], results["settings"]["places"]),
    "Validation error by number of steps, for three tasks and four α: "
    "no mixup in grey, five sets of places in colours.",
)

for scenario in (few, wrong, shapes):
    assert lowest(scenario, places=[], steps=600) >= lowest(scenario, places=[])
plain_few = lowest(few, places=[], steps=600)
assert lowest(few, places=[0], alpha=0.2, steps=600) < plain_few
assert lowest(few, places=[0], alpha=2.0, steps=600) > plain_few
for steps in results["settings"]["steps"]:
    assert lowest(shapes, steps=steps) == lowest(shapes, places=[], steps=steps)

# %% [markdown]
# *What to see:* with few labels and 600 steps, input mixup with α = 2 is worse than none, and with α = 0.2 it's better. With the
# shapes, no mixup has the lowest error at every number of steps.
#
# Then the test results. For each seed, all three methods got the same examples, wrong labels, initial weights and order of
# batches, so we compare them on the same seed. **NLL** is the cross entropy on the test examples, in *nats* (the unit if you
# take natural logarithms, as PyTorch does). It punishes a network that is sure and wrong.

# %% tags=["figure"]
plots.show(
    figures.differences(results["compared"]),
    "Intervals of the 18 differences in error and in NLL, beside a line at zero.",
)

# %% [markdown]
# *What to see:* left of the line, the first of the two methods is better. Purple differences are significant even when you take
# into account that there are 18 of them; grey ones aren't.
#
# - **Few clean labels**: manifold mixup has the lowest error. In NLL, both ways of mixing gain.
# - **Wrong labels**: both ways gain. Between the two, the difference in error may be chance; in NLL, manifold mixup is ahead.
# - **Shapes in noise**: both ways cost error, input mixup 1.6 points and manifold mixup 1.7.
#
# If no method made any difference, about one of 18 comparisons would still look significant by chance. So **p** is corrected
# for their number (Holm's method), and a difference with p below 0.05 is called significant. The intervals aren't corrected.
# So an interval can exclude zero while the difference isn't "significant"; that happens three times here. Thirty seeds were
# planned, and cut to twenty for time. Then the tables of the first three seeds were seen by accident, while the others ran;
# nothing was changed after that. `results["notes"]` tells this too, and what was tried before.

# %%
for scenario in (few, wrong, shapes):
    print(report.table(results, scenario), end="\n\n")

beside_zero = [
    row
    for row in results["compared"]
    if row["low"] * row["high"] > 0 and not report.is_significant(row)
]
assert len(beside_zero) == 3

# %% [markdown]
# What you can hold against us:
#
# - **Unequal tries.** Without mixup we tried 6 settings, with input mixup 24, with manifold mixup 96.
# - **Only some settings were tuned.** The network, the learning rate and its decay were fixed after looking at training without
#   mixup. They and the weight decay were the same for every method.
# - **Many validation examples.** The first task trains on 100 labels, but 900 more labels chose the settings (400 and 500 in the
#   other tasks).
# - **No other rival.** We tried no dropout and no label smoothing, which might gain as much with as many tries.
# - **At the edge.** All six settings with mixing are at the edge of what we tried, so better ones may exist.
# - **One test set** (797 digits, 2,000 shapes), the same for all seeds, and one small network.

# %%
for_choosing = [POOL - SCENARIOS[one].train_size for one in (few, wrong, shapes)]
print("validation examples:", for_choosing)
assert for_choosing == [900, 400, 500] and len(results["compared"]) == 18
seeds = [len(results["settings"][one]) for one in ("choosing_seeds", "comparing_seeds")]
assert seeds == [4, 20]

# %% [markdown]
# And every statement above, in code:

# %%
inside, at_input, none = "manifold mixup", "input mixup", "no mixup"
verdict = functools.partial(report.verdict, results)


def verdicts(arm, against, metric="error"):
    return [verdict(one, arm, against, metric) for one in (few, wrong, shapes)]


def means(against=none, metric="error", arm=inside):
    wanted = (arm, against, metric)
    rows = results["compared"]
    return [
        round(row["mean"], 1)
        for row in rows
        if (row["arm"], row["against"], row["metric"]) == wanted
    ]


open_question = "no clear difference"
assert verdicts(inside, none) == ["better", "better", "worse"]
assert verdicts(inside, at_input) == ["better", open_question, open_question]
assert verdicts(at_input, none)[1:] == ["better", "worse"]
assert means() == [-1.8, -1.9, 1.7] and means(arm=at_input)[2] == 1.6
in_nll = [verdict(few, arm, none, "nll") for arm in (inside, at_input)]
assert in_nll == ["better", "better"]
assert verdict(wrong, inside, at_input, "nll") == "better"
at_the_edge = [
    row
    for row in results["chosen"]
    if row["places"] and (row["alpha"] in (0.2, 2.0) or row["steps"] == 600)
]
assert len(at_the_edge) == 6

# %% [markdown]
# Don't just believe a file. `python -m hooklab experiment mixup` computes everything again, in about an hour on two cores. Or train
# single seeds here (two trainings each, 5 to 15 seconds). Your results are purple. Change seeds, scenario, α and steps as you like.

# %% tags=["figure"]
seeds, scenario, other = (103,), few, {}  # other: {"alpha": 2.0}, {"steps": 100}, …
settings = {row["arm"]: row for row in results["chosen"] if row["scenario"] == scenario}
again = []
for seed in seeds:
    for arm in ("no mixup", "manifold mixup"):
        chosen = {name: settings[arm][name] for name in ("places", "alpha", "steps")}
        again.append(run(seed, scenario, **(chosen | other)))

plots.show(
    figures.by_seed(results["compared_runs"], settings, again),
    "Test error of each of the 20 seeds, without mixup and with manifold mixup, "
    "two dots joined by a line; most lines fall.",
)
alike = report.alike(again, results["compared_runs"])  # trainings that the file has too
points_apart = report.ROUNDING[scenario]
print(f"{sum(alike)} of {len(alike)} are within {points_apart} points of the file")
assert all(alike), "The page's trainings come out as in the file, up to rounding."
assert 45 < results["seconds"] / 2 / 60 < 75  # minutes, on two cores

# %% [markdown]
# *What to see:* each line is one seed. Most go down, one of them by five points, and two stay level. A single seed could have
# told you anything. (Processors round differently, so a single training may differ by up to two points, and with the shapes by
# up to six.)

# %% [markdown]
# ### What others found
#
# The authors report gains for manifold mixup over both others on CIFAR-10 and other data (Table 1 of [their
# paper](https://arxiv.org/abs/1806.05236)). Another user ran the authors' code with the commands of its README ([the
# thread](https://github.com/vikasverma1077/manifold_mixup/issues/10)). With PreActResNet18, their error for manifold mixup was
# about the paper's. But their errors without mixup and with input mixup were *much lower* than the paper's, so the gain was
# smaller. Those commands have α = 1 for input mixup and α = 2 for manifold mixup ([the
# README](https://github.com/vikasverma1077/manifold_mixup/tree/master/supervised)). Our data, network and length of training
# are different, so our results don't contradict theirs. For your own task, measure, with settings chosen for each method in the
# same way.
