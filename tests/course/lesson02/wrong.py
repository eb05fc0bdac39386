"""What people get wrong in lesson 2."""

import warnings

import torch

from tests.course.exercises.wrong import wrong


@wrong("2.1", says="your function returned None")
def prints_instead(y, losses):
    with y.register_hook(print):
        for loss in losses:
            loss.backward()


@wrong("2.1", says="later losses were added")
def reads_the_kept_grad(y, losses):
    grads = []
    y.retain_grad()
    for loss in losses:
        loss.backward()
        grads.append(y.grad)
    return grads


@wrong("2.1", says="one pass for a sum of losses")
def sends_the_sum(y, losses):
    grads = []
    with y.register_hook(grads.append):
        sum(losses).backward()
    return grads


@wrong("2.1", says="your list is empty")
def removes_before_backward(y, losses):
    grads = []
    handle = y.register_hook(grads.append)
    handle.remove()
    for loss in losses:
        loss.backward()
    return grads


@wrong("2.1", says="hooks pile up")
def registers_for_each_loss(y, losses):
    grads = []
    handles = []
    for loss in losses:
        handles.append(y.register_hook(grads.append))
        loss.backward()
    for handle in handles:
        handle.remove()
    return grads


@wrong("2.1", says="left a hook behind: tensor hook `append`")
def forgets_to_remove(y, losses):
    grads = []
    y.register_hook(grads.append)
    for loss in losses:
        loss.backward()
    return grads


@wrong("2.1", says="y.grad of a non-leaf is not kept")
def trusts_grad_of_a_non_leaf(y, losses):
    grads = []
    with warnings.catch_warnings(), y.register_hook(lambda grad: grads.append(y.grad)):
        warnings.simplefilter("ignore")  # torch warns too: y.grad of a non-leaf
        for loss in losses:
            loss.backward()
    return grads


@wrong("2.1", says="called instead of handed over")
def calls_the_hook_itself(y, losses):
    grads = []
    with y.register_hook(grads.append(1)):
        for loss in losses:
            loss.backward()
    return grads


@wrong("2.1", says="torch.autograd.grad writes no .grad")
def asks_instead_of_sending(y, losses):
    return [torch.autograd.grad(loss, y)[0] for loss in losses]


@wrong("2.2", says="in place: `*=` and `mul_` write into a buffer")
def scales_in_place(tensor, factor):
    def scale(grad):
        grad *= factor

    return tensor.register_hook(scale)


@wrong("2.2", says="threw it away")
def forgets_to_return_the_new_gradient(tensor, factor):
    def scale(grad):
        grad = grad * factor

    return tensor.register_hook(scale)


@wrong("2.2", says="did not return the handle")
def forgets_to_return_the_handle(tensor, factor):
    tensor.register_hook(lambda grad: grad * factor)


@wrong("2.2", says="removed too early")
def removes_it_at_once(tensor, factor):
    with tensor.register_hook(lambda grad: grad * factor) as handle:
        return handle


@wrong("2.2", says="nobody called tensor.register_hook")
def scales_the_tensor(tensor, factor):
    return tensor * factor


@wrong("2.2", says="replaced by the factor")
def returns_the_factor(tensor, factor):
    return tensor.register_hook(lambda grad: torch.full_like(grad, factor))


@wrong("2.2", says="changed a tensor that it was given in place")
def scales_the_value_too(tensor, factor):
    tensor.data *= factor
    return tensor.register_hook(lambda grad: grad * factor)


@wrong("2.2", says="expected Variable, but hook returned 'float'")
def returns_a_number(tensor, factor):
    return tensor.register_hook(lambda grad: factor)


@wrong("2.2", says="two hooks, one handle")
def one_hook_too_many(tensor, factor):
    tensor.register_hook(lambda grad: grad * abs(factor) ** 0.5)
    sign = -1 if factor < 0 else 1
    return tensor.register_hook(lambda grad: grad * abs(factor) ** 0.5 * sign)


