"""The claims of all papers, in the order of the page."""

from experiments.analysis.verdicts.claims import bn, cwo, lcw, normprop, vcl

PAPERS = (cwo.PAPER, lcw.PAPER, normprop.PAPER, vcl.PAPER, bn.PAPER)
