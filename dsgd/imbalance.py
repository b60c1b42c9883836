"""Class counts of imbalanced training splits, by the formulas of LDAM's imbalanced CIFAR (arXiv:1906.07413).

Torch-free, unlike ``dsgd.data``, because plans and tables count examples too.
"""


def class_counts(kind: str, factor: float, num_classes: int, maximum: int) -> list[int]:
    """How many examples each class keeps, in the order of the class numbers.

    The arithmetic is LDAM's to the last bit: floats, cut off by ``int``. Another order of operations, or rounding,
    shifts some counts by one.

    Args:
        kind: ``longtail`` falls geometrically from ``maximum`` at class 0 to ``factor * maximum`` at the last;
            ``step`` keeps ``maximum`` in the first half of the classes and ``factor * maximum`` in the others;
            ``none`` keeps ``maximum`` in all.
        factor: in (0, 1].
        num_classes: K, at least 2.
        maximum: count of the largest class.

    Raises:
        ValueError: an unknown ``kind``.
    """
    if kind == "none":
        return [maximum] * num_classes
    if kind == "longtail":
        return [int(maximum * factor ** (label / (num_classes - 1.0))) for label in range(num_classes)]
    if kind == "step":
        full = num_classes // 2
        return [maximum] * full + [int(maximum * factor)] * (num_classes - full)
    raise ValueError(f"task.imbalance.kind = {kind}: give none, longtail or step")