@wrong("2.4", says="late binding")
def looks_the_name_up_too_late(named, z):
    seen = {}
    handles = []
    for name, tensor in named.items():
        if tensor.requires_grad:
            handles.append(tensor.register_hook(lambda grad: seen.update({name: grad})))  # noqa: B023
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", says="ask a tensor for requires_grad before you hook it")
def hooks_the_frozen_one(named, z):
    seen = {}
    handles = []
    for name, tensor in named.items():
        handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: grad})))
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", says="one name for many handles")
def removes_the_last_one_only(named, z):
    seen = {}
    for name, tensor in named.items():
        if tensor.requires_grad:
            handle = tensor.register_hook(lambda grad, name=name: seen.update({name: grad}))
    z.backward()
    handle.remove()
    return seen


@wrong("2.4", says="thawed to be hooked")
def thaws_the_frozen_one(named, z):
    seen = {}
    handles = []
    for name, tensor in named.items():
        tensor.requires_grad_(True)
        handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: grad})))
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", says="cleared .grad")
def clears_old_gradients(named, z):
    seen = {}
    handles = []
    for name, tensor in named.items():
        if tensor.requires_grad:
            tensor.grad = None
            handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: grad})))
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", says="your dictionary is empty")
def with_ends_before_backward(named, z):
    seen = {}
    for name, tensor in named.items():
        if tensor.requires_grad:
            with tensor.register_hook(lambda grad, name=name: seen.update({name: grad})):
                pass
    z.backward()
    return seen


@wrong("2.4", says="it is part of your answer")
def reads_the_grads_afterwards(named, z):
    for tensor in named.values():
        if tensor.requires_grad:
            tensor.retain_grad()
    z.backward()
    return {name: tensor.grad for name, tensor in named.items() if tensor.requires_grad and tensor.grad is not None}


@wrong("2.4", says="None is not a gradient")
def an_entry_for_everything(named, z):
    seen = dict.fromkeys(named)
    handles = []
    for name, tensor in named.items():
        if tensor.requires_grad:
            handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: grad})))
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


@wrong("2.4", says="w.grad is not yet written")
def reads_grad_inside_the_hook(named, z):
    seen = {}
    handles = []
    for name, tensor in named.items():
        if tensor.requires_grad:
            tensor.retain_grad()

            def keep(grad, name=name, tensor=tensor):
                seen[name] = grad if tensor.grad is None else tensor.grad.clone()

            handles.append(tensor.register_hook(keep))
    z.backward()
    for handle in handles:
        handle.remove()
    return seen


class Log:
    def __init__(self, tensor):
        self.tensor = tensor
        self.norms = []

    def keep(self, grad):
        self.norms.append(grad.norm().item())

    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep)
        return self

    def __exit__(self, *exception):
        self.handle.remove()


@wrong("2.5", says="registered in __init__")
class RegistersAtOnce(Log):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.handle = tensor.register_hook(self.keep)

    def __enter__(self):
        return self


@wrong("2.5", says="forgotten return in __enter__")
class EntersWithNothing(Log):
    def __enter__(self):
        self.handle = self.tensor.register_hook(self.keep)


@wrong("2.5", says="__exit__ must take the hook off")
class NeverRemoves(Log):
    def __exit__(self, *exception):
        self.handle = None


@wrong("2.5", says="removed on success only")
class RemovesOnSuccess(Log):
    def __exit__(self, kind, *exception):
        if kind is None:
            self.handle.remove()


@wrong("2.5", says="an __exit__ that returns something true")
class SwallowsTheException(Log):
    def __exit__(self, *exception):
        self.handle.remove()
        return True


@wrong("2.5", says="class attribute")
class SharesOneList(Log):
    norms = []  # noqa: RUF012

    def __init__(self, tensor):
        self.tensor = tensor


@wrong("2.5", says="unbound method")
class HooksTheFunctionOfTheClass(Log):
    def __enter__(self):
        self.handle = self.tensor.register_hook(type(self).keep)
        return self


