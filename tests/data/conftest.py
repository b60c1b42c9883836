"""A mirror of the hub in miniature, made of made-up rows, and tokenizers of a few words."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast


class Mirror:
    """A function from a data set's rows to their Parquet files, laid out as on the hub."""

    def __init__(self, root):
        self.root = root
        self.subsets = {}

    def __call__(self, hub_id, subset, **splits):
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.root / hub_id
        (folder / subset).mkdir(parents=True, exist_ok=True)
        for split, columns in splits.items():
            pq.write_table(pa.table(columns), folder / subset / f"{split}-00000-of-00001.parquet")
        known = self.subsets.setdefault(hub_id, {}).setdefault(subset, [])
        known += [split for split in splits if split not in known]
        (folder / "README.md").write_text(self._card(hub_id))

    def _card(self, hub_id):
        lines = ["---", "configs:"]
        for subset, splits in self.subsets[hub_id].items():
            lines += [f"- config_name: {subset}", "  data_files:"]
            for split in splits:
                lines += [f"  - split: {split}", f"    path: {subset}/{split}-*"]
        return "\n".join([*lines, "---", ""])


@pytest.fixture
def mirror(tmp_path):
    return Mirror(tmp_path / "mirror")


@pytest.fixture
def words():
    """A function to a tokenizer with one token a word; ``pairs`` gives it RoBERTa's form for pairs.

    Pad 0, a 1, b 2, c 3, d 4, e 5, <s> 6, </s> 7; pads carry type 7 so that a test can tell them from text.
    """

    def make(inputs=("input_ids",), pairs=False):
        vocabulary = ["[PAD]", *"abcde", "<s>", "</s>"]
        model = WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="[PAD]")
        backend = Tokenizer(model)
        backend.pre_tokenizer = Whitespace()
        special = {"bos_token": "<s>", "sep_token": "</s>"} if pairs else {}
        if pairs:
            backend.post_processor = TemplateProcessing(
                single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 6), ("</s>", 7)]
            )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token="[PAD]",
            model_input_names=list(inputs),
            model_max_length=24 if pairs else 8,
            **special,
        )
        tokenizer._pad_token_type_id = 7  # no setter, no argument
        return tokenizer

    return make
