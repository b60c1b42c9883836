"""Forms that couple, reorder or merge examples: both groups' gradients must equal those of two backward passes.

The comparison that ``GroupGradients`` makes by itself is switched off where the rules alone are tested.
"""

import copy
import logging

import pytest
import torch
from test_group_gradients import compare, plain, split
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import cross_entropy

from dsgd.group_gradients import GroupGradients
from dsgd.group_moves import MOVES, Move
from dsgd.loss import weighted_losses

N, D = 8, 8  # equal, so that no shape gives a mistake away; even, so that pairs can be formed
MEMBERS = torch.tensor([True, True, False, True, False, False, False, False])  # no symmetry hides a reversal


class Model(nn.Module):
    """A layer, a form between, and a head."""

    def __init__(self, form):
        super().__init__()
        self.first, self.head = nn.Linear(D, D), nn.Linear(D, 3)
        self.mixer = nn.Parameter(torch.randn(N, N) / 3)
        self.register_buffer("constant", torch.randn(N, N) / 3)
        self.form = form

    def forward(self, x):
        return self.head(self.form(self, torch.tanh(self.first(x))))


def model_of(form):
    torch.manual_seed(0)
    return Model(form).double()


def inputs(*shape):
    return torch.randn(*(shape or (N, D)), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def losses_of(model, x):
    return lambda: cross_entropy(model(x), torch.arange(N) % 3, reduction="none")


ORDER = torch.tensor([3, 1, 2, 0, 4, 6, 5, 7])


def written(x, write):
    out = torch.zeros_like(x)
    write(out, x)
    return out


def in_place(x, change):
    y = x * 1
    change(y)
    return y


def through_a_view(x):
    """The base keeps the name that was given out before its view was overwritten."""
    y = x * 1
    y[:, :4].copy_(y[:, :4].flip(0))
    return y


def through_a_view_of_zeros(x):
    """The view was taken while nothing in it was of the examples."""
    y = torch.zeros(N, D, dtype=x.dtype)
    seen = y.t()
    y.copy_(x)
    return torch.mm(x, seen)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.flip(0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.flip(0)


MIXING = {
    # named in the issue
    "matrix from the left": lambda m, x: m.constant @ x,
    "parameter from the left": lambda m, x: torch.matmul(m.mixer, x),
    "mm": lambda m, x: torch.mm(m.constant, x),
    "gather along 0": lambda m, x: x.gather(0, ORDER[:, None].expand(N, D)),
    "scatter along 0": lambda m, x: torch.zeros_like(x).scatter(0, ORDER[:, None].expand(N, D), x),
    "scatter_add along 0": lambda m, x: x.scatter_add(0, ORDER[:, None].expand(N, D), x),
    "index_add along 0": lambda m, x: x.index_add(0, ORDER, x),
    "index_copy along 0": lambda m, x: x.index_copy(0, ORDER, x),
    "pairs averaged": lambda m, x: x.view(N // 2, 2, D).mean(1).repeat_interleave(2, 0),
    "var_mean over 0": lambda m, x: (x - torch.var_mean(x, 0)[1]) / torch.var_mean(x, dim=0)[0],
    "std_mean over 0": lambda m, x: x / torch.std_mean(x, 0)[0],
    "cumprod over 0": lambda m, x: x.cumprod(0),
    "torch.batch_norm": lambda m, x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
    # reductions and running sums
    "mean over a negative dimension": lambda m, x: x - x.mean(-2, keepdim=True),
    "sum over a negative dimension": lambda m, x: x + x.sum(-2),
    "max over a negative dimension": lambda m, x: x + x.max(-2).values,
    "softmax over a negative dimension": lambda m, x: x.softmax(-2),
    "mean over everything by name": lambda m, x: x - x.mean(),
    "variance over everything": lambda m, x: x / x.var(False),
    "standard deviation over everything": lambda m, x: x / torch.std(x, unbiased=True),
    "mean over both": lambda m, x: x - x.mean((-1, -2)),
    "mean over an axis": lambda m, x: x - torch.mean(x, axis=0),
    "logsumexp": lambda m, x: x - x.logsumexp(0),
    "logcumsumexp": lambda m, x: x.logcumsumexp(0),
    "cumsum": lambda m, x: torch.cumsum(x, dim=0),
    "cummax": lambda m, x: x.cummax(0).values,
    "median": lambda m, x: x - x.median(0).values,
    "kthvalue": lambda m, x: x - x.kthvalue(2, 0).values,
    "amax": lambda m, x: x - x.amax(dim=[0]),
    "norm": lambda m, x: x / x.norm(dim=0),
    "vector_norm": lambda m, x: x / torch.linalg.vector_norm(x, dim=0),
    "normalize": lambda m, x: F.normalize(x, dim=0),
    "normalize over everything": lambda m, x: F.normalize(x, dim=(0, 1)),
    "layer_norm over the examples": lambda m, x: F.layer_norm(x, [N, D]),
    "layer_norm of columns": lambda m, x: F.layer_norm(x.T, [N]).T,
    "instance_norm of one": lambda m, x: F.instance_norm(x[None])[0],
    "group_norm of one": lambda m, x: F.group_norm(x[None], 2)[0],
    "dot": lambda m, x: x * torch.dot(x.flatten(), x.flatten()),
    "cov": lambda m, x: x @ torch.cov(x.T),
    "corrcoef": lambda m, x: x @ torch.corrcoef(x.T),
    "renorm": lambda m, x: torch.renorm(x, 2, 1, 0.5),
    # orders
    "sort": lambda m, x: x.sort(0).values,
    "sort by keyword": lambda m, x: torch.sort(x, dim=-2, stable=True)[0],
    "topk": lambda m, x: x.topk(N, 0).values,
    "topk by keyword": lambda m, x: torch.topk(x, N, dim=-2)[0],
    "flip of several": lambda m, x: x.flip(1, 0),
    "flipud": lambda m, x: torch.flipud(x),
    "roll": lambda m, x: torch.roll(x, 1, 0),
    "roll of all": lambda m, x: x.roll(3),
    "rot90": lambda m, x: torch.rot90(x, 2),
    "index_select": lambda m, x: x.index_select(0, ORDER),
    "take_along_dim": lambda m, x: x.take_along_dim(ORDER[:, None], 0),
    "take": lambda m, x: x.take(torch.arange(N * D).flip(0).view(N, D)),
    "permuted": lambda m, x: x[ORDER],
    "a list": lambda m, x: x[ORDER.tolist()],
    "strided": lambda m, x: torch.cat([x[::2], x[1::2]]),
    "sliced": lambda m, x: torch.cat([x[4:], x[:4]]),
    "sliced and added": lambda m, x: torch.cat([x[:4] + x[4:], x[4:]]),
    "first row": lambda m, x: x - x[0],
    "first row kept": lambda m, x: x - x[:1],
    "first row through an ellipsis": lambda m, x: x - x[0, ...],
    "one element through an ellipsis": lambda m, x: x - x[..., 0, 1],
    "last row by narrow": lambda m, x: x - x.narrow(0, N - 1, 1),
    "unbound": lambda m, x: torch.stack(x.unbind(0)[::-1]),
    "selected": lambda m, x: x - x.select(-2, 3),
    "split": lambda m, x: torch.cat(x.split(4)[::-1]),
    "chunked": lambda m, x: torch.cat(x.chunk(2, -2)[::-1], -2),
    "halves": lambda m, x: torch.cat(torch.tensor_split(x, 2)[::-1]),
    "hsplit and swapped": lambda m, x: torch.vstack(torch.vsplit(x, 2)[::-1]),
    "iterated": lambda m, x: torch.stack(list(x)[::-1]),
    "masked": lambda m, x: torch.zeros_like(x).masked_scatter(x > 0, x[x > 0].flip(0)),
    "movedim": lambda m, x: x.movedim(0, 1),
    "moveaxis": lambda m, x: torch.moveaxis(x, 1, 0),
    "transposed": lambda m, x: x.T.contiguous(),
    "adjoint": lambda m, x: x.adjoint(),
    "transposed and viewed": lambda m, x: x.t().reshape(N * D).view(N, D),
    "columns stacked": lambda m, x: torch.column_stack(x.unbind(1)[::-1]).T,
    # products of examples
    "gram": lambda m, x: (x @ x.mT) @ x,
    "einsum": lambda m, x: torch.einsum("nd,md->nm", x, x) @ x,
    "tensordot": lambda m, x: torch.tensordot(x, x, ([1], [1])) @ x,
    "outer": lambda m, x: torch.outer(x[:, 0], x[:, 1]),
    "cdist": lambda m, x: torch.cdist(x, x + 1),
    "attention over the batch": lambda m, x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "attention of matrices": lambda m, x: F.scaled_dot_product_attention(x, x, x),
    "linear by itself": lambda m, x: F.linear(x, x),
    "bilinear": lambda m, x: F.bilinear(x, x.flip(0), m.mixer.expand(D, N, N)),
    "addmm": lambda m, x: torch.addmm(x, m.constant, x),
    "addmv": lambda m, x: x + torch.mv(m.constant, x[:, 0])[:, None],
    "linalg.multi_dot": lambda m, x: torch.linalg.multi_dot([m.constant, x, m.constant]),
    "linalg.solve": lambda m, x: torch.linalg.solve(m.constant + 3 * torch.eye(N).double(), x),
    "fourier": lambda m, x: torch.fft.fft(x, dim=0).real,
    "convolution over the batch": lambda m, x: F.conv1d(x, torch.ones(N, N, 1).double()),
    "convolution along the batch": lambda m, x: (
        F.conv1d(x.T[:, None], torch.ones(1, 1, 3).double(), None, 1, 1)[:, 0].T
    ),
    "pooling along the batch": lambda m, x: F.avg_pool1d(x.T, 3, 1, 1).T,
    "padded in front": lambda m, x: F.pad(x, (0, 0, 1, 0))[:N],
    "interpolated": lambda m, x: F.interpolate(x[None, None], (N, D), mode="bilinear", align_corners=False)[0, 0].flip(
        0
    ),
    "lookup of other rows": lambda m, x: F.embedding(ORDER, x),
    "lookup in the table of examples": lambda m, x: x + F.embedding(x.argmax(1), x),
    "embedding_bag": lambda m, x: F.embedding_bag(ORDER.view(N, 1).expand(N, 2), x),
    # broadcasts that put one example beside another
    "against each other": lambda m, x: (x[:, None] - x[None]).mean(1),
    "a vector along the rows": lambda m, x: x * x.sum(1),
    "a vector along the rows, where": lambda m, x: torch.where(x > 0, x, x.sum(1)),
    "expanded in front": lambda m, x: x.expand(3, N, D).transpose(0, 1).reshape(3 * N, D)[:N],
    "repeated in front": lambda m, x: x.repeat(2, 1)[:N] + x.tile(2, 1)[N:],
    "diagonal": lambda m, x: torch.diag(x.sum(1)),
    "shared by masks": lambda m, x: x * (x.sum(1) > 0),
    # written into
    "written in another order": lambda m, x: written(x, lambda out, x: out.__setitem__(ORDER, x)),
    "written to a part": lambda m, x: written(x, lambda out, x: out.__setitem__(slice(0, 4), x[4:])),
    "written across": lambda m, x: written(x, lambda out, x: out.__setitem__((slice(None), 0), x.sum(0))),
    "written through a mask": lambda m, x: in_place(x, lambda y: y.__setitem__(y > 0, y[y > 0].flip(0))),
    "index_put": lambda m, x: x.index_put((ORDER,), x),
    "index_copy_ in place": lambda m, x: in_place(x, lambda y: y.index_copy_(0, ORDER, y.clone())),
    "cumsum_ in place": lambda m, x: in_place(x, lambda y: y.cumsum_(0)),
    "a view is overwritten": lambda m, x: through_a_view(x),
    "a view of what is overwritten": lambda m, x: through_a_view_of_zeros(x),
    "_foreach_ in place": lambda m, x: in_place(x, lambda y: torch._foreach_add_([y], [y.flip(0)])),
    "out": lambda m, x: x + torch.flip(x.detach(), [0]),
    # what no rule can know
    "an operation of ATen": lambda m, x: torch.ops.aten.flip(x, [0]),
    "a function of one's own": lambda m, x: Reversed.apply(x),
    "vmap over the columns": lambda m, x: torch.vmap(lambda column: column.cumsum(0), 1, 1)(x),
    "multi-head attention over the batch": lambda m, x: F.scaled_dot_product_attention(
        x.view(1, 1, N, D), x.view(1, 1, N, D), x.view(1, 1, N, D)
    ).view(N, D),
    "recurrent over the batch": lambda m, x: nn.LSTM(D, D).double()(x)[0],
}


@pytest.mark.parametrize("name", MIXING)
def test_a_form_that_mixes_examples_is_exact(name):
    """By the rules alone: no comparison with an ordinary pass helps."""
    model, x = model_of(MIXING[name]), inputs()
    torch.manual_seed(3)
    found, fallback = split(model, losses_of(model, x), MEMBERS, verify=False)
    torch.manual_seed(3)
    expected = plain(model, losses_of(model, x), MEMBERS)
    for of_group, wanted in zip(found, expected, strict=True):
        for key, gradient in wanted.items():
            torch.testing.assert_close(of_group[key], gradient, rtol=1e-9, atol=1e-12)
    assert "first.weight" in fallback, "the examples were taken to be apart"


APART = {
    "reductions": lambda m, x: x - x.mean(1, keepdim=True) + x.var(-1)[:, None] + x.max(1).values[:, None],
    "softmax": lambda m, x: x.softmax(-1) + F.log_softmax(x, dim=1) + x.logsumexp(1)[:, None],
    "cumulative": lambda m, x: x.cumsum(1) + x.cumprod(-1) + x.sort(-1).values + x.topk(D, 1).values,
    "norms": lambda m, x: F.normalize(x, dim=-1) + F.group_norm(x, 2) + F.layer_norm(x, [D]),
    "reshaped": lambda m, x: x.view(N, 2, 4).transpose(1, 2).flatten(1) + x.reshape(2 * N, 4).view(N, D),
    "shifted in front": lambda m, x: x.view(N, 2, 4).permute(1, 0, 2)[0].repeat(1, 2),
    "columns": lambda m, x: torch.cat([x[:, 4:], x[..., :4]], 1).flip(1).roll(1, 1),
    "chunks": lambda m, x: torch.cat(x.chunk(2, 1)[::-1], -1) + torch.stack(x.unbind(1), 1),
    "gathered": lambda m, x: x.gather(1, x.argsort(1)) + x[torch.arange(N), x.argmax(1)][:, None],
    "products": lambda m, x: (
        x @ m.constant + torch.bmm(x[:, None], x[:, :, None])[:, 0] + (x[:, None] @ m.constant)[:, 0]
    ),
    "written": lambda m, x: written(x, lambda out, x: out.__setitem__((slice(None), slice(0, 4)), x[:, 4:])),
    "masked in place": lambda m, x: in_place(x, lambda y: y.__setitem__(y > 0, 0.0)),
    "in place": lambda m, x: in_place(x, lambda y: y.mul_(2).add_(x).clamp_(min=-0.1)),
    "attention": lambda m, x: F.scaled_dot_product_attention(*[x.view(N, 2, 4)] * 3).flatten(1),
    "masks": lambda m, x: torch.where(x > 0, x, -x) * (x.sum(1, keepdim=True) > 0) + F.pad(x, (1, 0))[:, :D],
    "repeated": lambda m, x: x.repeat_interleave(2, 0).view(N, 2, D).mean(1),
}


@pytest.mark.parametrize("name", APART)
def test_what_keeps_examples_apart_needs_one_pass(name):
    """The rules are no stricter than they must be for what models are made of."""
    model, x = model_of(APART[name]), inputs()
    assert compare(model, losses_of(model, x), MEMBERS) == []


def test_a_stride_over_examples_is_not_harmless():
    """Each example keeps its own row, but the rows that are left are no longer n, so nothing is said of them."""
    model, x = model_of(lambda _, x: torch.cat([x[0:N], x[N:]])), inputs()
    _, fallback = split(model, losses_of(model, x), MEMBERS, verify=False)
    assert "first.weight" in fallback


LABELS = torch.arange(N) % 3


@pytest.mark.parametrize(
    "losses",
    [
        lambda logits: cross_entropy(logits, LABELS, reduction="none"),
        lambda logits: 0.5 * cross_entropy(logits, LABELS, reduction="none", label_smoothing=0.1),
        lambda logits: -logits.log_softmax(-1).gather(1, LABELS[:, None]).squeeze(-1),
        lambda logits: -(F.one_hot(LABELS) * F.log_softmax(logits, 1)).sum(-1),
        lambda logits: weighted_losses(logits.float(), LABELS, 0.5).losses,
        lambda logits: weighted_losses(logits.float(), LABELS, 0.5, backend="triton").losses,
    ],
    ids=["cross-entropy", "smoothed", "gathered", "one-hot", "reference", "fused"],
)
def test_losses_may_be_computed_after_the_block_or_inside(losses):
    model, x = model_of(lambda _, x: x), inputs()
    with GroupGradients(model, verify=False) as groups:
        logits = model(x)
    groups.backward(losses(logits), MEMBERS)
    assert groups.fallback == []
    with GroupGradients(model, verify=False) as groups:
        inside = losses(model(x))
    groups.backward(inside, MEMBERS)
    assert groups.fallback == []


@pytest.mark.parametrize(
    "mixed",
    [
        lambda logits: logits - logits.mean(0),
        lambda logits: logits.flip(0),
        lambda logits: logits.log_softmax(0),
        lambda logits: logits.softmax(-2),
        lambda logits: logits / logits.sum(-2),
        lambda logits: logits + logits.mean(),
        lambda logits: logits @ logits.T[:, :3],
        lambda logits: logits[ORDER],
    ],
)
def test_losses_that_mix_the_logits_after_the_block_are_exact(mixed):
    model, x = model_of(lambda _, x: x), inputs()

    def losses(logits):
        return cross_entropy(mixed(logits), torch.arange(N) % 3, reduction="none")

    with GroupGradients(model, verify=False) as groups:
        logits = model(x)
    found = groups.backward(losses(logits), MEMBERS)
    expected = plain(model, lambda: losses(model(x)), MEMBERS)
    for of_group, wanted in zip(found, expected, strict=True):
        for key, gradient in wanted.items():
            torch.testing.assert_close(of_group[key], gradient, rtol=1e-9, atol=1e-12)
    assert groups.fallback


def test_a_padding_row_gets_no_gradient_from_either_group():
    """The row of ``padding_idx`` is looked up by both groups, and torch leaves its gradient at 0."""
    table = nn.Embedding(5, D, padding_idx=2)
    nn.init.normal_(table.weight)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(2 * D, 3)).double()
    ids = torch.tensor([[2, 1]] * 4 + [[3, 2]] * 4)
    assert compare(model, losses_of(model, ids), MEMBERS) == []
    (wrong, correct), _ = split(model, losses_of(model, ids), MEMBERS)
    assert not wrong["0.weight"][2].any()
    assert not correct["0.weight"][2].any()
    assert wrong["0.weight"][1].any()


# --- the comparison with an ordinary pass ---------------------------------------------------------------------------


@pytest.fixture
def misjudged(monkeypatch):
    """A model that reorders its examples by a function whose rule is wrong."""
    monkeypatch.setitem(MOVES, Tensor.flip, Move(lambda at, output, x, *dims: at(x)))
    return model_of(lambda _, x: x.flip(0))


def test_a_wrong_rule_is_noticed_at_the_first_step_and_costs_a_second_pass(misjudged, caplog):
    """The numbers are right at the first step and ever after; one line says so."""
    for _ in range(3):
        assert compare(misjudged, losses_of(misjudged, inputs()), MEMBERS) == [
            name for name, _ in misjudged.named_parameters()
        ]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "two backward passes a step from now on" in record.message
    assert "\n" not in record.message


def test_a_wrong_rule_is_noticed_at_the_first_step_that_has_both_groups(misjudged, caplog):
    """With one group, one pass is right whatever happens between the examples."""
    for members in (torch.zeros(N).bool(), torch.ones(N).bool(), MEMBERS):
        compare(misjudged, losses_of(misjudged, inputs()), members)
    assert len(caplog.records) == 1


def test_each_model_is_compared_by_itself(misjudged):
    other = copy.deepcopy(misjudged)
    other.form = lambda _, x: x * 2
    assert compare(misjudged, losses_of(misjudged, inputs()), MEMBERS) != []
    assert compare(other, losses_of(other, inputs()), MEMBERS) == []


def test_the_comparison_costs_one_backward_pass_once(monkeypatch):
    model, x = model_of(lambda _, x: x * 2), inputs()
    passes = []
    ordinary = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kwargs: passes.append(1) or ordinary(*args, **kwargs))
    counts = []
    for _ in range(3):
        passes.clear()
        with GroupGradients(model) as groups:
            losses = losses_of(model, x)()
        groups.backward(losses, MEMBERS)
        counts.append(len(passes))
        assert groups.verified
    assert counts == [2, 1, 1]


def test_the_comparison_changes_no_number_and_no_random_stream():
    model, x = model_of(lambda _, x: F.dropout(x, 0.3)), inputs()
    found = []
    for verify in (False, None):
        torch.manual_seed(0)
        groups, _ = split(model, losses_of(model, x), MEMBERS, verify=verify)
        found.append((groups, torch.get_rng_state()))
    (alone, before), (compared, after) = found
    assert torch.equal(before, after)
    for one, other in zip(alone, compared, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_asked_to_verify_it_raises(misjudged):
    with pytest.raises(RuntimeError, match=r"the group's gradient of first\.weight is off by"):
        split(misjudged, losses_of(misjudged, inputs()), MEMBERS, verify=True)
