# %% [markdown]
# # 9 · What does the network look at, and what if I switch it off?
#
# **Time** 60 minutes, and 51 for what comes after the recap and for the hardest exercise &nbsp;·&nbsp; **You need**
# lesson 3 (forward hooks) and lesson 5 (backward hooks)
#
# After this lesson you can
#
# - draw a map of what a network looks at, and say how far you can trust it;
# - notice that a network is right for the wrong reason;
# - see what each head of a transformer attends to, and switch heads off;
# - find the place in a network where an answer is carried, by patching.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn

import hooklab
from hooklab import check, predict, progress, reveal
from hooklab.course.digits import accuracy, digits, trained_digits_cnn
from hooklab.course.errors import error_of
from hooklab.course.exercises.ready import yours_or
from hooklab.course.lesson09 import copying, explorer, figures, heads, maps, shapes
from hooklab.course.lesson09.helpers import Square, Talker

torch.set_num_threads(1)

# %% [markdown]
# ## A network that is always right
#
# Here are pictures from a scanner, with their labels. The colour, place, size and angle of the shapes are random. We
# train a small network on such pictures: three blocks of convolution, batch norm and ReLU, then the mean over all
# places, and a linear layer that gives three scores. This takes a few seconds.

# %% tags=["figure", "nbval-ignore-output"]
scanned = shapes.pictures(500, seed=1)
network = shapes.trained()
display(figures.pictures(scanned))

right = accuracy(network, scanned.images, scanned.labels)
print(f"right on pictures that it hasn't seen: {right:.0%}")
assert right >= 0.98

# %% [markdown]
# Would you use it? You know *how often* it is right. But what does it look at?
#
# ### Grad-CAM
#
# The last block returns 32 feature maps of 8×8 places. The score of a class depends on each of these values, and the
# gradient says how much. **Grad-CAM** ([2017](https://arxiv.org/abs/1610.02391)) turns them into one map:
#
# 1. the weight of a channel is the **mean of the score's gradient over its places**;
# 2. the map is the sum of all channels, each multiplied by its weight;
# 3. negative values speak against the class, so they are set to 0.
#
# So you need a layer's output, and the gradient of the score with respect to that output. One forward hook is enough.

# %% [markdown] tags=["exercise"]
# ### Exercise 9.1 · Grad-CAM
# ●●○ · 9 minutes
#
# Write `grad_cam(model, layer, images, labels)`. `layer` is a layer of `model` that returns feature maps (n,
# channels, height, width), and `model(images)` returns scores (n, classes). Return one map per image, of shape (n,
# height, width), by the three steps above: what speaks for **the image's own label**.
#
# It should also work if all parameters of the model are frozen. Leave nothing behind: no hook, no `.grad`, no
# attribute on a module. The images and the model's mode stay as they were.
#
# <details><summary>Hint: "element 0 of tensors does not require grad"</summary>
#
# If all parameters are frozen, nothing requires grad, and no graph is recorded. Use a copy of the images that does:
# `images.clone().requires_grad_()`.
# </details>
# <details><summary>Hint: how do I get the gradient without filling .grad?</summary>
#
# `torch.autograd.grad(score, output)` returns the gradient and writes nothing. The score of each image's own label is
# `scores[torch.arange(n), labels]`. One image doesn't affect another's score, so you can take the sum.
# </details>


