"""LP-FT: only the head moves, on fixed features, the same on every process, before the run's own clock starts."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from dsgd.config import parts
from dsgd.config.schema import Trainer
from dsgd.methods import build
from dsgd.methods.contracts import Batch
from dsgd.training import InitialTraining
from helpers import random_batch, tiny_classifier

EXAMPLES = 10
LR = 1e-2


class Rows:
    """A split of tiny random examples."""

    def __init__(self):
        self.whole = random_batch(examples=EXAMPLES)
        self.labels = self.whole.labels.numpy()
        self.lengths = self.whole.inputs["attention_mask"].sum(dim=1).numpy()

    def __len__(self):
        return EXAMPLES

    def batch(self, rows, _augmentation=None):
        rows = torch.as_tensor(rows)
        return Batch({name: tensor[rows] for name, tensor in self.whole.inputs.items()}, self.whole.labels[rows])


def initial_training(max_steps=None, **trainer):
    settings = {"lr": 1e-5, "batch_size": 5, "accumulation": 1, "processes": 1, "weight_decay": 0.1} | trainer
    return InitialTraining(
        SimpleNamespace(
            config=SimpleNamespace(trainer=Trainer(**settings), debug=SimpleNamespace(max_steps=max_steps)),
            data=SimpleNamespace(train=Rows()),
            seeds=SimpleNamespace(initialization=3, data_order=4),
            accelerator=SimpleNamespace(
                device=torch.device("cpu"), autocast=lambda: torch.autocast("cpu", enabled=False)
            ),
        )
    )


def probed(epochs=1, dropout=0.0, frozen_embeddings=False, **options):
    model = tiny_classifier(dropout=dropout, dtype=torch.float32)
    model.embeddings.requires_grad_(not frozen_embeddings)
    build("initialization", parts.HeadFirst(epochs=epochs, lr=LR))(model, initial_training(**options))
    return model


def head_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.head.parameters()])


def changed(model):
    start = dict(tiny_classifier(dtype=torch.float32).named_parameters())
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, start[name])}


def test_only_the_head_changes_and_everything_is_left_ready_to_train():
    model = probed(frozen_embeddings=True)
    assert changed(model) == {"network.classifier.weight", "network.classifier.bias"}
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    frozen = {id(parameter) for parameter in model.parameters() if not parameter.requires_grad}
    assert frozen == {id(parameter) for parameter in model.embeddings.parameters()}


def test_the_head_s_first_step_is_adamw_s():
    """From zero moments AdamW moves every element by lr against its gradient's sign, beside decay lr · 0.1 · w.

    Weights decay and the bias does not. eps 1e-6 beside gradients of at least 1e-4 shortens the step by 1 % at most.
    """
    start = tiny_classifier(dtype=torch.float32)
    start.eval()
    rows = np.random.default_rng([4, 0]).permutation(EXAMPLES)[:5]  # the run's own first batch
    batch = Rows().batch(rows)
    loss = cross_entropy(start(**batch.inputs), batch.labels)
    weight, bias = start.head.parameters()
    along = torch.autograd.grad(loss, [weight, bias])
    moved_weight, moved_bias = probed(max_steps=1).head.parameters()
    for moved, old, gradient, decay in ((moved_weight, weight, along[0], 0.1), (moved_bias, bias, along[1], 0.0)):
        clear = gradient.abs() > 1e-4
        expected = old - LR * decay * old - LR * gradient.sign()
        assert clear.float().mean() > 0.8
        assert torch.allclose(moved[clear], expected[clear], atol=0.01 * LR)


def test_the_probe_sees_fixed_features():
    """Dropout changes neither the head nor the random state, so that training's own stream is as without the probe."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(head_of(probed(dropout=0.5)), head_of(probed(dropout=0.0)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("batch_size", "accumulation", "processes"), [(5, 1, 2), (5, 2, 1)])
def test_every_process_trains_the_same_head_on_the_whole_window(batch_size, accumulation, processes):
    """Two processes of 5 are a window of 10; so are two micro-batches of 5, and one of 10 up to rounding.

    The process's number enters nowhere, so what one process finds, each of them finds.
    """
    split = head_of(probed(batch_size=batch_size, accumulation=accumulation, processes=processes))
    assert torch.equal(split, head_of(probed(batch_size=5, accumulation=2)))
    assert torch.allclose(split, head_of(probed(batch_size=10)), atol=1e-5)


def test_epochs_and_the_debug_cut_count_windows():
    """10 examples in windows of 5: two steps an epoch."""
    assert torch.equal(head_of(probed(epochs=3)), head_of(probed(epochs=5, max_steps=6)))
    assert not torch.equal(head_of(probed(epochs=3)), head_of(probed(epochs=2)))


def test_the_probe_lowers_the_loss_of_fixed_features():
    batch = Rows().batch(np.arange(EXAMPLES))
    found = []
    for model in (tiny_classifier(dtype=torch.float32), probed(epochs=50)):
        found.append(cross_entropy(model.eval()(**batch.inputs), batch.labels).item())
    assert found[1] < found[0]


def test_the_noise_stream_does_not_repeat_the_fresh_head_s():
    """The head is drawn from the very seed (``models.text``); the same numbers must not go into other weights."""
    head = torch.randn(5, generator=torch.Generator().manual_seed(3))
    assert not torch.allclose(torch.randn(5, generator=initial_training().generator), head)


def test_the_run_s_own_steps_do_not_count_the_probe_s(train):
    """Step 0 is evaluated with the trained head; the history then runs from 1 to T as ever."""
    plain, probe = train("method=fft"), train("method=lp_ft")
    told, *after = probe.history
    assert told.keys() == {"step", "initialization/relative_change"}
    assert [record["step"] for record in after] == [record["step"] for record in plain.history]
    assert probe.metrics["steps"] == plain.metrics["steps"]
    first = [plain.history[0], after[0]]
    assert first[0]["step"] == first[1]["step"] == 0
    assert first[0]["eval/macro_f1"] != first[1]["eval/macro_f1"]
