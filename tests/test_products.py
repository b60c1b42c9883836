"""Inner products keep their digits."""

import pytest
import torch

from dsgd.products import BLOCK, inner_product


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 590_000])
def test_long_sums_in_float32_lose_no_digits(count):
    """Terms of one sign are the hardest: here `torch.dot` is off by 1e-5 of the sum of 590,000."""
    one, other = torch.rand(2, count, generator=torch.Generator().manual_seed(0))
    expected = (one.double() * other.double()).sum()
    assert inner_product(one, other).dtype == torch.float64
    torch.testing.assert_close(inner_product(one, other), expected, rtol=2e-7, atol=0)


def test_matrices_need_not_be_contiguous():
    one, other = torch.rand(2, 40, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert inner_product(one.T, other.T) == pytest.approx((one * other).sum().item())
