"""The picture at the top of the page: claims by paper and verdict, differences with intervals."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.analysis.measures import unit
from experiments.analysis.picture import new_figure, picture
from experiments.analysis.verdicts.claim import Claim
from experiments.analysis.verdicts.claims import PAPERS
from experiments.analysis.verdicts.judge import NOT_REPRODUCED, OPEN, REPRODUCED, Verdict

_COLOURS = {REPRODUCED: "#009E73", NOT_REPRODUCED: "#D55E00", OPEN: "#999999"}
#: The largest points shown of an interval.
_LARGEST = 30.0


def picture_of(judged: Mapping[str, tuple[Claim, Verdict]]) -> bytes:
    """Returns the picture as PNG.

    Args:
        judged: every claim with its verdict, by name.
    """
    figure = new_figure(1, 2, width=9)
    counts, differences = figure.axes
    in_points = [(c, v) for c, v in judged.values() if v.interval and unit(c.measure) == " points"]
    figure.set_size_inches(9, 2.6 + 0.21 * len(in_points))
    grid: Any = counts.get_gridspec()
    grid.set_height_ratios([1.5, 0.21 * len(in_points)])
    _draw_counts(counts, judged)
    _draw_differences(differences, in_points)
    return picture(figure)


def _draw_counts(axes: Any, judged: Mapping[str, tuple[Claim, Verdict]]) -> None:
    named = {paper.title: [claim.name for claim in paper.claims] for paper in PAPERS}
    left = dict.fromkeys(named, 0)
    for word, colour in _COLOURS.items():
        counts = {t: Counter(judged[n][1].word for n in names)[word] for t, names in named.items()}
        axes.barh(list(named), list(counts.values()), left=list(left.values()), color=colour)
        for title, count in counts.items():
            if count:
                axes.text(left[title] + count / 2, title, count, ha="center", va="center")
            left[title] += count
    axes.legend(
        [f"{word}" for word in _COLOURS], ncols=3, loc="lower center", bbox_to_anchor=(0.3, 1.0)
    )
    axes.invert_yaxis()
    axes.set_xlabel("claims")


def _draw_differences(axes: Any, judged: Iterable[tuple[Claim, Verdict]]) -> None:
    for place, (claim, verdict) in enumerate(judged):
        assert verdict.interval is not None
        low, high = (min(max(end, -_LARGEST), _LARGEST) for end in verdict.interval)
        colour = _COLOURS[verdict.word]
        axes.plot([low, high], [place, place], color=colour, linewidth=3)
        if low == high:  # All of it is beyond the end of the axis.
            axes.plot(low, place, "<" if low < 0 else ">", color=colour, clip_on=False)
        axes.text(-_LARGEST * 1.1, place, claim.name, ha="right", va="center", fontsize=8)
        axes.plot(-claim.margin, place, "k|", markersize=7)
    axes.axvline(0, color="k", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-_LARGEST, _LARGEST)
    axes.set_xticks(
        ticks := (-30, -10, -3, -1, 0, 1, 3, 10, 30),
        [f"{tick:+}" if tick else "0" for tick in ticks],
    )
    axes.margins(y=0.01)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel("points of accuracy for the claim; | is what it needs")
