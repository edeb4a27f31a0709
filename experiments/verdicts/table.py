"""All claims, by paper."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments.verdicts.claim import Claim
from experiments.verdicts.claims import bn, cwo, lcw, normprop, vcl

#: By the paper's title, in the order of the page.
CLAIMS: Mapping[str, tuple[Claim, ...]] = MappingProxyType(
    {paper.PAPER: paper.CLAIMS for paper in (cwo, lcw, normprop, vcl, bn)}
)

#: The curves that show a paper best, by its title.
PICTURES: Mapping[str, str] = MappingProxyType(
    {paper.PAPER: paper.PICTURE for paper in (cwo, lcw, normprop, vcl, bn)}
)

#: What is said of all claims of a paper, by its title.
NOTES: Mapping[str, str] = MappingProxyType({paper.PAPER: paper.NOTE for paper in (cwo, normprop)})
