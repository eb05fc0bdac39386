# %% [markdown]
# # 7 · How does one forward hook become a training method?
#
# **Time** 45 minutes, and 12 for the ●●● exercise &nbsp;·&nbsp; **You need** lesson 3: a forward hook that returns, and a `with` block that cleans up
#
# After this lesson you can
#
# - mix samples of a batch, and their labels, at any layer of a network that you did not write;
# - name the mistakes that leave such a method running and useless, and test for each of them;
# - train with manifold mixup, by hand and with `hooklab.ManifoldMixup`;
# - read a table of results together with its uncertainty.

# %% tags=["setup"]
import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn
from torch.distributions import Beta
from torch.nn import functional as F

import hooklab
from hooklab import check, progress
from hooklab.course.digits import digits, trained_digits_cnn
from hooklab.course.lesson07 import explorer, figures

torch.set_num_threads(1)

# %% [markdown]
# ## Predict
#
# To **mix** two samples is to add them with weights: a share λ ("lambda") of one, and the rest, 1 − λ, of the other.
#
# Here are two samples, 4 and −4. Each is mixed with the other, its **partner**, and λ is three quarters. The network
# begins with a ReLU, which cuts off what is negative. **Before you run the next cell: does it matter whether we mix before
# the ReLU, or after it?**

# %% tags=["predict"]
lam = 0.75
indices = torch.tensor([1, 0])  # the partner of sample 0 is sample 1, that of sample 1 is 0

def mix(values):
    return lam * values + (1 - lam) * values[indices]


relu, x = nn.ReLU(), torch.tensor([4.0, -4.0])
before, after = relu(mix(x)), mix(relu(x))

print("mixed, then ReLU:", before.tolist())
print("ReLU, then mixed:", after.tolist())
assert mix(x).tolist() == [2.0, -2.0]  # 3/4 · 4 + 1/4 · (−4), and the other way round
assert before.tolist() == [2.0, 0.0]
assert after.tolist() == [3.0, 1.0]

# %% [markdown]
# It matters, because a ReLU has a bend. Mixed at the input, a 4 and a −4 cancel before the network has seen either.
# Mixed after the ReLU, each sample was looked at first. For a linear layer, before and after are the same.

# %%
linear = nn.Linear(1, 1)
nn.init.constant_(linear.weight, 3.0)
nn.init.constant_(linear.bias, 5.0)
column = x.unsqueeze(1)

print("mixed, then linear:", linear(mix(column)).flatten().tolist())
print("linear, then mixed:", mix(linear(column)).flatten().tolist())
assert torch.equal(linear(mix(column)), mix(linear(column)))  # ¾ · 5 + ¼ · 5 = 5: the bias too

# %% [markdown]
# Training on mixtures of inputs is called **mixup** ([Zhang and others, 2018](https://arxiv.org/abs/1710.09412)).
# Training on mixtures made somewhere inside the network is **manifold mixup**
# ([Verma and others, 2019](https://arxiv.org/abs/1806.05236)). Both are meant to keep a network from being too sure of
# itself between the samples that it knows.
#
# ## One batch is enough
#
# Where do the partners come from? From the same batch. `indices` is a **permutation** of its row numbers: each row
# gets one partner, and each row is partner once (a row may draw itself). `x[indices]` is the batch in the order of the
# partners.

# %%
indices = torch.tensor([2, 0, 1])
x = torch.tensor([[0.0], [4.0], [8.0]])

print("samples: ", x.flatten().tolist())
print("partners:", x[indices].flatten().tolist())
print("mixed:   ", mix(x).flatten().tolist())
assert x[indices].flatten().tolist() == [8.0, 0.0, 4.0]
assert mix(x).flatten().tolist() == [2.0, 3.0, 7.0]

# %% [markdown]
# A mixed sample needs a mixed target. To be mixed, a target is written **one-hot**: a row with a 1 at the place of its
# class. Three quarters of a cat and a quarter of a dog have the target (¾, ¼).

# %%
labels = torch.tensor([0, 2, 1])
one_hot = F.one_hot(labels, num_classes=3).float()

print("one-hot:", one_hot.tolist())
print("mixed:  ", mix(one_hot).tolist())
assert mix(one_hot).sum(dim=1).tolist() == [1.0, 1.0, 1.0]  # still shares of a whole
assert mix(one_hot)[0].tolist() == [0.75, 0.25, 0.0]  # class 0, with a partner of class 1