# %% tags=["solution"]
def grad_cam(
    model: nn.Module, layer: nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return the labels' Grad-CAM maps at this layer, shape (n, height, width)."""
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
# Now your function draws. It returns 8×8 maps; `maps.resized` brings them to the size of the pictures. (If 9.1 is
# still open, a ready function draws instead.)

# %% tags=["figure"]
cam = yours_or("9.1", grad_cam, maps.cam)


def cam_map(model, images, labels):
    return maps.resized(cam(model, model.block3, images, labels))


some = shapes.Pictures(*(part[:100] for part in scanned))
looked = cam_map(network, some.images, some.labels)
display(figures.maps(some, {"Grad-CAM": looked}))

assert maps.points_at(looked[:6], shapes.tag_masks(6)) == 1.0
assert maps.points_at(looked[:6], some.masks[:6]) == 0.0

# %% [markdown]
# *What to see:* yellow is large, dark is zero, the dot is the maximum, and the white outline is the shape. The
# scanner puts a coloured tag into the corner of each picture. In all six pictures the maximum is on this tag, not on
# the shape: the tag's colour gives the label away. So what if the tags have random colours?

# %% tags=["nbval-ignore-output"]
shuffled = shapes.pictures(500, seed=2, tags="random")
right = accuracy(network, shuffled.images, shuffled.labels)
print(f"right with random tags: {right:.0%} (guessing: 33 %)")
assert 0.25 < right < 0.45

# %% [markdown]
# Clever Hans was a horse that could count, as long as the person who asked knew the answer. Our network is such a
# horse, and accuracy on scanned pictures alone would never have shown it.
#
# ## A map that is scored, not admired
#
# We made the pictures, so we know where each shape is, and any kind of map can play the **pointing game**: in what share
# of the pictures is the map's maximum on the shape, or within 2 pixels of it?
#
# We can also fix the network: train it again with tags of random colours, which carry no information. From here on the
# first network is called **own tags**, because each class has its own colour of tag, and the second **random tags**.

# %% tags=["figure", "nbval-ignore-output"]
fixed = shapes.trained("random")  # the same few seconds again
rows = {
    "own tags": looked,
    "random tags": cam_map(fixed, some.images, some.labels),
}
points = {name: maps.points_at(row, some.masks) for name, row in rows.items()}
titles = {name: f"trained with\n{name}\npoints {points[name]:.2f}" for name in rows}
display(figures.maps(some, {titles[name]: row for name, row in rows.items()}))

assert points["own tags"] < 0.15 and points["random tags"] > 0.8

earned = accuracy(fixed, shuffled.images, shuffled.labels)
print(f"right with random tags, after this training: {earned:.0%}")
assert 0.75 < earned < 0.98

# %% [markdown]
# *What to see:* the same pictures in both rows, and the fixed network looks at the shapes. ("points" is the score of the
# pointing game, over 100 pictures.) It is right less often than the first one seemed to be, but it has earned its score.
# The map is coarse: one place of the 8×8 map stands for 16 pixels, so the yellow reaches beyond the shape.

# %% [markdown]
# ## Is a map that points at the shape a good map?
#
# Grad-CAM isn't the only kind of map (they are called *saliency maps* or *attributions*).
# `hooklab/course/lesson09/maps.py` has four others:
#
# - **gradient**: how strongly does each *pixel* change the score?
# - **gradient × input**: the same, multiplied by the pixel.
# - **guided backprop**: the gradient, but every ReLU passes back only the positive part. A backward hook does this.
# - **occlusion**: how far does the class's probability fall if a square of the picture is painted over? This one uses no
#   gradient.
#
# Let all of them play the pointing game. But first: how well does a network play that knows *nothing*?

# %%
predict("9.a")

# %% tags=["predict"]
def hits_of(found):
    return round(100 * maps.points_at(found, some.masks))


untrained = shapes.untrained()
hits = hits_of(maps.gradient_times_input(untrained, some.images, some.labels))
print("What came out:")
print("maps of 100 that point at the shape: about", round(hits, -1))

# %%
reveal("9.a", hits)
assert hits > 60, "With the page's random weights, most maps point at the shape."

# %% [markdown]
# This map is the gradient multiplied by the picture. So which of the two draws the shape? Try the same network on
# inverted pictures, where bright is dark. And try a "map" without any network, the brightness of each pixel:

# %% tags=["folded", "nbval-ignore-output"]
print("What came out:")
inverted = hits_of(maps.gradient_times_input(untrained, 1 - some.images, some.labels))
brightness = hits_of(some.images.sum(dim=1))
print("maps of 100 that point at the shape")
print("random weights, inverted pictures: about", round(inverted, -1))
print("no network, brightness alone:     ", brightness)
assert inverted < 60 and brightness == 100

# %% [markdown]
# Brightness alone points at the shape every time. So a map that points at a bright object proves nothing yet. Here
# are all five methods, for both trained networks and for random weights:

# %% tags=["figure", "folded"]
print("What came out:")
methods = {**maps.METHODS, "Grad-CAM": cam_map}
networks = {"own tags": network, "random tags": fixed, "random weights": untrained}
few = shapes.Pictures(*(part[:60] for part in scanned))
score = {
    method: {
        name: maps.points_at(make(one, few.images, few.labels), few.masks)
        for name, one in networks.items()
    }
    for method, make in methods.items()
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
# *What to see:* every method distinguishes the two trained networks. But the crosses, the random weights, are far to the
# right of chance, and for gradient × input nearly as far as the square.
#
# So a map needs controls. One is a network with **random weights** ([sanity checks,
# 2018](https://arxiv.org/abs/1810.03292)). Another costs one more map: ask for **another class**. What speaks for a
# disc shouldn't be what speaks for a square.
#
# One method goes wrong more easily than the others, because it changes gradients. Write it, and then we put all of them
# to this test:

# %% [markdown] tags=["exercise"]
# ### Exercise 9.2 · Fix it: guided backprop
# ●●○ · 8 minutes
#
# This script is meant to return, for each image, the gradient of its own label's score with respect to the image,
# where every `nn.ReLU` passes back only the positive part. Instead it raises an error, for one image and for two, and
# afterwards the model can't be trained any more. Fix it, for any number of images.
#
# The models have `nn.ReLU` modules that don't work in place; other parts of the model may use a ReLU's input too.
# Leave nothing behind: no hook, no `.grad`, and unchanged images.
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
# A full backward hook returns a tuple with one entry for each entry of `grad_input` (lesson 5).
# </details>
# <details><summary>Hint: the second call returns different numbers than the first</summary>
#
# If there already is an `images.grad`, what does `backward()` do with it? And with `.grad` of the parameters?
# </details>
# <details><summary>Hint: for two images the maps are too large</summary>
#
# `scores[:, labels]` has shape (n, n): every image with every label.
# </details>


# %% tags=["solution"]
def guided_backprop(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return the guided gradient of each image's own score, shaped like the images."""

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
# Now ask every method **twice** about the same picture: what speaks for its own class, and what for a different class?
#
# A gradient has a sign, and a bright spot has none, so it's tempting to draw the gradient's *size*. Is that harmless?
# The number below is the rank correlation of the two maps, the mean over 60 pictures: 1 if their pixels come in the
# same order, 0 if they are unrelated, −1 for the opposite order. (The last column is your function.)

# %% tags=["figure", "folded"]
print("What came out:")
guided = yours_or("9.2", guided_backprop, maps.guided_gradient)
methods = {
    "Grad-CAM": cam_map,
    "occlusion": maps.occlusion,
    "gradient": lambda *asked: maps.input_gradient(*asked).sum(dim=1),
    "gradient's size": lambda *asked: maps.input_gradient(*asked).sum(dim=1).abs(),
    "guided backprop": lambda *asked: guided(*asked).sum(dim=1),
}
other = (few.labels + 1) % 3
both = {
    name: [make(fixed, few.images, labels) for labels in (few.labels, other)]
    for name, make in methods.items()
}
alike = {name: maps.alike(*two) for name, two in both.items()}
display(figures.two_classes(few, other, both, alike))

assert max(alike["Grad-CAM"], alike["occlusion"]) < 0.3 and alike["gradient"] < 0
assert min(alike["gradient's size"], alike["guided backprop"]) > 0.4

# %% [markdown]
# *What to see:* compare each upper map with the one below it. In the white maps, blue speaks for the class and orange
# against it; in the dark ones, yellow speaks for it. The gradient changes with the question: many pixels turn from blue
# to orange. Draw its size, and you get nearly the same map twice. **Throw the sign away, and the map forgets the class.**
#
# Guided backprop keeps the sign, and its two maps are much alike all the same. So what it draws depends on the picture
# more than on the question. The paper on sanity checks found that in large
# networks it works like an **edge detector**.
#
# Grad-CAM and occlusion do change with the class. Still, they may point at the shape with random weights. No map
# without its controls.

# %% [markdown]
# ## A transformer that you train in seconds
#
# A map shows *where* something is. It doesn't show whether the network *needs* it. To find that out, we take a model
# apart.
#
# This model reads tokens, the numbers 0 to 15. A sequence is a random piece of 4 to 12 different tokens, repeated
# until it has 24 tokens. The model gets the first 23, and predicts the next token at each position. Training takes a
# few seconds, or half a minute on a busy machine.
#
# In the first copy of the piece, the next token can't be known. From the second copy on it can, if the model looks
# back.

# %% tags=["nbval-ignore-output"]
made = copying.sequences(300, seed=3)
copier = copying.trained_copier()
print("a sequence:", *made.tokens[0].tolist())

right = copying.accuracy(copier, made)
print(f"right, where the next token can be known: {right:.0%}")
assert right > 0.98

# %% [markdown]
# The model is two attention layers with two **heads** each, and nothing else. For each position, a head decides how
# much it looks at each earlier position; these shares add up to 1 and are called the **attention pattern**. In this
# model the pattern passes through its own module, `layers.0.pattern`, which returns it unchanged. So you can see it
# with a forward hook.

# %% tags=["figure"]
one = copying.sequences(1, seed=6, period=8)
with torch.no_grad(), hooklab.capture(copier, "layers.*.pattern") as seen:
    copier(one.inputs)
# (sequences, heads, to, from)
first, second = seen["layers.0.pattern"], seen["layers.1.pattern"]
figure = figures.attention(torch.stack([first[0], second[0]]), one.inputs[0], period=8)
plt.show()

assert torch.allclose(first.sum(dim=-1), torch.ones(1, 2, 23), atol=1e-5)
# (heads, 22), from position 1 on
to_the_token_before = first[0].diagonal(offset=-1, dim1=1, dim2=2)
assert to_the_token_before[:, :9].mean() > 0.4
assert to_the_token_before[:, 15:].mean() < 0.2
assert second[0][:, torch.arange(17, 23), torch.arange(2, 8)].mean() > 0.6

# %% [markdown]
# *What to see:* each row is a position, and the green squares show where it looks. Grey lines divide the three copies.
#
# - **Layer 0**: in the first copy and half of the second, each position looks at the token **before** it.
# - **Layer 1**: in the second copy, each position looks 7 places back, where the period is 8: at the token that came
#   **after the earlier copy** of its own token. That token is the answer! In the third copy both heads look mostly 15
#   places back, into the first copy, which says the same.
#
# Heads of the second kind are called **induction heads** ([2022](https://arxiv.org/abs/2209.11895)). They were found
# in large language models, and here they are in yours. A stripe in one picture is an impression; let's measure it
# over many sequences.

# %% [markdown] tags=["exercise"]
# ### Exercise 9.3 · The induction score of every head
# ●●○ · 5 minutes
#
# Write `induction_scores(model, names, tokens, period)`. Each module in `names` returns a pattern (n, heads, to,
# from) when the model runs on `tokens` (n, length). All sequences have the same `period`.
#
# For each head, return the mean attention from position t to position t − period + 1, over all sequences and all t
# from `period` on. The result has shape (len(names), heads), with one row per name, in the order of `names`. Leave no
# hook behind.
#
# <details><summary>Hint: which numbers of the pattern are these?</summary>
#
# With `t = torch.arange(period, length)`, they are `pattern[:, :, t, t - period + 1]`.
# </details>
# <details><summary>Hint: I get one number for all heads</summary>
#
# Take the mean over the sequences and over t, not over the heads.
# </details>


# %% tags=["solution"]
def induction_scores(
    model: nn.Module, names: list[str], tokens: torch.Tensor, period: int
) -> torch.Tensor:
    """Return the heads' induction scores, shape (len(names), heads)."""
    ### BEGIN SOLUTION
    t = torch.arange(period, tokens.shape[1])
    with torch.no_grad(), hooklab.capture(model, *names) as seen:
        model(tokens)
        return torch.stack(
            [seen[name][:, :, t, t - period + 1].mean(dim=(0, 2)) for name in names]
        )
    ### END SOLUTION


# %% tags=["check"]
check("9.3", induction_scores)

# %% tags=["nbval-ignore-output"]
score_of = yours_or("9.3", induction_scores, heads.induction_scores)
patterns = ["layers.0.pattern", "layers.1.pattern"]
of_eight = copying.sequences(100, seed=4, period=8)
induction = score_of(copier, patterns, of_eight.inputs, 8)
for layer, both_heads in enumerate(induction.numpy().round(2)):
    print(f"induction scores of layer {layer}:", both_heads)
assert induction[1].min() > 0.4 and induction[0].max() < 0.2
assert heads.scores(copier, 15, of_eight)[1].min() > 0.6

# %% [markdown]
# Layer 1 has two induction heads. In the third copy they look 15 places back and not 7, which the score doesn't count;
# so it stays below 1.
#
# ### Switch a head off
#
# A head looks at the answer. But does the model *need* the head? Switch it off and see (an *ablation*, as in lesson
# 3). If the pattern is all zeros, the head adds nothing to its layer's output, and `hooklab.edit` can replace the
# pattern:


# %%
def without(*switched):
    def off(pattern, call):
        changed = pattern.clone()
        changed[:, list(switched)] = 0.0
        return changed

    return hooklab.edit(copier, off, "layers.1.pattern")


# %%
predict("9.b")


# %% tags=["predict", "nbval-ignore-output"]
def right_without(*switched):
    with without(*switched):
        share = copying.accuracy(copier, made)
    print(f"layer 1 without {list(switched)}: {share:.0%} of the answers are right")
    return share


print("What came out:")
came = [right_without(0), right_without(1), right_without(0, 1)]

# %%
reveal("9.b", came)
assert min(came[:2]) > 0.85 and came[2] < 0.3, (
    "In the page's model, one head of layer 1 is enough, and none is not."
)

# %% [markdown]
# ## Where is the answer carried?
#
# For each position the model has one vector, and each layer adds to it: the **residual stream**. The outputs of
# `embed`, `layers.0` and `layers.1` are its three states. Take sequences of period 12, and ask for the token after
# position 22. Position 22 is a copy of position 10, so the answer is the token at position 11. Now **corrupt** the input:
# replace the token at position 10 by one that isn't in the sequence.
#
# ```
# position     …   9   10   11   12   …   21   22   23
# clean        …   1   11    5   15   …    1   11    5   (the answer)
# corrupted    …   1    3    5   15   …    1   11    ?
# ```
#
# Position 22 finds no earlier copy of its token any more, and about half of the answers are lost. (We haven't
# looked into how the model still gets the others right.) From here on we only look at the lost ones.
#
# Can you bring an answer back? **Activation patching** (lesson 4) runs the corrupted sequence, but takes *one*
# vector, at one depth and one position, from the clean run. If the answer comes back, that vector carries what was
# lost.

# %% tags=["nbval-ignore-output"]
clean = heads.for_patching()
broken = heads.corrupted(clean, position=10)
for name, tokens in (("clean", clean.inputs), ("corrupted", broken)):
    with torch.no_grad():
        said = copier(tokens)[:, -1].argmax(dim=-1)
    lost = (said != clean.tokens[:, -1]).float().mean().item()
    print(f"answers lost in the {name} run: {lost:.0%}")
    assert lost < 0.05 if name == "clean" else lost > 0.15
assert clean.tokens[0, [10, 11, 22, 23]].tolist() == [11, 5, 11, 5]
assert broken[0, 10] == 3

# %% [markdown] tags=["exercise"]
# ### Exercise 9.4 · Patch it
# ●●● · 12 minutes
#
# Write `patched(model, name, clean, corrupted, position)`. Run `model` on `corrupted`, but take the output of the
# module called `name` at this one `position` (dimension 1) from a run on `clean`. Return the model's output.
#
# Both inputs have the same shape. The module is used once per run and returns one tensor (n, length, …). The next
# module may change this tensor in place, and other parts of the model may use it, so work with copies. Leave no hook
# behind. (It can wait: until it works, a ready function patches below.)
#
# <details><summary>Hint: I get the output of the clean run</summary>
#
# Do you put in the whole output, or one position of it? And which of the two inputs does your second run get?
# </details>
# <details><summary>Hint: I get the output of the corrupted run</summary>
#
# A forward hook must *return* the new output. And it must be registered in the second run, not in the first.
# </details>


# %% tags=["solution"]
def patched(
    model: nn.Module,
    name: str,
    clean: torch.Tensor,
    corrupted: torch.Tensor,
    position: int,
) -> torch.Tensor:
    """Run on corrupted, with one position of one module's output from clean."""
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

# %%
predict("9.c")

# %% tags=["predict", "figure"]
print("What came out:")
patch = yours_or("9.4", patched, heads.patched)
# (embed, layers.0, layers.1) × 23 positions
back = heads.carried(copier, clean, position=10, patch=patch)
after_layer_0 = int(back[1].argmax()) if back[1].max() > 0.9 else -1
print("After layer 0, a patch at this position brings the answer back:", after_layer_0)
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

# %% [markdown]
# *What to see:* each row is a depth, each column a position. The number is the share of lost answers that a patch there
# brings back (dark: all). Follow the arrows from 10 to 11 to 22.

# %% [markdown] tags=["recap"]
# ## Recap
#
# A forward hook shows what a network looks at. A hook that replaces a value shows what the network needs. Without a
# control, neither proves much.
#
# | what you might believe | what we found here |
# |---|---|
# | right in (nearly) 100 % of new pictures, so it has learned shapes | it read the tag; with random tags it guesses |
# | a map that points at the object shows what was learned | gradient × input does so with random weights, brightness without any network |
# | a map explains *this* class | without its sign, the gradient's map is much alike for another class; guided backprop's is, even with the sign |
# | a head isn't needed if nothing is lost without it | either induction head can go; without both, nearly everything is lost |
#
# We didn't try a large model. To repeat the main findings with 20 seeds, run `python -m hooklab experiment seeing`. For
# the hooks of this lesson, see [PyTorch's documentation of
# `nn.Module`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html).
#
# | term | 中文 | in a sentence |
# |---|---|---|
# | Grad-CAM | 梯度加权类激活映射 | the channels of a layer, each weighted by the mean of its gradient, added up |
# | attribution, saliency map | 归因，显著图 | how much each place of the input affects a score |
# | pointing game | 指向测试 | is the map's maximum on the object? |
# | sanity check | 合理性检验 | the same map for a network with random weights, or for another class |
# | guided backpropagation | 导向反向传播 | a gradient of which every ReLU passes back only the positive part |
# | occlusion | 遮挡 | paint over a place, and see what is lost |
# | ablation | 消融 | switch a part off, and see what is lost |
# | attention pattern | 注意力模式 | for each position, how much it looks at each of the others |
# | induction head | 归纳头 | looks at the token after an earlier copy of its own token |
# | residual stream | 残差流 | the vector of a position, to which each layer adds |
# | activation patching | 激活修补 | put one run's value into another run, and see what comes back |
# | ↓ logit lens | 对数几率透镜 | read an inner state through the model's last layers |
#
# (↓ is shown below, in "If you want more".)

# %% [markdown] tags=["quiz"]
# ### Three questions
#
# **1.** A colleague's map of a trained network outlines the tumour in every scan. What do you ask for first?
#
# <details><summary>Answer</summary>
#
# The same maps with random weights, and for the other class. If they outline the tumour too, they show the scan and
# not what the network has learned.
# </details>
#
# **2.** You switch off every channel of a layer, one at a time, and never lose any accuracy. Is the layer useless?
#
# <details><summary>Answer</summary>
#
# You haven't shown that. Channels may do each other's work, as the two induction heads do. Switch off groups, or the
# whole layer.
# </details>
#
# **3.** You patch the embedding at position 11 instead of 10. What comes back?
#
# <details><summary>Answer</summary>
#
# Nothing: both runs have the same token there. After the embedding, only position 10 differs. Position 11 starts to
# differ after layer 0, which copies into it what comes before.
# </details>

# %%
progress(9)

# %% [markdown]
# ## If you want more
#
# ### Look at any map
#
# Any picture, with any of the networks and methods:

# %% tags=["explorer"]
explorer.what_it_looks_at()

# %% tags=["figure"]
places = {
    ("own tags", "occlusion"): "the tag",
    ("random weights", "gradient × input"): "the shape",
}
for (name, method), where in places.items():  # without a kernel: two positions
    display(explorer.draw_map(0, name, method, "block3"))
    print(f"{name}, {method}: points at {where}")
    described = explorer.describe_map(0, name, method, "block3")
    assert f"points at {where};" in described

# %% [markdown]
# *What to see:* a picture from the scanner, and its map. Above, occlusion finds the tag, which is what the network
# needs. Below, the map of an untrained network looks as if it knew what a shape is.
#
# ### Look at any head
#
# Here is every head, from every position, and what the model predicts with and without it.

# %% tags=["explorer"]
explorer.heads_at_work()

# %% tags=["figure"]
# without a kernel: another position
display(explorer.draw_head(0, (1, 0), 20, "both heads of its layer"))
assert "the token after an earlier copy" in explorer.describe_head(
    0, (1, 0), 20, "none"
)

# %% [markdown]
# *What to see:* the green bars show where the head looks from the position with the arrow. Below, what the model
# predicts when both heads of layer 1 are off (purple). Choose "none" to see it with all heads.
#
# ### When can the answer be read?
#
# Send each state of the residual stream through `norm` and `unembed`, as if the model ended there. This is the
# **logit lens**.

# %% tags=["nbval-ignore-output"]
places = ("embed", "layers.0", "layers.1")
with torch.no_grad(), hooklab.capture(copier, *places) as seen:
    copier(made.inputs)
    as_scores = {
        name: copier.unembed(copier.norm(state)) for name, state in seen.items()
    }
read = {name: copying.right(scores, made) for name, scores in as_scores.items()}

for name, share in read.items():
    print(f"after {name:<9} {share:.0%} of the answers can be read")
assert max(read["embed"], read["layers.0"]) < 0.3 and read["layers.1"] > 0.98

# %% [markdown]
# After layer 0 the model has everything it needs, at position 11; yet almost no answer can be read. **A lens shows
# what can be read, a patch shows what is used.**
#
# ### Which digits suffer?
#
# In lesson 3 you switched off channels of the digits network, and the accuracy fell. *On which digits?*

# %% [markdown] tags=["exercise"]
# ### Exercise 9.5 · What each channel is worth
# ●●○ · 8 minutes
#
# Write `ablation_scores(model, layer, images, labels)`. `layer` is a layer of `model` that returns (n, channels, …).
# For each channel, set this channel alone to zero, and measure how much accuracy on `images` and `labels` is lost.
# Return these numbers, of shape (channels,): positive where accuracy is lost.
#
# Other parts of the model may use the layer's output too, so change a copy. Leave no hook behind.
#
# <details><summary>Hint: each channel costs more than the previous one</summary>
#
# Is the hook of the previous channel still registered?
# </details>
# <details><summary>Hint: I don't know how many channels there are</summary>
#
# Run the model once with a hook that stores the shape. You need that run for the full accuracy anyway.
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
            keep = torch.ones(output.shape[1]).index_fill(
                0, torch.tensor([channel]), 0.0
            )
            return output * keep.view(-1, *[1] * (output.ndim - 2))

        return off

    widths = []
    full = right_with(lambda module, args, output: widths.append(output.shape[1]))
    return torch.stack(
        [full - right_with(without_channel(channel)) for channel in range(widths[0])]
    )
    ### END SOLUTION


# %% tags=["check"]
check("9.5", ablation_scores)

# %% tags=["nbval-ignore-output"]
data, cnn = digits(), trained_digits_cnn()


def confusion(channel=-1):
    """Count, for each true digit (row), which digit the network reads (column)."""

    def off(output, call):
        keep = torch.arange(output.shape[1]) != channel
        return output * keep.view(-1, 1, 1)

    with torch.no_grad(), hooklab.edit(cnn, off, "relu2"):
        said = cnn(data.test_images).argmax(dim=1)
    return torch.zeros(10, 10, dtype=torch.int64).index_put_(
        (data.test_labels, said), torch.tensor(1), accumulate=True
    )


full = confusion()
worth = yours_or("9.5", ablation_scores, maps.channels_worth)
lost = worth(cnn, cnn.relu2, data.test_images, data.test_labels)
worst = int(lost.argmax())
print(f"without channel {worst}, {lost[worst]:.1%} of the accuracy is lost")
assert int(full.sum()) == 360 and torch.equal(full, confusion(channel=99))
assert lost[worst] * 360 >= 3.9

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
# *What to see:* the costliest channel doesn't cost all digits the same. One digit alone, here the 1, accounts for
# more than half of the new mistakes.

# %% [markdown]
# ### Steering
#
# Switching off takes something away. You can also **add** a direction to a layer's output, so that the model says
# what you want. Take the mean output of `layers.1` over the positions where the next token is a 3, minus its mean
# over all positions. Add it in different doses. The control is a random direction of the *same length*.

# %% tags=["figure"]
doses = [0.0, 0.5, 1.0, 1.5, 2.0]
said = heads.steering(copier, made, token=3, doses=doses)
figure = figures.doses(said, doses, "share that says 3")
plt.show()

assert said["towards the token"][0] < 0.05 and said["towards the token"][-1] > 0.95
assert said["random"].max() < 0.1

# %% [markdown]
# *What to see:* between doses of 0.5 and 1.5, the answers tip over. A random push of the same length does nothing: the
# direction matters, not the push.

# %% [markdown]
# ### "mat1 and mat2 must have the same dtype", since my hook adds a vector
#
# Your vector is float32 (the default, or computed in float32), and the layer returns bfloat16 or half. Their sum is
# float32, and the next layer with weights raises an error. If no such layer follows, nothing raises, and the model
# returns another dtype. Give the vector the output's dtype and device: `vector.to(output)`. (A Python number, or a
# tensor with one number and no dimension, doesn't change the dtype. [A
# report](https://github.com/huggingface/peft/issues/1515))


# %% tags=["field", "field-226"]
def steered(model, change):
    """Return the error, or the output's dtype, if a hook changes layer 0's output."""
    x = torch.rand(1, 4, dtype=torch.bfloat16)
    with model[0].register_forward_hook(lambda module, args, output: change(output)):
        error = error_of(lambda: model(x))
        return model(x).dtype if error == "no error" else error


def to_its_dtype(output):
    return output + vector.to(output)


vector = torch.rand(4)
normed = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).bfloat16()
linear = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).bfloat16()
relu = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).bfloat16()
for model in (normed, linear, relu):
    print(steered(model, lambda output: output + vector))
