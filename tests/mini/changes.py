"""Ten wrong changes of mini that are easy to make, each as (file, right text, wrong text)."""

CHANGES = {
    "__exit__ hides the error": ("handles", "        self.remove()\n", "        self.remove()\n        return True\n"),
    "__enter__ gives nothing": ("handles", "        return self\n", "        return None\n"),
    "nothing is removed after an error": ("handles", "        self.remove()\n", "        error[0] or self.remove()\n"),
    "always_call after what is no Exception": (
        "module",
        "except Exception:\n            call",
        "except BaseException:\n            call",
    ),
    "a retained gradient is not detached": ("graph", "grad.detach() if", "grad if"),
    "gradients are added up, but not in place": (
        "tensor",
        "self._leaf.grad.data += grad.data",
        "self._leaf.grad = Tensor(self._leaf.grad.data + grad.data)",
    ),
    "backward() refuses the shape (1,)": ("tensor", "self.data.size != 1", "self.shape != ()"),
    "len() counts all elements": ("tensor", "return self.shape[0]", "return self.data.size"),
    "hooks are looped over while they come and go": ("graph", "in table.snapshot()", "in table.hooks.items()"),
    "the power rule of squares for every power": ("tensor", "n * self.data ** (n - 1)", "n * self.data"),
}