# %% [markdown] tags=["exercise"]
# ### Exercise 7.1 · Mix a batch and its targets
# ●○○ · 5 minutes
#
# `x` holds n samples, of any shape; `y` holds their one-hot targets. Return the **mixed x** and the **mixed y**: λ of
# each row, and 1 − λ of its partner, with the partners that `indices` names.
#
# <details><summary>Hint: the check speaks of partners the other way round</summary>
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
# ## Two losses instead of one
#
# Class labels usually come as numbers: 3, 5. **Never mix those.** Half a 3 and half a 5 make a 4, and neither of the
# two samples is a 4.
#
# But look at what cross entropy makes of a mixed target. Here the network says: one quarter class 0, three quarters
# class 1. The loss is the logarithm of 4 if it is class 0, and the logarithm of 4/3 if it is class 1.

# %%
logits = torch.tensor([[1.0, 3.0]]).log()  # softmax makes (1/4, 3/4) of it
if_class_0 = F.cross_entropy(logits, torch.tensor([0]))
if_class_1 = F.cross_entropy(logits, torch.tensor([1]))
if_mixed = F.cross_entropy(logits, torch.tensor([[0.75, 0.25]]))

print(f"class 0: {if_class_0:.3f}   class 1: {if_class_1:.3f}   ¾ and ¼: {if_mixed:.3f}")
assert torch.isclose(if_class_0, torch.tensor(4.0).log())
assert torch.isclose(if_class_1, torch.tensor(4 / 3).log())
assert torch.isclose(if_mixed, 0.75 * if_class_0 + 0.25 * if_class_1)

# %% [markdown]
# The loss of the mixed target is the mixture of the two losses, because cross entropy is **linear in its target**. So
# nobody needs one-hot targets: compute the loss twice from **the same** logits, and mix the results.
#
# With another loss, mixing losses and mixing targets may differ. Then decide which of the two you mean.

# %%
output, own, partner = torch.tensor(0.0), torch.tensor(0.0), torch.tensor(4.0)
of_mixed_target = F.mse_loss(output, 0.75 * own + 0.25 * partner)  # (¼ · 4)²
mixed_losses = 0.75 * F.mse_loss(output, own) + 0.25 * F.mse_loss(output, partner)  # ¼ · 4²

print("squared error, targets mixed:", of_mixed_target.item(), "  losses mixed:", mixed_losses.item())
assert of_mixed_target == 1.0 and mixed_losses == 4.0

# %% [markdown] tags=["exercise"]
# ### Exercise 7.2 · The loss of a mixture
# ●○○ · 5 minutes
#
# The network has put out `logits` for a mixed batch. `y` holds the **class numbers** of the samples. Return the mixed
# loss: λ of the loss for each sample's own class, and the rest for its partner's. `loss_fn(logits, y)` is any loss
# function that takes class numbers.
#
# <details><summary>Hint: "expected … Long … but got Float"</summary>
#
# You mixed class numbers, and the result is no class number. Call `loss_fn` twice, each time with unmixed targets.
# </details>
# <details><summary>Hint: my loss is the one without mixing</summary>
#
# Did you put the logits in the partners' order too? The network has mixed already. Only the targets change places.
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
# To mix at the input you need no hook: mix `x` before you call the model. To mix in the middle you would have to
# rewrite its `forward`. Or you let a forward hook do it: what it returns replaces the layer's output (lesson 3). This
# is the newest document's example. λ and the permutation sit in the object, and the hook is one of its methods.

# %% tags=["claim-S3.9"]
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


model = nn.Sequential(nn.ReLU(), Times(10))
mixer = Mixer(0.75, torch.tensor([1, 0]))
x = torch.tensor([4.0, -4.0])
assert mixer.layer_hook(model[0], (x,), model[0](x)).tolist() == [3.0, 1.0]

# %% [markdown]
# The ReLU puts out (4, 0), and the mixture is (3, 1), as above. The next layer multiplies by 10.

# %% tags=["claim-S3.9"]
usual = model(x)
with model[0].register_forward_hook(mixer.layer_hook):
    mixed = model(x)

print("usual:", usual.tolist(), "  mixed at the ReLU:", mixed.tolist())
assert usual.tolist() == [40.0, 0.0]
assert mixed.tolist() == [30.0, 10.0]

by_hand = model[1](mixer.layer_hook(None, None, model[0](x)))  # the model taken apart
assert torch.equal(mixed, by_hand)
assert model(x).tolist() == [40.0, 0.0]  # and the hook is gone

# %% [markdown]
# "Only the output can be changed, and by return", says the document. Both halves matter here. The input has been used
# already when the hook runs. And without `return`, the line `out = …` gives a name inside the hook to a new tensor,
# which the model never hears of.
#
# This mistake was in published code, until
# [this pull request](https://github.com/shivamsaboo17/ManifoldMixup/pull/1). No error is raised, and the targets are mixed
# while the features are not. A test for it: **choose λ = 0.** Then every sample must turn into its partner.