print("with vector.to(output):", steered(linear, to_its_dtype))
assert "mixed dtype" in steered(normed, lambda output: output + vector)
assert "same dtype" in steered(linear, lambda output: output + vector)
assert steered(relu, lambda output: output + vector) == torch.float32  # and no error
assert steered(relu, lambda output: output + 0.5) == torch.bfloat16
for model in (normed, linear, relu):
    assert steered(model, to_its_dtype) == torch.bfloat16

# %% [markdown]
# ### "My list of gradients is empty"
#
# This is the first problem that people meet when they write such maps. Under `no_grad`, or if every parameter is
# frozen, no graph is recorded, so no tensor hook is called. The fix is the same for both: compute the scores with
# gradients enabled, and give the *images* `requires_grad=True`. ([A thread about
# it](https://github.com/jacobgil/pytorch-grad-cam/issues/95))


# %% tags=["field", "field-04"]
def collect(model, images, grad_enabled=True):
    gradients = []

    def hook_the_output(module, args, output):
        if output.requires_grad:  # as many tools do; without this line, the hook raises
            output.register_hook(gradients.append)

    with (
        model.block3.register_forward_hook(hook_the_output),
        torch.set_grad_enabled(grad_enabled),
    ):
        ended = error_of(lambda: model(images).sum().backward())
    return len(gradients), ended


