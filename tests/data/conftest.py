"""A mirror of the hub in miniature, made of made-up rows."""

import pytest


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