@wrong("2.5", says="no place for the gradient")
class ForgetsTheArgument(Log):
    def keep(self):
        self.norms.append(self.tensor.grad.norm().item())


@wrong("2.5", says="has changed the size of value")
class ReturnsTheNorm(Log):
    def keep(self, grad):
        self.norms.append(grad.norm().item())
        return grad.norm()


@wrong("2.5", says="tensors kept")
class KeepsTensors(Log):
    def keep(self, grad):
        self.norms.append(grad.norm())


@wrong("2.5", says="squared norms")
class SquaresOnly(Log):
    def keep(self, grad):
        self.norms.append((grad**2).sum().item())


def hooked_run(model, train, hook):
    handles = [p.register_hook(hook) for p in model.parameters() if p.requires_grad]
    try:
        return train()
    finally:
        for handle in handles:
            handle.remove()


@wrong("2.6", says="ask a tensor for requires_grad before you hook it")
def hooks_frozen_parameters(model, limit, train):
    handles = [p.register_hook(lambda g: g * (limit / g.norm()).clamp(max=1)) for p in model.parameters()]
    try:
        return train()
    finally:
        for handle in handles:
            handle.remove()


@wrong("2.6", says="thawed to be hooked")
def thaws_frozen_parameters(model, limit, train):
    for p in model.parameters():
        p.requires_grad_(True)
    return hooked_run(model, train, lambda g: g * (limit / g.norm()).clamp(max=1))


@wrong("2.6", says="always scaled")
def stretches_short_gradients(model, limit, train):
    return hooked_run(model, train, lambda g: g * limit / g.norm())


@wrong("2.6", says="others had none")
def clips_the_first_parameter_only(model, limit, train):
    parameter = next(p for p in model.parameters() if p.requires_grad)
    with parameter.register_hook(lambda g: g * (limit / g.norm()).clamp(max=1)):
        return train()


@wrong("2.6", says="0/0")
def divides_by_zero(model, limit, train):
    return hooked_run(model, train, lambda g: g / g.norm() * g.norm().clamp(max=limit))


@wrong("2.6", says="by value instead of by norm")
def cuts_each_number(model, limit, train):
    return hooked_run(model, train, lambda g: g.clamp(-limit, limit))


@wrong("2.6", says="the gradient's buffer is shared")
def clips_in_place(model, limit, train):
    return hooked_run(model, train, lambda g: g.mul_((limit / g.norm()).clamp(max=1)))


@wrong("2.6", says="threw it away")
def forgets_to_return_the_clipped_one(model, limit, train):
    def clip(grad):
        if grad.norm() > limit:
            grad = grad * (limit / grad.norm())

    return hooked_run(model, train, clip)


@wrong("2.6", says="no hook was on any parameter while train() ran")
def clips_when_all_is_over(model, limit, train):
    result = train()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    return result


@wrong("2.6", says="use try … finally")
def removes_after_success_only(model, limit, train):
    handles = [
        p.register_hook(lambda g: g * (limit / g.norm()).clamp(max=1)) for p in model.parameters() if p.requires_grad
    ]
    result = train()
    for handle in handles:
        handle.remove()
    return result


@wrong("2.6", says="left a hook behind")
def removes_nothing(model, limit, train):
    for p in model.parameters():
        if p.requires_grad:
            p.register_hook(lambda g: g * (limit / g.norm()).clamp(max=1))
    return train()


@wrong("2.6", says="does not return what train() returned")
def keeps_the_result_to_itself(model, limit, train):
    hooked_run(model, train, lambda g: g * (limit / g.norm()).clamp(max=1))


@wrong("2.6", says="hid it")
def hides_the_exception(model, limit, train):
    try:
        return hooked_run(model, train, lambda g: g * (limit / g.norm()).clamp(max=1))
    except Exception:
        return None


@wrong("2.6", says="train() was called 0 times")
def never_trains(model, limit, train):
    return train