frozen, image = shapes.untrained().requires_grad_(False), some.images[:1]
found = [collect(network, image, grad_enabled=False), collect(frozen, image)]
found.append(collect(frozen, image.clone().requires_grad_()))
print(*found, sep="\n")
network.zero_grad()
assert (
    found[0] == found[1] and found[0][0] == 0 and "does not require grad" in found[0][1]
)
assert found[2] == (1, "no error")

# %% [markdown]
# ### "A hook on `out_proj` never fires, and the attention weights are None"
#
# `nn.MultiheadAttention` passes the *weight* of its `out_proj` to a function and never calls the module. And a
# `TransformerEncoderLayer` tells it not to return attention weights. So hook the attention module itself, and request
# the weights with a pre-hook that changes the keyword arguments (lesson 4). ([A thread about
# it](https://github.com/pytorch/pytorch/issues/78109))


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
# It is a function and not a module, so you can't hook it, and it returns only the result. You can compute the weights
# yourself in one line. Or pass the identity matrix as the values: the result is then the weights themselves. ([A
# thread about it](https://github.com/pytorch/pytorch/issues/119811))

# %% tags=["field", "field-196"]
q, k, v = torch.rand(3, 1, 2, 5, 4).unbind()  # (batch, heads, length, width)
weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
by_identity = nn.functional.scaled_dot_product_attention(
    q, k, torch.eye(5).expand(1, 2, 5, 5)
)
print("the same weights:", torch.allclose(by_identity, weights, atol=1e-6))
assert torch.allclose(by_identity, weights, atol=1e-6)
assert torch.allclose(
    nn.functional.scaled_dot_product_attention(q, k, v), weights @ v, atol=1e-6
)