# %% tags=["field", "field-24", "claim-S3.9"]
class Forgetful(Mixer):
    def layer_hook(self, module, inp, out):
        out = self.lam * out + (1 - self.lam) * out[self.indices]


outputs = {}
for mixer in Mixer(0.0, torch.tensor([1, 0])), Forgetful(0.0, torch.tensor([1, 0])):
    with model[0].register_forward_hook(mixer.layer_hook):
        outputs[type(mixer).__name__] = model(x).tolist()

print("without a hook:", model(x).tolist())
print("with λ = 0:    ", outputs)
assert outputs == {"Mixer": [0.0, 40.0], "Forgetful": [40.0, 0.0]}

# %% [markdown] tags=["exercise"]
# ### Exercise 7.3 · A hook that mixes, and cleans up
# ●●○ · 8 minutes
#
# Write `with mixing(layer, lam, indices):`. Inside the block, the output of `layer` is mixed. After it your hook is
# gone, **also when the block raises**. Gradients must reach both parts of each mixture, and the layer's own output
# tensor stays as it was.
#
# <details><summary>Hint: "object is not an iterator", or "cannot stand after `with`"</summary>
#
# The function needs a `yield`, at the place where the block's lines run. Lesson 3 has an example.
# </details>
# <details><summary>Hint: after an exception, my hook is still there</summary>
#
# A handle is a context manager itself, so your function may use `with` too. Or use `try … finally`.
# </details>

# %% tags=["solution"]
@contextlib.contextmanager
def mixing(layer: nn.Module, lam: float, indices: torch.Tensor) -> Iterator[None]:
    """Mix the layer's output, λ of each row and 1 - λ of its partner, during the block."""
    ### BEGIN SOLUTION
    def mix_output(module, args, out):
        return lam * out + (1 - lam) * out[indices]

    with layer.register_forward_hook(mix_output):
        yield
    ### END SOLUTION

# %% tags=["check"]
check("7.3", mixing)

# %% [markdown]
# ## Look at two mixtures
#
# What does it look like when real features are mixed? We take the small digits network of lesson 3, a 0 and a 7, and
# half of each. Once we mix the images. Once the two images go in as they are, and we mix what `relu1` puts out.

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
figure = figures.mixed_digits(everything, maps, most_changed)
plt.show()

# %% [markdown]
# *What to see:* the image mixed at the input is a ghost of both. Its feature maps look much like the mixed feature
# maps, but where one digit pulled a channel up and the other pulled it below zero, something is missing. The last column
# shows what (in a stronger colour). `conv1` is linear, so there it makes no difference at all.
#
# Choose two digits, λ and the place yourself, and see what the network says to the mixture.

# %% tags=["explorer"]
explorer.mixing()

# %% [markdown]
# Without a kernel, here are two of its positions: half a 0 and half a 7, mixed at the input and at `relu2`.

# %% tags=["figure"]
for layer in ("input", "relu2"):
    mixture = explorer.mix(0, 7, 0.5, layer)
    display(explorer.draw_mixture(mixture, (0, 7)))
    assert torch.isclose(mixture.probabilities.sum(), torch.tensor(1.0))
    assert mixture.probabilities.flatten()[0] > 0.6 and mixture.probabilities.flatten()[7] < 0.3

# %% [markdown]
# *What to see:* the bars are the network's probabilities, purple for the two digits that were mixed. Both times it prefers
# the 0 by far, and gives the 7 little, though half of each went in. It was trained without mixing, so it has never
# learned what to say to half of each.
#
# ## Wrong in silence
#
# The forgotten return is not the only mistake that raises no error. Here are four more. **Predict** the first: a
# layer multiplies by its weight, 2, and gets the samples 1 and 5. We mix, once with `out[indices]`, once with
# `out[indices].detach()`. What differs?

# %% tags=["predict"]
def mixture_and_gradient(hook):
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    with layer.register_forward_hook(hook):
        mixed = layer(torch.tensor([[1.0], [5.0]]))
    mixed[0].sum().backward()  # the first mixture: ¾ · 2 + ¼ · 10
    return mixed.flatten().tolist(), layer.weight.grad.item()


lam, indices = 0.75, torch.tensor([1, 0])
def whole_hook(module, args, out):
    return lam * out + (1 - lam) * out[indices]

def stopping_hook(module, args, out):
    return lam * out + (1 - lam) * out[indices].detach()


whole, stopped = mixture_and_gradient(whole_hook), mixture_and_gradient(stopping_hook)

