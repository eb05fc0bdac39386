# %% [markdown]
# # 9 · What does the network look at, and what if I switch it off?
#
# **Time** 60 minutes, and 34 for what stands behind the recap and for the hardest exercise &nbsp;·&nbsp; **You need** lesson 3 (forward hooks) and lesson 5 (backward hooks)
#
# After this lesson you can
#
# - draw a map of what a network looks at, and say how far to trust it;
# - notice that a network is right for the wrong reason;
# - see what each head of a transformer attends to, and switch heads off;
# - find the place where an answer is carried, by patching.

# %% tags=["setup"]
import copy

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course.digits import accuracy, digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.lesson09 import copying, explorer, figures, heads, maps, shapes
from hooklab.course.lesson09.helpers import Square, Talker

torch.set_num_threads(1)

# %% [markdown]
# ## A network that is always right
#
# Here are pictures as they came from the scanner, with their labels. The shapes' colour, place, size and angle are random.
# We train a small network on such pictures: three blocks of convolution, batch norm and ReLU, the mean over all places, and
# a linear layer that gives three scores. It takes a few seconds.

# %% tags=["figure"]
scanned = shapes.pictures(500, seed=1)
network = shapes.trained()
display(figures.pictures(scanned))

right = accuracy(network, scanned.images, scanned.labels)
print("right, of 100 pictures that it has not seen:", "98 or more" if right >= 0.98 else "fewer than 98")
assert right >= 0.98

# %% [markdown]
# Would you put it to work? What you know is *how often* it is right. What does it look at?
#
# ### Grad-CAM
#
# The last block puts out 32 feature maps of 8×8 places. The score of a class depends on each of these numbers, and the
# gradient says how much. **Grad-CAM** ([2017](https://arxiv.org/abs/1610.02391)) makes one map of them:
#
# 1. the weight of a channel is the **mean over its places** of the score's gradient;
# 2. the map is the sum of the channels, each times its weight;
# 3. what is negative speaks against the class, and becomes 0.
#
# So you need a layer's output, and the gradient at this output: one forward hook.

# %% [markdown] tags=["exercise"]
# ### Exercise 9.1 · Grad-CAM
# ●●○ · 8 minutes
#
# `layer` is a layer in `model` that puts out feature maps (n, channels, height, width); `model(images)` gives scores
# (n, classes). Return one map for each image, shape (n, height, width): what in it speaks for **its own label**, by the
# three steps above. It must also work on a model whose parameters are all frozen. Leave nothing behind: no hook, no
# `.grad`, no attribute on a module; and leave the images and the model's mode unchanged.
#
# <details><summary>Hint: "element 0 of tensors does not require grad"</summary>
#
# With all parameters frozen nothing asks for a gradient. Let a copy of the images do it: `images.clone().requires_grad_()`.
# </details>
# <details><summary>Hint: how do I get the gradient, and no .grad on all parameters?</summary>
#
# `torch.autograd.grad(score, output)` returns the gradient and writes nothing. The score of each image's own label is
# `scores[torch.arange(n), labels]`; the images do not mix, so their sum will do.
# </details>

