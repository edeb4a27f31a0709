"""Methods on a network of the user's own, whose branches start quietly."""

from dataclasses import dataclass, replace
from functools import reduce

from jaxtyping import Array, PyTree

import jaxnorm
from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.normalizer_free import NormalizerFree
from experiments.methods.part import Context, Part
from experiments.models.registry import NetworkStyle


@dataclass(frozen=True)
class QuietBranches(Part):
    """Residual branches that start at 1/sqrt(L), L of them in a stream."""

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the parameters times the factors of their branches."""
        try:
            factors = jaxnorm.residual_factors(jaxnorm.read(context.logits, params, X[:1]))
        except ValueError as error:
            raise UserError(f"the network's branches cannot start quietly: {error}") from error
        return jaxnorm.scale_branches(params, factors)


def of_own_network(method: Method, config: Config) -> Method:
    """Returns the method for a network of the user's own.

    ``bn`` is the network as it is, ``gn`` the one with group normalization in the place of batch
    normalization, ``none`` the one from which batch normalization is deleted. All
    other methods act on that one's weights, and start its residual branches quietly;
    ``normalizer-free``, ``moving-average`` and ``agc`` do so themselves.

    Raises:
        UserError: for a method that changes the layers or the activations of a network.
    """
    plain = NetworkStyle(config.activation)
    style = reduce(lambda style, part: part.style(style), method.parts, plain)
    if style not in (plain, *(plain._replace(norm=norm) for norm in ("bn", "gn"))):
        raise UserError(
            f"the method {method.name!r} has layers or activations of its own, which a network of "
            f"yours has no place for; with {config.model} take none, bn, gn, or methods on "
            "weights, such as normalizer-free, cwo-centre-sphere, cwo, lcw and wn."
        )
    if style.norm or not method.parts:
        return method
    if method.get(NormalizerFree) is not None or method.get(QuietBranches) is not None:
        return method
    return replace(method, parts=(*method.parts, QuietBranches()))
