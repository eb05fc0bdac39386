"""``Module``: what happens between ``module(x)`` and ``module.forward(x)``."""

import warnings
from typing import Any

from hooklab.mini.border import Border
from hooklab.mini.handles import Hook, HookTable, RemovableHandle

# Hooks that run for every module of this process, until their handles are removed.
_all_pre = HookTable()
# Surprise: torch keeps `with_kwargs` here. A hook that is removed during a call, before its own turn, gets kwargs if it
# is a global hook, and gets none if it is a module's own.
_all_forward = HookTable(forgets_with_kwargs=False)
_all_backward_pre = HookTable()
_all_backward = HookTable()


class Module:
    """Something with a ``forward``. Calling it runs the hooks around ``forward``.

    Example:
        >>> from hooklab.mini import Tensor
        >>> class Square(Module):
        ...     def forward(self, x):
        ...         return x ** 2
        >>> square = Square()
        >>> handle = square.register_forward_pre_hook(lambda module, args: args[0] + 1.0)
        >>> square(Tensor([1.0, 2.0]))
        Tensor([4.0, 9.0])
        >>> square.forward(Tensor([1.0, 2.0]))  # no hooks this way
        Tensor([1.0, 4.0])
    """

    def __init__(self) -> None:
        self.pre_hooks = HookTable()
        self.forward_hooks = HookTable()
        self.backward_pre_hooks = HookTable()
        self.backward_hooks = HookTable()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes: for a subclass to write."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, ...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the hooks and ``forward``, and return the output as the last hook left it."""
        # Surprise: decided once. Without any hook, one that `forward` registers on its own module must wait for the
        # next call; with any other hook there, it already runs in this one.
        if not self._has_hooks():
            return self.forward(*args, **kwargs)
        call = _Call(self, args, kwargs)
        try:
            return call.run()
        except Exception:
            call.run_missed_hooks()
            raise

    def _has_hooks(self) -> bool:
        own = (self.pre_hooks, self.forward_hooks, self.backward_pre_hooks, self.backward_hooks)
        return any(own) or any((_all_pre, _all_forward, _all_backward_pre, _all_backward))

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Before ``forward``: ``hook(module, args)`` returns None, new args as a tuple, or the one new argument.

        With ``with_kwargs``: ``hook(module, args, kwargs)`` returns None or ``(args, kwargs)``, else RuntimeError.
        """
        return self.pre_hooks.add(hook, prepend=prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """After ``forward``: ``hook(module, args, output)`` returns None or a new output, of any type.

        With ``with_kwargs``: ``hook(module, args, kwargs, output)``. With ``always_call`` the hook also runs when the
        call raises, with the output so far (often None); what it returns is lost then.
        """
        return self.forward_hooks.add(hook, prepend=prepend, with_kwargs=with_kwargs, always_call=always_call)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """In backward, before the module: ``hook(module, grad_output)`` returns None or a new tuple of gradients."""
        return self.backward_pre_hooks.add(hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """In backward, after the module: ``hook(module, grad_input, grad_output)`` returns None or a new grad_input."""
        return self.backward_hooks.add(hook, prepend=prepend)


class _Call:
    """One call of a module: the arguments and the output as they stand, and which hooks have run."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.output: Any = None
        self.started: set[int] = set()  # the forward hooks that were reached

    def run(self) -> Any:
        """The whole order: global hooks before the module's own, and the border outside of ``forward``."""
        border = self._border()
        self._run_pre_hooks()
        if border:
            self.args = border.enter(self.args)
        self.output = self.module.forward(*self.args, **self.kwargs)
        self._run_forward_hooks()
        if border:
            self.output = border.leave(self.output)
        return self.output

    def _border(self) -> Border | None:
        # Looked up before the pre-hooks: a backward hook that a pre-hook registers counts from the next call on.
        pre = [hook for _, hook in _all_backward_pre.snapshot() + self.module.backward_pre_hooks.snapshot()]
        hooks = [hook for _, hook in _all_backward.snapshot() + self.module.backward_hooks.snapshot()]
        return Border(self.module, hooks, pre) if hooks or pre else None

    def _run_pre_hooks(self) -> None:
        own = self.module.pre_hooks
        for hook_id, hook in _all_pre.snapshot() + own.snapshot():
            # Surprise: the hooks of this loop are fixed, but whether they get kwargs is looked up at their turn. A
            # with_kwargs hook that an earlier hook removed still runs, and gets one argument too few.
            if hook_id in own.with_kwargs:
                returned = hook(self.module, self.args, self.kwargs)
                if returned is not None:
                    self.args, self.kwargs = _args_and_kwargs(returned)
            else:
                returned = hook(self.module, self.args)
                if returned is not None:
                    # Surprise: only a tuple means "all arguments"; a list becomes the one argument.
                    self.args = returned if isinstance(returned, tuple) else (returned,)

    def _run_forward_hooks(self) -> None:
        own = self.module.forward_hooks
        with_kwargs = _all_forward.with_kwargs
        for hook_id, hook in _all_forward.snapshot() + own.snapshot():
            self.started.add(hook_id)  # before it runs: if it raises, it is not run again
            self._run_forward_hook(hook, hook_id in own.with_kwargs or hook_id in with_kwargs)

    def _run_forward_hook(self, hook: Hook, with_kwargs: bool) -> None:
        extra = (self.kwargs,) if with_kwargs else ()
        returned = hook(self.module, self.args, *extra, self.output)
        if returned is not None:
            self.output = returned

    def run_missed_hooks(self) -> None:
        """Something raised: run the always_call hooks that were not reached. Their own errors become warnings."""
        own = self.module.forward_hooks
        # Surprise: a global hook gets no kwargs here, even if it was registered with_kwargs.
        for whose, table, with_kwargs in (("global ", _all_forward, set[int]()), ("", own, own.with_kwargs)):
            # Surprise: no snapshot here. If one of these hooks registers or removes a hook, and is not the last, the
            # next step of this loop raises "OrderedDict mutated during iteration" in place of the first error.
            for hook_id, hook in table.hooks.items():
                if hook_id in table.always_call and hook_id not in self.started:
                    try:
                        self._run_forward_hook(hook, hook_id in with_kwargs)
                    except Exception as error:
                        silenced = "raised an exception that was silenced, as another error was raised before"
                        what = f"{whose}module forward hook with ``always_call=True`` {silenced}"
                        warnings.warn(f"{what}: {error}", stacklevel=3)