# %% [markdown]
# ### "Hooks inside the encoder layer don't fire in eval mode"
#
# In evaluation mode, without gradients, the layer takes a **fast path**: one fused operation. If any module inside
# has a hook, it takes the slow path instead (in older releases it did not). It doesn't check for *global* hooks, so
# they only see the layer from the outside. ([A thread about it](https://github.com/pytorch/pytorch/issues/128413))


# %% tags=["field", "field-51"]
def seen_by_a_global_hook(fast):
    names = []
    torch.backends.mha.set_fastpath_enabled(fast)

    def note(module, args, output):
        names.append(type(module).__name__)

    with torch.no_grad(), nn.modules.module.register_module_forward_hook(note):
        block(x)
    torch.backends.mha.set_fastpath_enabled(True)
    return names


x = torch.rand(1, 3, 8)
block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
with torch.no_grad(), hooklab.capture(block, "linear1") as seen:
    block(x)
fast, slow = seen_by_a_global_hook(True), seen_by_a_global_hook(False)
print(
    "a hook inside fired:", seen.silent == [], "  a global hook saw:", fast, "and",
    len(slow), "modules on the slow path"
)
assert seen.silent == [] and fast == ["TransformerEncoderLayer"]
assert "MultiheadAttention" in slow and slow.count("Linear") == 2

