"""Each text architecture with random weights and few of them, a tokenizer of a few words, and batches for both."""

import functools
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from dsgd.config.schema import Model
from dsgd.methods.contracts import Batch
from dsgd.models import build_model

WORDS = ["<pad>", "</s>", "<s>", *(f"w{number}" for number in range(37))]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
DEBERTA = {  # as deberta-v3-base
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODERNBERT = {"local_attention": 8, "classifier_pooling": "mean", "cls_token_id": 2, "sep_token_id": 1}
DECODER = {**SIZES, "num_key_value_heads": 2}
ENCODERS = {
    "bert": lambda: BertModel(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**{**SIZES, "pad_token_id": 1, "eos_token_id": 0})),
    "deberta-v2": lambda: DebertaV2ForMaskedLM(DebertaV2Config(**SIZES, **DEBERTA)),
    "modernbert": lambda: ModernBertForMaskedLM(ModernBertConfig(**SIZES, **MODERNBERT)),
}
DECODERS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**DECODER)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**DECODER, head_dim=8)),
}
NETWORKS = ENCODERS | DECODERS
EVERY = list(NETWORKS)
#: Whose published checkpoints have no pooler that a head of this kind reads.
LACK_A_POOLER = {("deberta-v2", 1), ("deberta-v2", 2), ("roberta", 2)}


_FOLDER = tempfile.TemporaryDirectory(prefix="tiny-models-")  # gone at the interpreter's end


@functools.cache
def checkpoint(name):
    """A folder of the architecture, as the published ones were saved: without a head."""
    folder = Path(_FOLDER.name) / name
    torch.manual_seed(0)
    NETWORKS[name]().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def tokenizer(**special):
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, **{"eos_token": "</s>", "pad_token": "<pad>", **special})


def classifier(path, choices=1, seed=0, **changes):
    num_classes = choices if choices > 1 else 3
    return build_model(Model(name="tiny", path=path, **changes), num_classes, seed, choices)


def batch_of(examples=4, choices=1, num_classes=3, seed=0, longest=9):
    """Rows of different lengths, padded on the right with each architecture's own or any other id."""
    generator = torch.Generator().manual_seed(seed)
    rows = examples * choices
    ids = torch.randint(3, len(WORDS), (rows, longest), generator=generator)
    lengths = torch.randint(2, longest + 1, (rows,), generator=generator)
    lengths[0] = longest
    mask = (torch.arange(longest) < lengths[:, None]).long()
    labels = torch.randint(choices if choices > 1 else num_classes, (examples,), generator=generator)
    return Batch({"input_ids": ids, "attention_mask": mask}, labels)


def padded(model, batch):
    pad = model.network.config.pad_token_id
    mask = batch.inputs["attention_mask"]
    ids = torch.where(mask == 1, batch.inputs["input_ids"], pad)
    return Batch({"input_ids": ids, "attention_mask": mask}, batch.labels)
