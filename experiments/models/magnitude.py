"""Sums that keep the magnitude of what they add: of two of mean square 1, one of mean square 1.

Karras et al. 2024, "Analyzing and improving the training dynamics of diffusion models".
"""

from jaxtyping import Array, Float

Values = Float[Array, "..."]

#: The weight of the branch; that of the stream is the rest of 1. The paper's, for residual blocks.
BALANCE = 0.3


def preserving_sum(stream: Values, branch: Values, balance: float = BALANCE) -> Values:
    """((1 - t) a + t b) / sqrt((1 - t)^2 + t^2), of uncorrelated a and b (Eq. 88)."""
    rest = 1 - balance
    return (rest * stream + balance * branch) / (rest**2 + balance**2) ** 0.5