print("whole:  ", *whole)
print("stopped:", *stopped)
assert whole == ([4.0, 8.0], 2.0)  # ¾ · 1 + ¼ · 5
assert stopped == ([4.0, 8.0], 0.75)  # ¾ · 1

# %% [markdown]
# Every value is right, and the gradient is not. The layers before the mixture learn from one half of it. In manifold
# mixup, gradients flow back through the whole graph, to both samples.
#
# **The model runs twice.** Some code sends the partners through the network in a pass of their own
# ([the same thread](https://github.com/shivamsaboo17/ManifoldMixup/pull/1)). It costs a second forward pass, and a
# batch normalisation counts the batch twice. Nothing is gained: the partners are rows of the same batch, and
# `out[indices]` has them all.

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
# **The layer runs twice.** A hook belongs to the module, not to the call (lesson 3). If a model uses one ReLU in two
# places, its hook mixes what is mixed already. Of λ = 0.75 remain 0.75² = 0.5625, a third sample comes in, and the loss
# does not know. If two samples are each other's partners, as here, 0.25² comes back: 0.625.

# %%
mixer = Mixer(0.75, torch.tensor([1, 0]))
shared = nn.ReLU()
twice = nn.Sequential(shared, shared)
with shared.register_forward_hook(mixer.layer_hook):
    output = twice(torch.tensor([16.0, 0.0]))

print("share of the sample itself:", output[0].item() / 16)
assert output.tolist() == [10.0, 6.0] and 10 / 16 == 0.75**2 + 0.25**2

mixer = Mixer(0.75, torch.tensor([1, 2, 0]))  # three samples, one-hot, so that each output row shows the shares
with shared.register_forward_hook(mixer.layer_hook):
    shares = twice(torch.eye(3))[0].tolist()

print("shares of three samples:   ", shares)
assert shares == [0.75**2, 2 * 0.75 * 0.25, 0.25**2]

# %% [markdown]
# **λ is folded.** Some code writes `lam = max(lam, 1 - lam)`, so that each sample stays the larger part of its mixture.
# Is this a mistake? Look: a quarter of each sample and three quarters of its partner are the same three mixtures as
# three quarters of the partner and a quarter of the sample, in another order.

# %%
x, order = torch.tensor([0.0, 4.0, 8.0]), torch.tensor([2, 0, 1])
backwards = order.argsort()  # the permutation that undoes `order`

quarter = 0.25 * x + 0.75 * x[order]
folded = 0.75 * x + 0.25 * x[backwards]
print("λ = ¼:         ", quarter.tolist())
print("λ = ¾, backwards:", folded.tolist())
assert torch.equal(folded[order], quarter)

# %% [markdown]
# So folding changes nothing **if everybody does it**. If the hook folds λ and the loss does not, every second batch has
# its labels the wrong way round. A number that two places share is drawn once, and nobody changes it on the way.
#
# ## How much to mix
#
# λ is drawn anew for each batch, from a **Beta distribution**, Beta(α, α). The number α says how strongly to mix.

# %% tags=["figure"]
torch.manual_seed(0)
draws = {alpha: Beta(alpha, alpha).sample((4000,)) for alpha in (0.2, 1.0, 2.0, 8.0)}
figure = figures.lambdas(draws)
plt.show()

def between(lams):
    return ((lams > 0.25) & (lams < 0.75)).float().mean().item()


in_the_middle = [between(lams) for lams in draws.values()]
assert in_the_middle == sorted(in_the_middle)  # the larger α, the closer to a half
assert all(abs(lams.mean() - 0.5) < 0.03 for lams in draws.values())  # and always symmetric

# %% [markdown]
# *What to see:* grey are the 4000 draws, purple is the density. A small α leaves most batches almost unmixed. With α = 1
# every λ is equally likely. A large α mixes half and half. The authors train on CIFAR-10 with α = 2.
#
# `Beta.sample` draws from PyTorch's global random state, and takes no **generator**, an object with a random state of
# its own. You want one here: then a run can be repeated, and switching mixup on does not change the order of the
# batches. For α = 2 there is a trick with uniform numbers: **take the middle one of three.** For it to be λ, one number
# must fall below λ and one above: λ·(1 − λ), times the 3! = 6 ways to give three numbers these roles. The density
# 6·λ·(1 − λ) is that of Beta(2, 2).

# %%
assert "generator" not in inspect.signature(Beta.sample).parameters

generator = torch.Generator().manual_seed(0)
three = torch.rand(100_000, 3, generator=generator)
middle = three.median(dim=1).values

