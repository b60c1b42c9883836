"""The objective that a run differentiates, made without a run, for the tests of the gradient parts."""

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from dsgd.methods.adapter.full import Full
from dsgd.methods.gradient.plain import Plain
from dsgd.methods.loss.cross_entropy import CrossEntropy
from dsgd.methods.regularizer.none import NoRegularizer
from dsgd.objective import ScaledObjective


def objective_of(loss=None, adapter=None):
    """``loss`` (cross-entropy by default) on the CPU, in the parameters' own precision."""
    AcceleratorState._reset_state()  # an earlier test's run may have had another precision
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    return ScaledObjective(loss or CrossEntropy(label_smoothing=0.0), NoRegularizer(), adapter or Full(), accelerator)


def gradients(model):
    """Parameter name to a copy of its gradient."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients_by(part, model, window, objective):
    """What ``part`` leaves, beginning from no gradient; and its statistics as numbers."""
    model.zero_grad(set_to_none=True)
    statistics = part(model, window, objective)
    return gradients(model), {name: value.item() for name, value in statistics.items()}


def plain_gradients(model, window, objective):
    """Full fine-tuning's."""
    return gradients_by(Plain(), model, window, objective)[0]


def flat(tensors):
    """All gradients of a dict as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


class Penalty:
    """An adapter whose term on the parameters is half the squared norm of the head's bias: its gradient is the bias."""

    def __call__(self, model):
        return model

    def penalty(self, model):
        return 0.5 * model.head.bias.square().sum()

    def after_step(self, model, step):
        return {}