@wrong("2.1", says="until the last loss is sent back")
def removes_it_inside_the_hook(y, losses):
    grads = []

    def keep(grad):
        grads.append(grad)
        handle.remove()

    handle = y.register_hook(keep)
    for loss in losses:
        loss.backward()
    return grads


@wrong("2.1", says="zeroed in place")
def clears_the_kept_grad_in_place(y, losses):
    grads = []
    y.retain_grad()
    for loss in losses:
        loss.backward()
        grads.append(y.grad)
        y.grad.zero_()
    return grads


@wrong("2.2", says="a hook that removes itself")
def scales_once(tensor, factor):
    def scale(grad):
        handle.remove()
        return factor * grad

    handle = tensor.register_hook(scale)
    return handle


@wrong("2.4", says="z.backward() ran 7 times")
def one_pass_for_each_name(named, z):
    seen = {}
    for name, tensor in named.items():
        if tensor.requires_grad:
            with tensor.register_hook(lambda grad, name=name: seen.update({name: grad})):
                z.backward(retain_graph=True)
    return seen


@wrong("2.5", says="your method `keep` is not the hook")
class HooksALambda(Log):
    def keep(self, grad):
        pass

    def __enter__(self):
        self.handle = self.tensor.register_hook(lambda grad: self.norms.append(grad.norm().item()))
        return self


@wrong("2.5", says="the hook ran and kept nothing")
class KeepsInANameOfItsOwn(Log):
    def keep(self, grad):
        norms = []
        norms.append(grad.norm().item())


@wrong("2.5", says="the largest singular value")
class LargestSingularValue(Log):
    def keep(self, grad):
        self.norms.append(torch.linalg.norm(grad, 2).item())


@wrong("2.6", says="another norm")
def clips_by_the_largest_singular_value(model, limit, train):
    return hooked_run(
        model,
        train,
        lambda g: g * (limit / torch.linalg.matrix_norm(torch.atleast_2d(g), 2).clamp(min=1e-9)).clamp(max=1),
    )


@wrong("2.6", says="one norm for each row")
def clips_each_row(model, limit, train):
    return hooked_run(model, train, lambda g: g * (limit / g.norm(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(max=1))


@wrong("2.1", says="a list made anew for each loss")
def starts_a_new_list_for_each_loss(y, losses):
    gradients = []

    def keep(grad):
        gradients.append(grad)

    with y.register_hook(keep):
        for loss in losses:
            gradients = []
            loss.backward()
    return gradients


@wrong("2.3", says="written in place")
def halve_in_place(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        grad *= 0.5

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="hooks pile up")
def halve_with_a_hook_for_each(tensor, losses):
    arrived, handles = [], []

    def hook(grad):
        arrived.append(grad)
        return 0.5 * grad

    for loss in losses:
        handles.append(tensor.register_hook(hook))
        loss.backward()
    for handle in handles:
        handle.remove()
    return arrived


@wrong("2.3", says="the whole gradient passed")
def halve_and_keep_it(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        grad = 0.5 * grad

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.3", says="left a hook behind")
def halve_for_ever(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad)
        return 0.5 * grad

    tensor.register_hook(hook)
    for loss in losses:
        loss.backward()
    return arrived


@wrong("2.3", says="your list is empty")
def halve_too_late(tensor, losses):
    arrived = []
    for loss in losses:
        loss.backward()
    with tensor.register_hook(arrived.append):
        pass
    return arrived


@wrong("2.3", says="another tensor's gradient has changed as well")
def halve_a_copy_and_write_back(tensor, losses):
    arrived = []

    def hook(grad):
        arrived.append(grad.clone())
        grad.mul_(0.5)

    with tensor.register_hook(hook):
        for loss in losses:
            loss.backward()
    return arrived


@wrong("2.5", says="somebody else's hook on the tensor is gone")
class ClearsTheTensor(Log):
    def __exit__(self, *exception):
        self.tensor._backward_hooks.clear()