at = torch.linspace(0.1, 0.9, 9)
assert torch.allclose(Beta(2.0, 2.0).log_prob(at).exp(), 6 * at * (1 - at), atol=1e-5)
print(f"between ¼ and ¾: {between(middle):.2f}, and in theory 11/16 = {11 / 16:.2f}")
assert abs(between(middle) - 11 / 16) < 0.01

# %% [markdown] tags=["exercise"]
# ### Exercise 7.4 · The dice of a batch
# ●●○ · 6 minutes
#
# Draw what one batch of n samples needs: λ from Beta(2, 2), as a float, and a random permutation of its rows (a row may
# draw itself). Return both. All randomness comes from `generator`, which you leave where your draws left it.
#
# <details><summary>Hint: the check says that the dice are global</summary>
#
# `torch.rand`, `torch.randperm` and `torch.randint` all take `generator=generator`. One of yours does not.
# </details>
# <details><summary>Hint: the check says that the same came twice</summary>
#
# A generator moves on with each draw. `manual_seed` in your function puts it back to the start every time.
# </details>

# %% tags=["solution"]
def draw(n: int, generator: torch.Generator) -> tuple[float, torch.Tensor]:
    """Return λ ~ Beta(2, 2) and a permutation of n rows, drawn from `generator`."""
    ### BEGIN SOLUTION
    share = torch.rand(3, generator=generator).median().item()
    return share, torch.randperm(n, generator=generator)
    ### END SOLUTION

# %% tags=["check"]
check("7.4", draw)

# %% [markdown]
# ## Where to mix
#
# The last die: **which layer?** The authors fix a set of layers, which may include the input, and choose one of the set
# for each batch. Here is the whole method (Section 2 of their paper):
#
# 1. choose a place, λ and a permutation;
# 2. run the model once, mixed at that place;
# 3. mix the targets (for cross entropy: the losses), with the same λ and the same permutation;
# 4. send gradients back through everything, and take a step.

# %% [markdown] tags=["exercise"]
# ### Exercise 7.5 · A whole step
# ●●● · 12 minutes
#
# Take one training step with manifold mixup, λ ~ Beta(2, 2), cross entropy. The place is **the input or one of
# `layers`**, all equally likely. All randomness comes from `generator`. Return the loss as a float, and leave no hook,
# even if the model raises. You may use what you wrote above.
#
# <details><summary>Hint: the check says that the input is never chosen</summary>
#
# With n layers there are n + 1 places: draw a number below `len(layers) + 1`.
# </details>
# <details><summary>Hint: "the weights moved, but not by the gradient of the mixed loss"</summary>
#
# Are the λ and the permutation of the loss the very ones that mixed the features? Draw once, before the model runs.
# </details>
# <details><summary>Hint: the check says that gradients add up</summary>
#
# Who clears the gradients of the step before?
# </details>

# %% tags=["solution"]
def manifold_step(
    model: nn.Module, layers: list[nn.Module], optimizer: torch.optim.Optimizer,
    x: torch.Tensor, y: torch.Tensor, generator: torch.Generator,
) -> float:  # fmt: skip
    """Train on one batch, mixed at the input or at one of the layers; return the loss."""
    ### BEGIN SOLUTION
    share = torch.rand(3, generator=generator).median().item()
    order = torch.randperm(len(y), generator=generator)
    place = torch.randint(len(layers) + 1, (1,), generator=generator).item()

    def blend(values):
        return share * values + (1 - share) * values[order]

    if place == len(layers):
        logits = model(blend(x))
    else:
        with layers[place].register_forward_hook(lambda module, args, out: blend(out)):
            logits = model(x)
    own, partner = F.cross_entropy(logits, y), F.cross_entropy(logits, y[order])
    loss = share * own + (1 - share) * partner
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION

# %% tags=["check"]
check("7.5", manifold_step)

# %% [markdown]
# ## The same with hooklab
#
# `hooklab.ManifoldMixup` is this lesson in one object. It takes the model as it is, and names of layers. Each
# `with` block draws place, λ and permutation, and `mixed.loss` mixes the loss with the same ones. Is it the same
# computation? Twenty batches, compared with the model taken apart, to the last bit.

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
generator = torch.Generator().manual_seed(0)
mixup = hooklab.ManifoldMixup(model, ["1"], alpha=2.0, generator=generator)

chosen = []
for _ in range(20):
    with mixup(x, y) as mixed:
        logits = model(mixed.x)
        loss = mixed.loss(F.cross_entropy, logits)
    chosen.append(mixed.layer)
    mixer = Mixer(mixed.lam, mixed.permutation)
    if mixed.layer == "input":
        by_hand = model(mixer.layer_hook(None, None, x))
    else:
        by_hand = model[2](mixer.layer_hook(None, None, model[:2](x)))
    own, partner = (F.cross_entropy(by_hand, t) for t in (y, y[mixed.permutation]))
    assert torch.equal(loss, mixed.lam * own + (1 - mixed.lam) * partner)

