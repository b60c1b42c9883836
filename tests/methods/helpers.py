"""A tiny real classifier and its batches, for the tests of the method parts; no pretrained weights are needed."""

import torch
from transformers import BertConfig, BertForSequenceClassification

from dsgd.methods.contracts import Batch, Step, Window
from dsgd.models import Classifier


def tiny_classifier(num_classes=3, layers=2, dropout=0.0, dtype=torch.float64, seed=0):
    """A BERT of the real architecture with random weights: hidden size 16, vocabulary 50."""
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=num_classes,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Classifier(BertForSequenceClassification(config)).to(dtype).train()


def random_batch(examples=8, length=6, num_classes=3, seed=1):
    """Token ids with some padding, and labels."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 50, (examples, length), generator=generator)
    lengths = torch.randint(2, length + 1, (examples,), generator=generator)
    mask = (torch.arange(length) < lengths[:, None]).long()
    labels = torch.randint(num_classes, (examples,), generator=generator)
    return Batch({"input_ids": ids * mask, "attention_mask": mask}, labels)


def window_of(*batches, number=1, total=10):
    """The batches as one optimiser window."""
    return Window(list(batches), sum(len(batch.labels) for batch in batches), Step(number, total))
