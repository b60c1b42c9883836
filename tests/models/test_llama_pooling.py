"""Decoders: the classified position is the last token that is no padding, whatever the padding."""

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification


def test_padding_on_the_right_changes_no_logits():
    """METHODS 17 (10): pooled index = attention_mask.sum(1) - 1, with the pad token set on the model's config."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_labels=3,
        pad_token_id=0,
    )
    model = LlamaForSequenceClassification(config).double().eval()
    ids = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 3, 4, 2], [1, 0, 0, 0, 0]])
    mask = (ids != 0).long()
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
    last = mask.sum(1) - 1
    together = model(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(together, model.score(hidden[torch.arange(3), last]))
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = model(input_ids=ids[row : row + 1, :length]).logits
        assert torch.allclose(together[row : row + 1], alone)
