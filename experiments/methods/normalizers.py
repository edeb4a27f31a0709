"""Normalization layers and dropout: parts that only change the network."""

from dataclasses import dataclass

from jaxtyping import PyTree

from experiments.methods.part import Context, Part, Sample
from experiments.methods.statistics import settled
from experiments.models.norms import BATCH_NORMS
from experiments.models.registry import NetworkStyle


@dataclass(frozen=True)
class Normalized(Part):
    """Normalization layers, each a key of `experiments.models.NORMS`, or None.

    Attributes:
        before: the layer before each activation.
        after: the layer after each activation.
        data: the layer that normalizes the data; None for data standardized on the training rows.
    """

    before: str | None = None
    after: str | None = None
    data: str | None = None

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Adds the layers."""
        return style._replace(norm=self.before, post_norm=self.after, input_norm=self.data)

    @property
    def has_statistics(self) -> bool:
        """True if one of the layers takes statistics of the batch."""
        return not BATCH_NORMS.keys().isdisjoint((self.before, self.after, self.data))

    def settle(self, sample: Sample, context: Context) -> PyTree:
        """Estimates the statistics anew, by the weights after the last update."""
        return settled(sample, context) if self.has_statistics else sample.model_state


@dataclass(frozen=True)
class Dropout(Part):
    """Drops activations in training.

    Attributes:
        dropout: the fraction of dropped activations.
    """

    dropout: float = 0.1

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Adds the dropout."""
        return style._replace(dropout=self.dropout)
