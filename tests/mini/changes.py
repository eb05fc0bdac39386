"""Changes of mini: ten wrong ones, each as (file, right text, wrong text), and those that change nothing."""

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

# What `python -m tests.mutants mini` makes and no test can notice -> why.
HARMLESS = {
    "graph.py: left out: `raise NotImplementedError`": "every node has an apply of its own",
    "graph.py: no change in place: `self._saved += [(tensor, tensor.version[0]) for tensor in tensors]`": "nobody else "
    "holds this list",
    "handles.py: left out: `self.always_call.discard(hook_id)`": "ids do not come again: it only frees memory",
    "handles.py: False: `False`": "of the tables that rely on the default, nobody reads the option",
    "tensor.py: 1 + 1: `1`": "versions are only compared: any change of the number will do",
    "tensor.py: 0 + 1: `0`": "versions may begin anywhere; a tensor without a node has no use for its output number",
}