print({place: chosen.count(place) for place in mixup.choices})
assert not model[1]._forward_hooks and set(chosen) == {"input", "1"}

# %% [markdown]
# And it raises an error where this lesson was wrong in silence: for a layer that runs twice, or not at all, for a
# misspelt name, for an output whose first dimension is not the batch, and in evaluation mode, where mixing would spoil
# the result.

# %%
def says(layers: list[str], model: nn.Module, x: torch.Tensor) -> str:
    try:
        with hooklab.ManifoldMixup(model, layers, include_input=False)(x, y) as mixed:
            model(mixed.x)
    except (RuntimeError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {textwrap.shorten(str(error), 70, placeholder=' …')}"
    raise AssertionError("no error came")


shared = nn.ReLU()
spare = nn.Linear(2, 2)
spare.add_module("unused", nn.Linear(2, 2))
print(says(["0"], nn.Sequential(shared, shared), x))
print(says(["unused"], spare, x))
print(says(["rleu"], model, x))
print(says(["0"], nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (6, 2))), x))
print(says(["1"], model.eval(), x))
assert not any(module._forward_hooks for module in model.modules())

# %% [markdown]
# ## What mixing does to a network
#
# The authors' own example: two spirals in the plane, one for each class, and a network with a hidden layer of only
# **two units**, so that it can be drawn. We train the same network twice, from the same first weights. The second time we
# mix at the hidden layer.

# %%
x, y = figures.two_spirals()

def train(mix: bool) -> figures.SpiralNet:
    torch.manual_seed(0)
    net = figures.SpiralNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    layers = ["encoder"]  # it puts out the two hidden units
    mixup = hooklab.ManifoldMixup(net, layers, include_input=False, generator=generator)
    for _ in range(500):
        if mix:
            with mixup(x, y) as mixed:
                loss = mixed.loss(F.cross_entropy, net(mixed.x))
        else:
            loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


nets = {"without mixup": train(mix=False), "with manifold mixup": train(mix=True)}

# %% tags=["figure"]
figure = figures.spirals(nets, x, y)
plt.show()

plain, mixed_net = nets.values()
for net in nets.values():
    assert (net(x).argmax(dim=1) == y).float().mean() > 0.98  # both know their spirals
sure = [figures.sure_share(net) for net in nets.values()]
flat = [figures.flatness(net.encoder(x), y) for net in nets.values()]
print("sure of itself on less of the plane:", sure[1] < sure[0] - 0.05)
print("hidden classes flatter:             ", flat[1] < flat[0])
assert sure[1] < sure[0] - 0.05 and flat[1] < flat[0]

# %% [markdown]
# *What to see:* black is the line between the classes, white is where the network is undecided. Both networks know
# their points. Without mixup, the network is sure of itself right up to the line. With mixup, a wide undecided band lies
# between the classes. On the right, each class has become thinner and straighter; the authors call this *flattening*.
# The small dark dots there are points from all over the plane.

# %% [markdown]
# ## Does it help?
#
# The authors say yes. Their figures, not ours: on CIFAR-10, with a network called PreActResNet18, 4.83 % of the test
# images are misread without mixup, and 2.95 % with manifold mixup
# ([Verma and others, 2019](https://arxiv.org/abs/1806.05236), Table 1).
#
# We ask a smaller question that a small computer can answer, with scikit-learn's digits, in two settings:
#
# - **20 % wrong labels**: 600 digits to train on, and one label in five, chosen at random, says something else than the
#   image shows;
# - **few clean labels**: 100 digits to train on, all labels right.
#
# The network has two blocks of convolution, batch normalisation and ReLU, then a hidden layer of 64 units. Places are
# numbered: 0 is the input, 1 `block1`, 2 `block2`, 3 `hidden`. Of the methods, the last four are all manifold mixup, each
# with its own set of places; the one called *manifold* has the set {0, 1, 2}.
#
# Test labels are always right. `python -m hooklab experiment mixup` runs all of it. Its results file comes with the
# package.

# %%
from hooklab.course.lesson07.experiment import (
    METHODS,
    QUICK,
    SETTINGS,
    TEST_SIZE,
    DigitsCNN,
    Training,
    run_seed,
)
from hooklab.course.lesson07.report import committed, table

results = committed()
print(results["command"])
print(f"{len(results['seeds'])} seeds, {len(results['runs'])} trainings, {TEST_SIZE} test digits")
for method, layers in METHODS.items():
    print(f"{method:<14} may mix at", [results["layers"][k] for k in layers])

