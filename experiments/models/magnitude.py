"""Sums that preserve magnitude: two terms of mean square 1 make a sum of mean square 1.

Karras et al. 2024, "Analyzing and improving the training dynamics of diffusion models".
"""

from jaxtyping import Array, Float

Values = Float[Array, "..."]

#: The weight t of the branch, in the paper's residual blocks; the stream has the weight 1 - t.
BALANCE = 0.3


def preserving_sum(stream: Values, branch: Values, balance: float = BALANCE) -> Values:
    """Returns ((1 - t) a + t b) / sqrt((1 - t)^2 + t^2), for uncorrelated a and b (Eq. 88)."""
    weight = 1 - balance
    return (weight * stream + balance * branch) / (weight**2 + balance**2) ** 0.5