# %% tags=["solution"]
def grad_cam(model: nn.Module, layer: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the Grad-CAM maps of the labels at this layer, shape (n, height, width)."""
    ### BEGIN SOLUTION
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output)):
        scores = model(images.clone().requires_grad_())
    own = scores[torch.arange(len(labels)), labels].sum()
    (gradient,) = torch.autograd.grad(own, kept[0])
    channel_weights = gradient.mean(dim=(2, 3), keepdim=True)
    return (channel_weights * kept[0]).sum(dim=1).relu().detach()
    ### END SOLUTION

# %% tags=["check"]
check("9.1", grad_cam)

# %% [markdown]
# The course's own `maps.grad_cam` does the same, and brings the 8×8 map to the size of the picture. (A test holds it against
# captum's `LayerGradCam`: equal.) What does it show?

# %% tags=["figure"]
some = shapes.Pictures(*(part[:100] for part in scanned))
looked = maps.grad_cam(network, some.images, some.labels)
display(figures.maps(some, {"Grad-CAM": looked}))

assert maps.points_at(looked[:6], shapes.tag_masks(6)) == 1.0 and maps.points_at(looked[:6], some.masks[:6]) == 0.0

# %% [markdown]
# *What to see:* yellow is much, dark is nothing, the dot is the largest number, and the white outline is the shape. All
# pictures have a coloured tag in the corner, from the scanner. In all six the largest number lies at this tag, not on the
# shape: its colour gives the label away. So let us give the tags random colours.

# %%
shuffled = shapes.pictures(500, seed=2, tags="random")
right = accuracy(network, shuffled.images, shuffled.labels)
print("right, of 100 pictures with random tags:", "25 to 45" if 0.25 < right < 0.45 else "another number")
assert 0.25 < right < 0.45  # a third is guessing

# %% [markdown]
# Clever Hans was a horse that could count, as long as the one who asked knew the answer. Our network is such a horse, and no
# accuracy on scanned pictures could have told.
#
# ## A map that is scored, not admired
#
# We made the pictures, so we know where each shape is. This gives two numbers for any kind of map:
#
# - the **pointing game**: in which share of the pictures does the largest number lie on the shape (or within 2 pixels)?
# - the **mass**: which share of the map's sum lies on the shape?
#
# And we can mend the network: train it again with tags of random colours, so that they say nothing.

# %% tags=["figure"]
mended = shapes.trained("random")  # the same few seconds again
rows = {"own tags": looked, "random tags": maps.grad_cam(mended, some.images, some.labels)}
points = {name: maps.points_at(row, some.masks) for name, row in rows.items()}
mass = {name: maps.mass_on(row, some.masks) for name, row in rows.items()}
titles = {name: f"trained with\n{name}\npoints {points[name]:.2f}\nmass {mass[name]:.2f}" for name in rows}
display(figures.maps(some, {titles[name]: row for name, row in rows.items()}))

assert points["own tags"] < 0.15 and points["random tags"] > 0.8
assert mass["own tags"] < 0.12 and mass["random tags"] > 0.2

earned = accuracy(mended, shuffled.images, shuffled.labels)
print("right, of 10 pictures with random tags:", round(10 * earned))
assert 0.75 < earned < 0.98

# %% [markdown]
# *What to see:* the same pictures, both rows; the mended network looks at the shapes. It is right less often than the first
# one seemed to be, and it has earned it. Its map is coarse: a place of the 8×8 map stands for many pixels, so much of the
# mass lies around the shape.

# %% [markdown]
# ## Is a map that points at the shape a good map?
#
# There are other maps than Grad-CAM (they are called *saliency maps* or *attributions*). Four rivals, all in
# `hooklab/course/lesson09/maps.py`:
#
# - **gradient**: how strongly does each *pixel* move the score?
# - **gradient × input**: the same, times the pixel.
# - **guided backprop**: the gradient, but every ReLU passes back only what is positive. A backward hook does that.
# - **occlusion**: paint over a square of the picture. How much does the network lose? No gradient at all.
#
# We let all of them play the pointing game. But what would a network score that knows *nothing*?

# %%
predict("9.a")

# %% tags=["predict"]
untrained = shapes.untrained()
hits = maps.points_at(
    maps.gradient_times_input(untrained, some.images, some.labels), some.masks
)
print("What came out:")
print("maps of 100 that point at the shape, to the nearest ten:", round(10 * hits) * 10)

# %%
reveal("9.a", 100 * hits)
assert hits > 0.6, "With the page's random weights, most maps point at the shape."

# %% [markdown]
# And the other methods? We let all of them play, for both trained networks and for the random weights.

# %% tags=["figure", "folded"]
print("What came out:")
networks = {"own tags": network, "random tags": mended, "random weights": untrained}
few = shapes.Pictures(*(part[:60] for part in scanned))
score = {
    method: {
        name: maps.points_at(make(one, few.images, few.labels), few.masks)
        for name, one in networks.items()
    }
    for method, make in maps.METHODS.items()
}
figure = figures.scoreboard(
    score,
    "share of 60 maps that point at the shape",
    (maps.chance(few.masks), "chance"),
)
plt.show()

assert all(one["own tags"] < 0.4 and one["random tags"] > 0.7 for one in score.values())
crosses = {method: one["random weights"] for method, one in score.items()}
assert score["gradient × input"]["random tags"] - crosses["gradient × input"] < 0.35
assert crosses.pop("Grad-CAM") < 0.8 and crosses.pop("gradient") > 0.1
assert min(crosses.values()) > 0.25 > maps.chance(few.masks) > 0.15

# %% [markdown]
# *What to see:* every method distinguishes the two trained networks. The crosses are the random weights: compare each with the
# trained networks of its row, and with chance.
#
# So a map needs a control. The first is this: **random weights** ([sanity checks, 2018](https://arxiv.org/abs/1810.03292)).
# The second costs one more map: ask for **another class**. What speaks for a disc should not be what speaks for a square. We
# compare both maps by their rank correlation: 1 if the pixels come in the same order, −1 if in the opposite one, 0 for no
# relation.

# %% tags=["figure"]
other_class = (few.labels + 1) % 3
headless = copy.deepcopy(mended)
headless.head = untrained.head  # trained blocks, and a last layer that knows no class

alike, without_head = {}, {}
for method, make in maps.METHODS.items():
    found = make(mended, few.images, few.labels)
    alike[method] = maps.alike(found, make(mended, few.images, other_class))
    without_head[method] = maps.alike(found, make(headless, few.images, few.labels))
both = {name: {"another class": alike[name], "a random last layer": without_head[name]} for name in maps.METHODS}
figures.scoreboard(both, "rank correlation with the map of the right class", (0, "no relation"), lowest=-0.5)
plt.show()

assert alike["Grad-CAM"] < 0.3 and alike["occlusion"] < 0.3
assert min(alike["gradient"], alike["gradient × input"], alike["guided backprop"]) > 0.4
assert without_head["guided backprop"] > 0.5

# %% [markdown]
# *What to see:* the sharp maps on pixels hardly care which class they are asked for. With a *random last layer*, which knows
# no class at all, guided backprop draws much the same map: what its hooks let through is decided by the picture's edges
# more than by the question. So it passes for an **edge detector**, as the sanity checks found in large networks.
#
# Grad-CAM and occlusion do draw another map for another class, and even they may point at the shape with random weights.
# No map goes without its controls.
#
# Guided backprop is also the one that goes wrong most easily, as its hooks change gradients:

# %% [markdown] tags=["exercise"]
# ### Exercise 9.2 · Mend it: guided backprop
# ●●○ · 7 minutes
#
# This script wants to return, for each image, the gradient of the score of its own label with respect to the image, where
# every `nn.ReLU` passes back only the positive part. It raises an error, for one image as for two, and after it
# training no longer works. Mend it, for any number of images, on models with `nn.ReLU` modules that do not work in place;
# a ReLU's input may be used elsewhere in the model too. Leave nothing behind: no hook, no `.grad`, the images unchanged.
#
# ```python
# def guided_backprop(model, images, labels):
#     def only_positive(module, grad_input, grad_output):
#         return grad_input[0].clamp(min=0)
#     for module in model.modules():
#         if isinstance(module, nn.ReLU):
#             module.register_full_backward_hook(only_positive)
#     images.requires_grad_()
#     model(images)[:, labels].sum().backward()
#     return images.grad
# ```
#
# <details><summary>Hint: "has changed the size of value", or "invalid number of grad_input"</summary>
#
# A full backward hook returns a tuple, with one entry for each entry of `grad_input` (lesson 5).
# </details>
# <details><summary>Hint: the second call gives other numbers than the first</summary>
#
# What does `backward()` do to an `images.grad` that is there already? And what to `.grad` of the parameters?
# </details>
# <details><summary>Hint: for two images the maps are too large</summary>
#
# `scores[:, labels]` has shape (n, n): every image with every label.
# </details>

# %% tags=["solution"]
def guided_backprop(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the guided gradient of each image's own score, in the shape of the images."""
    ### BEGIN SOLUTION
    def only_positive(module, grad_input, grad_output):
        return (grad_input[0].clamp(min=0),)

    relus = [module for module in model.modules() if isinstance(module, nn.ReLU)]
    handles = [relu.register_full_backward_hook(only_positive) for relu in relus]
    try:
        watched = images.detach().clone().requires_grad_()
        own = model(watched)[torch.arange(len(labels)), labels].sum()
        (gradient,) = torch.autograd.grad(own, watched)
    finally:
        for handle in handles:
            handle.remove()
    return gradient
    ### END SOLUTION

# %% tags=["check"]
check("9.2", guided_backprop)

# %% [markdown]
# Now look for yourself, at any picture, with any of the networks and methods.

# %% tags=["explorer"]
explorer.what_it_looks_at()

# %% tags=["figure"]
places = {("own tags", "occlusion"): "the tag", ("random weights", "gradient × input"): "the shape"}
for (name, method), where in places.items():  # without a kernel: two positions
    display(explorer.draw_map(0, name, method, "block3"))
    print(f"{name}, {method}: points at {where}")
    assert f"points at {where};" in explorer.describe_map(0, name, method, "block3")

# %% [markdown]
# *What to see:* a picture of the scanner's, and its map. Above, occlusion finds the tag, which is what the network
# needs. Below, an untrained network's map looks as if it knew what a shape is.

# %% [markdown]
# ## A transformer that you train in seconds
#
# A map shows *where*; it does not show whether what is there is *needed*. For that we need a model that we can take apart.
#
# Another model reads tokens, the numbers 0 to 15. A sequence is a random piece of 4 to 12 different tokens, repeated up
# to 24 tokens (the last is only asked for, so 23 go in). To train takes a few seconds, on a busy machine half a minute.
#
# Within the first copy nobody can know what comes next. From the second copy on, everybody could who looks back.

# %%
made = copying.sequences(300, seed=3)
copier = copying.trained_copier()
print("a sequence:", *made.tokens[0].tolist())

right = copying.accuracy(copier, made)
print("right, of 100 tokens that can be known:", "98 or more" if right > 0.98 else "fewer than 98")
assert right > 0.98

# %% [markdown]
# It has no layers but attention: two of them, with two **heads** each. A head decides for each position at which earlier
# ones it looks, as shares with sum 1: the **attention pattern**. In this model the pattern goes through a module of its
# own, `layers.0.pattern`, which only hands it on. So one forward hook sees it.

# %% tags=["figure"]
one = copying.sequences(1, seed=6, period=8)
with torch.no_grad(), hooklab.capture(copier, "layers.*.pattern") as seen:
    copier(one.inputs)
first, second = seen["layers.0.pattern"], seen["layers.1.pattern"]  # (sequences, heads, to, from)
figure = figures.attention(torch.stack([first[0], second[0]]), one.inputs[0].tolist())
plt.show()

assert torch.allclose(first.sum(dim=-1), torch.ones(1, 2, 23), atol=1e-5)
to_the_token_before = first[0].diagonal(offset=-1, dim1=1, dim2=2)  # (heads, 22), from position 1 on
assert to_the_token_before[:, :9].mean() > 0.4 and to_the_token_before[:, 15:].mean() < 0.2
assert second[0][:, torch.arange(17, 23), torch.arange(2, 8)].mean() > 0.6

# %% [markdown]
# *What to see:* each row is a position, and shows where it looks. In layer 0, as far as about the twelfth position, a
# stripe right beside the diagonal: at the token **before**. In layer 1 a stripe begins with the second copy and runs 7 to the left, where the period is 8: at the token
# **after the earlier copy** of the present one. That token is the answer. In the third copy most of it lies 15 to the left:
# there they look at the first copy, which says the same. Heads of the second kind are called
# **induction heads** ([2022](https://arxiv.org/abs/2209.11895)); they were found in large language models, and are here in yours.
#
# A stripe in one picture is an impression. Give it a number, for many sequences.

# %% [markdown] tags=["exercise"]
# ### Exercise 9.3 · The induction score of every head
# ●●○ · 5 minutes
#
# All sequences in `tokens` (n, length) have the same `period`. For each module named in `names`, whose output is a pattern
# (n, heads, to, from), return the mean attention of each head from position t to position t − period + 1, over all sequences
# and all t from `period` on. Shape: (len(names), heads), the rows in the order of `names`. Leave no hook behind.
#
# <details><summary>Hint: which numbers of the pattern are these?</summary>
#
# With `t = torch.arange(period, length)`, they are `pattern[:, :, t, t - period + 1]`.
# </details>
# <details><summary>Hint: the model works on, but my scores are those of one head</summary>
#
# Each name is a module of its own, with all its heads. The mean goes over the sequences and over t, not over the heads.
# </details>

# %% tags=["solution"]
def induction_scores(model: nn.Module, names: list[str], tokens: torch.Tensor, period: int) -> torch.Tensor:
    """Return the mean attention on the token after the earlier copy, shape (len(names), heads)."""
    ### BEGIN SOLUTION
    t = torch.arange(period, tokens.shape[1])
    with torch.no_grad(), hooklab.capture(model, *names) as seen:
        model(tokens)
        return torch.stack([seen[name][:, :, t, t - period + 1].mean(dim=(0, 2)) for name in names])
    ### END SOLUTION

# %% tags=["check"]
check("9.3", induction_scores)

# %%
of_eight = copying.sequences(100, seed=4, period=8)
one_back, induction = heads.scores(copier, 1, of_eight), heads.scores(copier, 7, of_eight)  # (layers, heads)
for layer in (0, 1):
    print(f"layer {layer}, its two heads: one back {one_back[layer].mean():.1f}, 7 back {induction[layer].mean():.1f}")
assert induction[1].min() > 0.4 and induction[0].max() < 0.2
assert one_back[0].min() > 0.2 and one_back[1].max() < 0.2
assert heads.scores(copier, 15, of_eight)[1].min() > 0.6

# %% [markdown]
# Layer 0 looks one back; layer 1 has two induction heads. They do not come near 1: in the third copy they look at the
# first, 15 back, and the score counts only 7 back.
#
# ### Switch a head off
#
# What a head looks at goes along with the answer; does the answer need it? Switch the head off (an *ablation*, as in lesson
# 3):
# `hooklab.edit` replaces outputs, and a pattern of zeros lets a head add nothing to its layer's output.

# %%
def without(layer, *switched):
    def off(pattern, call):
        changed = pattern.clone()
        changed[:, list(switched)] = 0.0
        return changed

    return hooklab.edit(copier, off, f"layers.{layer}.pattern")

# %%
predict("9.b")

# %% tags=["predict"]
def right_without(layer, *switched):
    with without(layer, *switched):
        share = copying.accuracy(copier, made)
    left = (
        "more than 85"
        if share > 0.85
        else "fewer than 35"
        if share < 0.35
        else "35 to 85"
    )
    print(f"layer {layer} without {list(switched)}: of 100 answers, {left} are right")
    return share


print("What came out:")
came = [right_without(1, 0), right_without(1, 1), right_without(1, 0, 1)]
below = [right_without(0, 0), right_without(0, 1), right_without(0, 0, 1)]

# %%
reveal("9.b", came)
assert min(came[:2]) > 0.85 and came[2] < 0.3, (
    "In the page's model, one head of layer 1 is enough, and none is not."
)
assert below[2] < 0.35 and max(below[:2]) > 0.85, (
    "In the page's model, layer 0 needs one of its heads at least."
)

# %% [markdown]
# Here is every head, from every position, and what the model expects with and without it.

# %% tags=["explorer"]
explorer.heads_at_work()

# %% tags=["figure"]
display(explorer.draw_head(0, (1, 0), 20, "both heads of its layer"))  # without a kernel: another position
assert "the token after an earlier copy" in explorer.describe_head(0, (1, 0), 20, "none")

# %% [markdown]
# *What to see:* the green bar is where the head looks from the arrow. Below, what the model expects next, with all heads and
# without both of layer 1 (purple).
#
# ## Where is the answer carried?
#
# Each layer adds to one vector for each position, the **residual stream**. The output of `embed`, of `layers.0` and of
# `layers.1` are its three states. Take sequences of period 12, and ask for the last token: position 22 is a copy of position 10,
# so the answer stands at position 11.
#
# Now **corrupt** the run: replace the token at position 10 by one that the sequence does not have. The copy at 22 finds no
# earlier copy, and many answers are lost; from here on we look at these alone. Then **patch** (*activation
# patching*, lesson 4): run the corrupted sequence, but put the clean run's vector in at *one* depth and *one* position. If
# the answer is back, this place carries what was lost.

# %%
clean = heads.for_patching()
broken = heads.corrupted(clean, position=10)
with torch.no_grad():
    lost = [(copier(tokens)[:, -1].argmax(dim=-1) != clean.tokens[:, -1]) for tokens in (clean.inputs, broken)]
for name, share in zip(("clean", "corrupted"), (one.float().mean() for one in lost), strict=True):
    print(f"answers lost in the {name} run:", "hardly any" if share < 0.05 else "many" if share > 0.15 else "some")
assert lost[0].float().mean() < 0.05 and lost[1].float().mean() > 0.15

# %%
predict("9.c")

# %% tags=["predict", "figure"]
# (embed, layers.0, layers.1) × 23 positions
back = heads.carried(copier, clean, position=10)
after_layer_0 = int(back[1].argmax()) if back[1].max() > 0.9 else -1
print("What came out:")
print("After layer 0, the answer comes back with a patch at position", after_layer_0)
figure = figures.carried(back, clean.inputs[0].tolist(), broken=10)
plt.show()

rest = back.clone()
rest[[0, 1, 2], back.argmax(dim=1)] = 0.0  # all places but the best of each depth

# %%
reveal("9.c", after_layer_0)
assert back.argmax(dim=1).tolist() == [10, 11, 22], (
    "In the page's model, the answer is carried at 10, then at 11, then at 22."
)
assert back.max(dim=1).values.min() > 0.9 and rest.max() < 0.3, (
    "In the page's model, one place at each depth carries nearly all of it."
)

# %% [markdown] tags=["exercise"]
# ### Exercise 9.4 · Patch it
# ●●● · 10 minutes
#
# Run `model` on `corrupted`, with the output of the module `name` taken from its run on `clean`, at one `position`
# (dimension 1) and nowhere else. Return the model's output. Both inputs have the same shape; the module is used once in a
# run and returns one tensor (n, length, …). The next module may change this tensor in place, and other parts of the model
# may use it, so work with copies. Leave no hook behind.
#
# <details><summary>Hint: the output is that of the clean run</summary>
#
# Do you put the whole output in, or one position of it? And which of the two inputs does your second run get?
# </details>
# <details><summary>Hint: the output is that of the corrupted run</summary>
#
# A forward hook must *return* the new output. And it must still be there in the second run, and not in the first.
# </details>

# %% tags=["solution"]
def patched(
    model: nn.Module, name: str, clean: torch.Tensor, corrupted: torch.Tensor, position: int
) -> torch.Tensor:
    """Return what the corrupted run gives with one position of one module's output from the clean run."""
    ### BEGIN SOLUTION
    with hooklab.capture(model, name, clone=True) as seen:
        model(clean)

    def put_in(output, call):
        output = output.clone()
        output[:, position] = seen[name][:, position]
        return output

    with hooklab.edit(model, put_in, name):
        return model(corrupted)
    ### END SOLUTION

# %% tags=["check"]
check("9.4", patched)

# %% [markdown] tags=["recap"]
# ## Recap
#
# A forward hook shows what a network looks at; a hook that replaces shows what it needs. Neither is worth much without a
# control.
#
# | what one believes | what came out here |
# |---|---|
# | right in 98 of 100 pictures: it has learned shapes | it read the tag; with random tags it guesses |
# | a map that points at the object shows what was learned | gradient × input does it with random weights |
# | a map explains *this* class | three of five methods change little when asked for another class |
# | a head that can be missed is not needed | both induction heads can be missed, each; not both at once |
#
# To try the main findings with 20 seeds: `python -m hooklab experiment seeing` trains anew, and holds each of its numbers
# against its bounds.
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | Grad-CAM | 梯度加权类激活映射 | channels of a layer, each weighted by the mean of its gradient, added up |
# | attribution, saliency map | 归因，显著图 | how much each place of the input has to do with a score |
# | pointing game | 指向测试 | is the largest number of the map on the object? |
# | sanity check | 合理性检验 | the same map of a network with random weights, or for another class |
# | guided backpropagation | 导向反向传播 | a gradient of which every ReLU passes back the positive part only |
# | occlusion | 遮挡 | paint over a place, and see what is lost |
# | ablation | 消融 | switch a part off, and see what is lost |
# | attention pattern | 注意力模式 | for each position, the shares of its look at the others |
# | induction head | 归纳头 | looks at the token after an earlier copy of the present one |
# | residual stream | 残差流 | the vector of a position, to which each layer adds |
# | activation patching | 激活修补 | put one run's value into another, and see what comes back |
# | logit lens | 对数几率透镜 | read an inner state through the model's last layers |

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A colleague's map of a trained network outlines the tumour in every scan. What do you ask for first?
#
# <details><summary>Answer</summary>
#
# The same maps with random weights, and for the other class. If they outline it too, the maps show the scan.
# </details>
#
# **2.** Every channel of a layer was switched off, one at a time, and none costs any accuracy. Is the layer useless?
#
# <details><summary>Answer</summary>
#
# Not shown. Channels may stand in for each other, as the two induction heads do. Switch off groups, or the whole layer.
# </details>
#
# **3.** You patch the embedding at position 11 instead of 10. What comes back?
#
# <details><summary>Answer</summary>
#
# Nothing: both runs have the same token there. What differs after the embedding is position 10 alone; position 11 only
# differs once layer 0 has told it what stands before it.
# </details>

# %%
progress(9)

# %% [markdown]
# ## If you want more
#
# ### When can the answer be read?
#
# Send each state of the residual stream through `norm` and `unembed`, as if the model ended there: the **logit lens**.

# %%
with torch.no_grad(), hooklab.capture(copier, "embed", "layers.0", "layers.1") as seen:
    copier(made.inputs)
    as_scores = {name: copier.unembed(copier.norm(state)) for name, state in seen.items()}
read = {name: copying.right(scores, made) for name, scores in as_scores.items()}

for name, share in read.items():
    print(f"after {name:<9} the answer can be read:", "yes" if share > 0.98 else "no" if share < 0.3 else "sometimes")
assert max(read["embed"], read["layers.0"]) < 0.3 and read["layers.1"] > 0.98

# %% [markdown]
# After layer 0 the model has all that it needs, at position 11, and next to nothing of the answer can be read at 22 yet. **A
# lens shows what can be read; a patch shows what is used.**
#
# ### Which digits suffer?
#
# In lesson 3 you switched off channels of the digits network and saw the accuracy fall. *Whose* accuracy?

# %% [markdown] tags=["exercise"]
# ### Exercise 9.5 · What each channel is worth
# ●●○ · 6 minutes
#
# `layer` is a layer in `model` that puts out (n, channels, …). Return, for each channel, how much accuracy on `images` and
# `labels` is lost when this channel alone is zero: shape (channels,), positive where something is lost. Other parts of the
# model may use the layer's output too, so change a copy. Leave no hook behind.
#
# <details><summary>Hint: each channel costs more than the one before</summary>
#
# Is the hook of the channel before still there?
# </details>
# <details><summary>Hint: I do not know how many channels there are</summary>
#
# Run the model once with a hook that notes the shape; you need that run for the full accuracy anyway.
# </details>

# %% tags=["solution"]
def ablation_scores(
    model: nn.Module, layer: nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return the accuracy lost without each channel of the layer, shape (channels,)."""
    ### BEGIN SOLUTION
    def right_with(hook):
        with torch.no_grad(), layer.register_forward_hook(hook):
            return (model(images).argmax(dim=1) == labels).float().mean()

    def without_channel(channel):
        def off(module, args, output):
            keep = torch.ones(output.shape[1]).index_fill(0, torch.tensor([channel]), 0.0)
            return output * keep.view(-1, *[1] * (output.ndim - 2))

        return off

    widths = []
    full = right_with(lambda module, args, output: widths.append(output.shape[1]))
    return torch.stack([full - right_with(without_channel(channel)) for channel in range(widths[0])])
    ### END SOLUTION

# %% tags=["check"]
check("9.5", ablation_scores)

# %%
data, cnn = digits(), trained_digits_cnn()


def confusion(channel=-1):
    """Count, for each digit (row), as what it was read (column)."""
    def off(output, call):
        keep = torch.arange(output.shape[1]) != channel
        return output * keep.view(-1, 1, 1)

    with torch.no_grad(), hooklab.edit(cnn, off, "relu2"):
        said = cnn(data.test_images).argmax(dim=1)
    return torch.zeros(10, 10, dtype=torch.int64).index_put_(
        (data.test_labels, said), torch.tensor(1), accumulate=True
    )


full = confusion()
right = torch.stack([confusion(channel).diagonal().sum() for channel in range(16)])
worst = int(right.argmin())
assert int(full.sum()) == 360 and torch.equal(full, confusion(channel=99))
assert full.diagonal().sum() - right.min() >= 4

# %% tags=["figure"]
more = (confusion(worst) - full).fill_diagonal_(0)
pairs = [divmod(int(place), 10) for place in more.flatten().topk(5).indices]
figure = figures.bars(
    {f"{true} read as {said}": int(more[true, said]) for true, said in pairs},
    f"pictures, more than before, without channel {worst}",
)
plt.show()

pays = more.sum(dim=1)  # of each digit, how many are read wrong in addition
assert pays.max() > 0.5 * pays.sum()

# %% [markdown]
# *What to see:* the channel that costs most does not cost everyone the same: a single digit pays for more than half of it (here the 1).

# %% [markdown]
# ### Steering
#
# Switching off takes away. You can also **add**: a direction to a layer's output, and the model says what you want. Take
# the mean of what `layers.1` puts out where the next token is a 3, less its mean everywhere. Then measure the effect by
# dose, and beside it the control: a random direction of the *same length*.

# %% tags=["figure"]
doses = [0.0, 0.5, 1.0, 1.5, 2.0]
said = heads.steering(copier, made, token=3, doses=doses)
figure = figures.doses(said, doses, "share that says 3")
plt.show()

assert said["towards the token"][0] < 0.05 and said["towards the token"][-1] > 0.95
assert said["random"].max() < 0.1

# %% [markdown]
# *What to see:* between a dose of half and of two, the answers tip over. The random direction does nothing: it is not any
# push that moves the model, it is this one.

# %% [markdown]
# ### "My list of gradients is empty"
#
# This is what people meet first when they write such maps. No graph, no gradient, no call of a hook: under `no_grad`, and
# in a model that is frozen altogether. The mend is the same for both: compute the scores with gradients on, and let the
# *images* ask for one. ([A thread about it](https://github.com/jacobgil/pytorch-grad-cam/issues/95))

# %% tags=["field", "field-04"]
def collect(model, images, grad_enabled=True):
    gradients = []

    def hook_the_output(module, args, output):
        if output.requires_grad:  # as many tools do; without this line, the hook raises
            output.register_hook(gradients.append)

    with model.block3.register_forward_hook(hook_the_output), torch.set_grad_enabled(grad_enabled):
        ended = error_of(lambda: model(images).sum().backward())
    return len(gradients), ended


frozen, image = shapes.untrained().requires_grad_(False), some.images[:1]
found = [collect(network, image, grad_enabled=False), collect(frozen, image)]
found.append(collect(frozen, image.clone().requires_grad_()))
print(*found, sep="\n")
network.zero_grad()
assert found[0] == found[1] and found[0][0] == 0 and "does not require grad" in found[0][1]
assert found[2] == (1, "no error")

# %% [markdown]
# ### "A hook on `out_proj` never fires, and the attention weights are None"
#
# `nn.MultiheadAttention` hands the *weight* of its `out_proj` to a function; it never calls the module. And a
# `TransformerEncoderLayer` asks it for no weights. Hook the attention itself, and ask for the weights by a pre-hook that changes
# the keyword arguments (lesson 4). ([A thread about it](https://github.com/pytorch/pytorch/issues/78109))

# %% tags=["field", "field-52"]
def ask_for_weights(module, args, kwargs):
    return args, {**kwargs, "need_weights": True, "average_attn_weights": False}


block, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.rand(1, 3, 8)
with hooklab.capture(block, "self_attn", "self_attn.out_proj") as seen:
    block(x)
    print("silent:", seen.silent, "  weights:", seen["self_attn"][1])
    assert seen.silent == ["self_attn.out_proj"] and seen["self_attn"][1] is None
    with block.self_attn.register_forward_pre_hook(ask_for_weights, with_kwargs=True):
        block(x)
    print("asked for, (batch, heads, to, from):", tuple(seen["self_attn"][1].shape))
    assert seen["self_attn"][1].shape == (1, 2, 3, 3)

# %% [markdown]
# ### "`scaled_dot_product_attention` gives no weights"
#
# It is a function: there is no module to hook, and it returns the result only. The weights are one line by hand; or let it
# weigh the rows of the identity, which gives the weights themselves. ([A thread about it](https://github.com/pytorch/pytorch/issues/119811))

# %% tags=["field", "field-196"]
q, k, v = torch.rand(3, 1, 2, 5, 4).unbind()  # (batch, heads, length, width)
weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
by_identity = nn.functional.scaled_dot_product_attention(q, k, torch.eye(5).expand(1, 2, 5, 5))
print("the same weights:", torch.allclose(by_identity, weights, atol=1e-6))
assert torch.allclose(by_identity, weights, atol=1e-6)
assert torch.allclose(nn.functional.scaled_dot_product_attention(q, k, v), weights @ v, atol=1e-6)

# %% [markdown]
# ### "Hooks inside the encoder layer do not fire in eval mode"
#
# In evaluation mode, without gradients, the layer takes a **fast path**: one fused operation. A hook on any module inside
# makes it take the slow one (in older releases it did not). A *global* hook is not noticed, so it sees the outside only.
# ([A thread about it](https://github.com/pytorch/pytorch/issues/128413))

# %% tags=["field", "field-51"]
def seen_by_a_global_hook(fast):
    names = []
    torch.backends.mha.set_fastpath_enabled(fast)
    note = lambda module, args, output: names.append(type(module).__name__)  # noqa: E731
    with torch.no_grad(), nn.modules.module.register_module_forward_hook(note):
        block(x)
    torch.backends.mha.set_fastpath_enabled(True)
    return names


block.eval()
with torch.no_grad(), hooklab.capture(block, "linear1") as seen:
    block(x)
fast, slow = seen_by_a_global_hook(True), seen_by_a_global_hook(False)
print("a hook inside fired:", seen.silent == [], "  a global hook saw:", fast, "and", len(slow), "modules on the slow path")
assert seen.silent == [] and fast == ["TransformerEncoderLayer"]
assert "MultiheadAttention" in slow and slow.count("Linear") == 2

# %% [markdown]
# ### "Steering in a `generate` loop: index out of bounds"
#
# `Talker` is a toy with a cache. With one, the model sees the whole prompt once, and then one new token a step. An edit at position 2 of the prompt fails in
# the second step. `call.pass_index` counts the runs inside the `with`; in run 0 comes the prompt.
# ([A thread about it](https://github.com/steering-vectors/steering-vectors/issues/60))

# %% tags=["field", "field-102"]
talker, prompt = Talker(), torch.tensor([[1, 2, 3, 4]])


def push(output, call):
    output = output.clone()
    output[:, 2] += 1.0
    return output


def generate(edit):
    with hooklab.edit(talker, edit, "layer"):
        return talker.generate(prompt, 3)


def push_the_prompt(output, call):
    shapes_seen.append(tuple(output.shape))
    return push(output, call) if call.pass_index == 0 else None


shapes_seen = []
print(error_of(generate, push))
print(error_of(generate, push_the_prompt), shapes_seen)
assert error_of(generate, push).startswith("IndexError")
assert shapes_seen[:3] == [(1, 4, 4), (1, 1, 4), (1, 1, 4)] and generate(push_the_prompt).shape == (1, 7)

# %% [markdown]
# ### "I want the hidden states of the generated tokens, and have only the last"
#
# A dictionary with one place for each layer is overwritten in every step. Keep every pass, and put them in a row.
# ([A thread about it](https://github.com/TransformerLensOrg/TransformerLens/issues/697))

# %% tags=["field", "field-103"]
store = {}
with talker.layer.register_forward_hook(lambda module, args, output: store.update(layer=output)):
    talker.generate(prompt, 4)
with hooklab.capture(talker, "layer", keep="all") as seen:
    written = talker.generate(prompt, 4)
states = torch.cat([one["layer"] for one in seen.passes], dim=1)

print("one place:", tuple(store["layer"].shape), "  every pass:", tuple(states.shape))
assert store["layer"].shape == (1, 1, 4) and len(seen.passes) == 4
with torch.no_grad():
    assert torch.allclose(states, talker.layer(talker.embed(written[:, :-1])))

# %% [markdown]
# ### "The last layer's output is not `hidden_states[-1]`"
#
# Many models send the last layer's output through one more normalisation, and list the *result* as the last hidden state.
# So it is in our copier: what `unembed` reads is `norm`'s output. Capture that one. ([A thread about
# it](https://github.com/huggingface/transformers/issues/26142))

# %% tags=["field", "field-127"]
encoder = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, norm=nn.LayerNorm(8), enable_nested_tensor=False
)
with hooklab.capture(encoder, "layers.1", "norm") as seen:
    last = encoder(x)
same = {name: torch.equal(seen[name], last) for name in ("layers.1", "norm")}
print("equal to what the encoder returns:", same)
assert same == {"layers.1": False, "norm": True}

# %% [markdown]
# ### "Maps of second order: memory grows with each picture"
#
# A map that is itself trained on (a gradient of a gradient) needs `create_graph=True`. Then the gradient has a graph of its
# own. Whoever keeps such a gradient, or an activation as the hook got it, keeps the graph of that run. `Square` counts the
# graphs that are alive. ([A thread about it](https://github.com/jacobgil/pytorch-grad-cam/issues/575))

# %% tags=["field", "field-111"]
def penalised(keep):
    model, kept = nn.Sequential(nn.Linear(2, 2), Square(), nn.Linear(2, 1)), []
    with model[1].register_forward_hook(lambda module, args, output: kept.append(keep(output))):
        for _ in range(4):
            (slope,) = torch.autograd.grad(model(torch.rand(1, 2)).sum(), model[0].weight, create_graph=True)
            slope.square().sum().backward()
            model.zero_grad()
    del slope
    return kept, len(Square.alive)


def live(output):
    return output


for keep in (live, torch.Tensor.detach):
    kept, alive = penalised(keep)
    print(f"kept {len(kept)} outputs ({keep.__name__}): graphs alive: {alive}")
    assert alive == (4 if keep is live else 0)
    del kept