assert len(results["runs"]) == len(results["seeds"]) * len(METHODS) * len(SETTINGS)
assert len(results["seeds"]) >= 10
assert results["layers"] == ["input", "block1", "block2", "hidden"] and METHODS["manifold"] == (0, 1, 2)
kinds = [type(layer).__name__ for layer in DigitsCNN().block1]
assert kinds == ["Conv2d", "BatchNorm2d", "ReLU"] and DigitsCNN().head.in_features == 64

# %% [markdown]
# Train the same network with another seed, and it misreads another number of digits. One run tells nothing. Here the
# runs of a seed are **paired**: all methods get the same digits, the same wrong labels, the same first weights and the
# same batches. What counts is the *difference* of two methods on the same seed.
#
# The table gives the mean of these differences and its 95 % **confidence interval**, the range that the seeds leave for
# it. An interval that contains 0 is called *not significant*: these runs do not show which method is better. **Error** is
# in percent of the test digits. **NLL**, the negative log-likelihood, is the cross entropy on the test digits; a
# network that is sure and wrong pays for it. Its unit, the *nat*, says that the logarithm is the natural one.

# %%
def part(setting: str) -> dict:
    """The rows of one setting."""
    summary = results["summary"]
    return {name: [r for r in rows if r["setting"] == setting] for name, rows in summary.items()}


def difference(setting: str, method: str, against: str, metric: str) -> dict:
    """The row that compares two methods."""
    wanted = (method, against, metric)
    rows = part(setting)["differences"]
    return next(r for r in rows if (r["method"], r["against"], r["metric"]) == wanted)


wrong, few = "20 % wrong labels", "few clean labels"
print(table(part(wrong)))

# %% [markdown]
# With a fifth of the labels wrong, every kind of mixing cuts the error to about a half or less. **Where** one mixes
# matters less: between input mixup and manifold mixup lies half a point of error, in favour of the input, and a little
# NLL, in favour of manifold mixup.
#
# Why such a gain? The network has time enough to learn the wrong labels by heart, and mixtures are harder to learn by
# heart. The results file has a hint: a training of a tenth of the steps, without mixup, did better than the long one, and
# as well as the long one with manifold mixup. On these digits, stopping early does the same job. That is one seed, so a
# hint and no more.

# %%
for method in METHODS:
    if method != "none":
        row = difference(wrong, method, "none", "error")
        assert row["significant"] and row["high"] < -5

assert 0 < difference(wrong, "manifold", "input", "error")["mean"] < 1
assert difference(wrong, "manifold", "input", "nll")["high"] < 0

def error_of(runs: list, method: str) -> float:
    (run,) = (r for r in runs if (r["seed"], r["setting"], r["method"]) == (0, wrong, method))
    return run["error"]


short = error_of(results["check"]["runs"], "none")
long = error_of(results["runs"], "none")
long_mixed = error_of(results["runs"], "manifold")
few_steps, many_steps = results["check"]["training"]["steps"], results["training"]["steps"]
print(f"seed 0, no mixup, {few_steps:>3} steps: {short:>4.1f} % error")
print(f"seed 0, no mixup, {many_steps} steps: {long:>4.1f} % error")
print(f"seed 0, manifold, {many_steps} steps: {long_mixed:>4.1f} % error")
assert short < long and abs(short - long_mixed) < 0.5

# %% [markdown]
# And with few labels, none of them wrong?

# %%
print(table(part(few)))

# %% [markdown]
# Another story. Input mixup costs 2.7 points of error here, and manifold mixup over {0, 1, 2} costs 1.3. Only for the set
# of deep layers do these runs show a gain, in error and in NLL.
#
# That is **not** what the authors found: on CIFAR-10 a set with the input did best, and mixing at a deep layer only was
# worse than none (Section 5.1 of their paper). Data, network and length of training are all different here, so neither
# result disproves the other. It does say what to do with your own data: measure.

# %% tags=["figure"]
figure = figures.differences(results["summary"])
plt.show()

assert difference(few, "input", "none", "error")["low"] > 0
assert difference(few, "manifold", "none", "error")["low"] > 0
assert all(difference(few, "deep only", "none", metric)["high"] < 0 for metric in ("error", "nll"))
for method in set(METHODS) - {"none", "deep only"}:
    assert all(difference(few, method, "none", metric)["high"] > 0 for metric in ("error", "nll"))
comparisons = results["summary"]["differences"]
drawn = [row for row in comparisons if row["against"] == "none"]
print("comparisons:", len(drawn), "in the figure,", len(comparisons), "in the tables")
assert (len(drawn), len(comparisons)) == (20, 24)