def _args_and_kwargs(returned: Any) -> tuple[Any, Any]:
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned
    raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {returned}.")


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Like ``Module.register_forward_pre_hook``, for every module, before the modules' own hooks.

    Example:
        >>> class Same(Module):
        ...     def forward(self, x):
        ...         return x
        >>> with register_module_forward_pre_hook(lambda module, args: (args[0] + 1,)):
        ...     Same()(1)
        2
    """
    return _all_pre.add(hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Like ``Module.register_forward_hook``, for every module, before the modules' own hooks.

    Example:
        >>> class Same(Module):
        ...     def forward(self, x):
        ...         return x
        >>> with register_module_forward_hook(lambda module, args, output: [type(module).__name__, output]):
        ...     Same()(1)
        ['Same', 1]
    """
    return _all_forward.add(hook, with_kwargs=with_kwargs, always_call=always_call)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Like ``Module.register_full_backward_pre_hook``, for every module, before the modules' own hooks.

    Example:
        >>> from hooklab.mini import Tensor
        >>> class Double(Module):
        ...     def forward(self, x):
        ...         return x * 2
        >>> with register_module_full_backward_pre_hook(lambda module, grad_output: print(grad_output)):
        ...     Double()(Tensor([3.0], requires_grad=True)).sum().backward()
        (Tensor([1.0]),)
    """
    return _all_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Like ``Module.register_full_backward_hook``, for every module, before the modules' own hooks.

    Example:
        >>> from hooklab.mini import Tensor
        >>> class Double(Module):
        ...     def forward(self, x):
        ...         return x * 2
        >>> with register_module_full_backward_hook(lambda module, grad_input, grad_output: print(grad_input)):
        ...     Double()(Tensor([3.0], requires_grad=True)).sum().backward()
        (Tensor([2.0]),)
    """
    return _all_backward.add(hook)