# %% [markdown]
# ### "Steering in a `generate` loop: index out of bounds"
#
# `Talker` is a toy model with a cache. Such a model sees the whole prompt in its first run, and then one new token
# per run. So an edit at position 2 of the prompt fails in the second run. `call.pass_index` counts the runs in the
# `with` block; run 0 gets the prompt. ([A thread about
# it](https://github.com/steering-vectors/steering-vectors/issues/60))

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
assert shapes_seen[:3] == [(1, 4, 4), (1, 1, 4), (1, 1, 4)] and generate(
    push_the_prompt
).shape == (1, 7)

# %% [markdown]
# ### "I want the hidden states of the generated tokens, and have only the last"
#
# A dictionary with one entry per layer is overwritten in every step. Keep every pass, and concatenate them. ([A
# thread about it](https://github.com/TransformerLensOrg/TransformerLens/issues/697))

# %% tags=["field", "field-103"]
talker, prompt, store = Talker(), torch.tensor([[1, 2, 3, 4]]), {}
with talker.layer.register_forward_hook(
    lambda module, args, output: store.update(layer=output)
):
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
# Many models send the last layer's output through one more normalisation, and list the *result* as the last hidden
# state. Our copier does so too: `unembed` gets the output of `norm`. Capture that module. ([A thread about
# it](https://github.com/huggingface/transformers/issues/26142))

# %% tags=["field", "field-127"]
encoder = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    2,
    norm=nn.LayerNorm(8),
    enable_nested_tensor=False,
)
with hooklab.capture(encoder, "layers.1", "norm") as seen:
    last = encoder(torch.rand(1, 3, 8))
same = {name: torch.equal(seen[name], last) for name in ("layers.1", "norm")}
print("equal to what the encoder returns:", same)
assert same == {"layers.1": False, "norm": True}

# %% [markdown]
# ### "Maps of second order: memory grows with each picture"
#
# If you train on a map (a gradient of a gradient), you need `create_graph=True`. The gradient then has its own graph.
# If you store such a gradient, or an activation that your hook received, you keep the graph of its run alive.
# `Square` counts the live graphs. ([A thread about it](https://github.com/jacobgil/pytorch-grad-cam/issues/575))


# %% tags=["field", "field-111"]
def penalised(keep):
    model, kept = nn.Sequential(nn.Linear(2, 2), Square(), nn.Linear(2, 1)), []
    with model[1].register_forward_hook(
        lambda module, args, output: kept.append(keep(output))
    ):
        for _ in range(4):
            (slope,) = torch.autograd.grad(
                model(torch.rand(1, 2)).sum(), model[0].weight, create_graph=True
            )
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