# %% [markdown]
# *What to see:* left of the line is better than no mixup. Purple intervals stay on one side of 0; grey ones are not
# significant. Be careful where an end comes close to 0. Even if no method made any difference, about one in twenty
# comparisons would look significant; the figure has 20, the tables 24.
#
# Do not believe a file. On your machine, again: the two short trainings of seed 0, which must come out as in the file;
# and three seeds with 200 steps, long enough for the gain to begin. Processors round differently, and training
# makes something of it, so we allow one point.

# %%
short_ones = []
for method in ("none", "manifold"):
    stored = error_of(results["check"]["runs"], method)
    error = run_seed(0, wrong, method, QUICK)["error"]
    short_ones.append(abs(error - stored) < 1)

gains = []
for seed in (0, 1, 2):  # more seeds or steps, if you have the time
    without, with_mixup = (
        run_seed(seed, wrong, method, Training(steps=200))["error"]
        for method in ("none", "manifold")
    )
    gains.append(without - with_mixup)

print(QUICK.steps, "steps:", sum(short_ones), "of 2 as in the file, within one point")
print("200 steps:", sum(gain > 1 for gain in gains), "of 3 seeds gain more than one point")
assert all(short_ones) and all(gain > 1 for gain in gains)

# %% [markdown]
# ## In the field
#
# The forgotten return was the first. Two more, from public threads.
#
# **"Images and labels get different partners."** The code shuffled the batch twice, once for the images and once for the
# labels. ([A thread](https://github.com/xudonmao/VMT/issues/1)) Nothing breaks; the targets are noise. A test: let each
# sample's value be its class number. Then a mixed target, read as shares, tells what should be in the mixed sample.

# %% tags=["field"]
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
# **"May I put the hook on any layer, or only after a block?"** The authors' answer: they mixed right after a residual
# block, and doubt that inside one is a good idea. ([The thread](https://github.com/vikasverma1077/manifold_mixup/issues/8))
# A **residual** block adds its input to what its layers make of it. A hook on one of those layers mixes one summand; the
# other goes past it, unmixed. The sum holds 5/6 of each sample, and the loss says 3/4.

# %% tags=["field"]
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

# %% [markdown] tags=["recap"]
# ## Recap
#
# | the documents say | today |
# |---|---|
# | only the output can be changed, by return: manifold mixup as `lam * out + (1 - lam) * out[indices]` | true. It becomes a training method with the **same** permutation and the **same** λ for the targets, both drawn once a batch, a place chosen once a batch, gradients to both parts, and a hook that is gone afterwards |
#
# | wrong in silence | a test for it |
# |---|---|
# | the hook returns nothing | with λ = 0 each sample must turn into its partner |
# | x and y have different partners | samples whose values are their classes |
# | λ folded in one of two places | compare with a mixture made by hand, λ below ½ |
# | gradients stopped | the gradient of a layer before the mixture |
# | the model, or the layer, runs twice | count the calls |
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | mixup | 混合增强 | train on weighted sums of two samples, and of their targets |
# | manifold mixup | 流形混合 | the same with features from inside the network |
# | permutation | 置换 | every row number once, in another order |
# | one-hot target | 独热标签 | a row with a 1 at the place of the class |
# | Beta distribution | 贝塔分布 | where λ comes from; Beta(1, 1) is uniform |
# | generator | 随机数生成器 | an object with a random state of its own |
# | residual block | 残差块 | adds its input to what its layers make of it |
# | negative log-likelihood (NLL) | 负对数似然 | the mean cross entropy on test data; punishes being sure and wrong |
# | confidence interval | 置信区间 | the range that the data leave for a difference |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** Your hook sits on the first layer of a network, a convolution. Your colleague mixes the images instead. Same λ,
# same partners. Who gets the better network?
#
# <details><summary>Answer</summary>
#
# Neither: a convolution is linear, so both train on the same mixtures, up to rounding. Put the hook behind the
# activation.
# </details>
#
# **2.** A hook mixes with `out.detach()[indices]`, and the network still learns. What is lost?
#
# <details><summary>Answer</summary>
#
# The layers before the mixture get no gradient through the partners. The values and the loss are right, so no
# printed number shows it.
# </details>
#
# **3.** In a table, manifold mixup has 0.3 points less error than input mixup, with the interval [−0.9, +0.3]. What do you
# tell your colleagues?
#
# <details><summary>Answer</summary>
#
# That these runs do not show which is better: the interval contains 0. More seeds would make it shorter.
# </details>

# %%
progress(7)
