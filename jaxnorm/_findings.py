"""Findings on a network's signal: what is off before its first step or since, as data and text."""

import math
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import PyTree

from jaxnorm._branches import branch_factors
from jaxnorm._describe import aligned
from jaxnorm._finding import Finding, Kind
from jaxnorm._layout import Layout
from jaxnorm._paths import Path, is_absent, named_entries
from jaxnorm._propagation import Loss, Scalar, measured
from jaxnorm._rate_findings import Layers, Row, by_layer, rate_findings, size
from jaxnorm._reparametrize import effective
from jaxnorm._trace.graph import has_scale
from jaxnorm._trace.interpret import Apply
from jaxnorm._trace.reading import Reading, of_reading

#: The result of `propagation`.
Signal = dict[str, Scalar]

#: Limits for the hidden layers: the change of pre-activations and of gradients from the first to
#: the last, up or down; the mean cosine between rows; the share of dormant units.
CHANGE, COSINE, SHARE = 10.0, 0.93, 0.5

#: The limit for the fall of a deviation over the rows, between medians of some layers.
FADING = 5.0

#: Limits for the growth of pre-activations, and of gradients on the way back, over all branches.
BRANCHES_FORWARD, BRANCHES_BACKWARD = 2.0, 3.0

#: By remedy, the functions whose work includes it.
INCLUDED = {
    "variance_preserving_init": {"data_dependent_init"},
    "linearly_constrain": {"zero_sum_projection"},
}


@of_reading
def propagation_findings(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    loss: Loss | None = None,
    start: PyTree | None = None,
    applied: Collection[str] = (),
    layout: Layout | None = None,
) -> list[Finding]:
    """Faults of a network's signal before its first step, or in training, by `propagation`.

    Call it with the initial parameters. For the hidden layers (all but the last) it finds

    - pre-activations whose size grows or shrinks 10 times from the first to the last;
    - residual branches over which pre-activations grow 2 times, or gradients 3 times on the way
      back (with a loss);
    - rows that become alike: a mean cosine above 0.93 in the second half of the layers;
    - if there is nothing of these: pre-activations whose deviation over the rows falls to a fifth
      of that of the first layers, anywhere in the network;
    - if there is nothing of these either: gradients that change 10 times (with a loss), and a layer
      of which more than half of the units are dormant.

    Growth is that of the line through the logarithms of the sizes: the root mean square of the
    pre-activations, and ``gradient_norm``. The limits lie between what was measured on networks
    that train and on networks that do not; a trained network may exceed them.

    **In training** call it with the present parameters, and ``start``. Then it also finds the first
    hidden layer that has left its start, for which it blames the learning rate (`rate_findings`).
    Of the other faults it names those that the start had as well: a network that learns may exceed
    the limits for its start.

    Args:
        net: the model, as `read` returns it.
        params: current parameters, if they are not the reading's; nodes are made effective.
        *inputs: some 64 rows of the training data and the other arguments, if they are not the
            reading's.
        loss: as in `propagation`.
        start: of a network in training, a copy of its parameters before the first step, not traced.
        applied: names of functions of this library whose work is in force, such as the ``applied``
            of `normalizer_free`'s optimizer; none of them is a remedy.
        layout: as in `propagation`.

    Returns:
        Findings, the causes first; none for a network with nothing off.

    Raises:
        ValueError: as `propagation`.

    Call it outside of jit, pmap and shard_map; of sharded arrays it measures all rows. If they are
    split along explicit axes, call it inside ``jax.set_mesh``.

    Example:
        >>> from jaxnorm import read
        >>> import jax.numpy as jnp
        >>> params = [{"kernel": jnp.full((1, 1), 30.0)} for _ in range(3)]
        >>> def apply(params, x):
        ...     for layer in params:
        ...         x = x @ layer["kernel"]
        ...     return x
        >>> (finding,) = propagation_findings(read(apply, params, jnp.array([[-1.0], [1.0]])))
        >>> finding.kind, round(finding.values["forward"]), finding.remedies
        ('size', 30, ('variance_preserving_init',))

    Source: ours.
    """
    net = net.now(params, inputs)
    looked_at = partial(_looked_at, loss=loss, layout=layout)
    return _with_start(looked_at, net, start, applied)[1]


def describe_propagation(
    apply: Apply | Reading,
    params: PyTree = None,
    *inputs: Any,
    loss: Loss | None = None,
    start: PyTree | None = None,
    applied: Collection[str] = (),
    layout: Layout | None = None,
) -> str:
    """Table of `propagation` for a terminal, with a last line that names what is off and a remedy.

    The last line is "Nothing is off.", or lists the `propagation_findings` after "Off:".

    Args:
        apply: a reading, or ``apply(params, *inputs)``, any library's model as a function of plain
            parameters.
        params: the parameters, not traced; optional beside a reading.
        *inputs: some 64 rows of the training data and the other arguments; optional beside a
            reading.
        loss: as in `propagation`.
        start: as in `propagation_findings`.
        applied: as in `propagation_findings`.
        layout: as in `propagation`.

    Returns:
        Lines of text: a table of the layers in execution order, and the last line.

    Raises:
        ValueError: as `propagation`.

    Call it outside of jit, pmap and shard_map; of sharded arrays it measures all rows. If they are
    split along explicit axes, call it inside ``jax.set_mesh``.

    Example:
        >>> import jax.numpy as jnp
        >>> params = [{"kernel": jnp.full((1, 1), 30.0)} for _ in range(3)]
        >>> def apply(params, x):
        ...     for layer in params:
        ...         x = x @ layer["kernel"]
        ...     return x
        >>> print(describe_propagation(apply, params, jnp.array([[-1.0], [1.0]])))
        layer     variance  squared mean  cosine  dormant  effective rank  kurtosis
        0/kernel  900       0             -1      0        1               1
        1/kernel  8.1e+05   0             -1      0        1               1
        2/kernel  7.29e+08  0             -1      0        1               1
        Off: pre-activations grow 30 times per layer: variance_preserving_init.

    Source: ours.
    """
    net = Reading.of(apply, params, inputs)
    looked_at = partial(_looked_at, loss=loss, layout=layout)
    signal, findings = _with_start(looked_at, net, start, applied)
    layers = by_layer(signal)
    header = [name.replace("_", " ") for name in next(iter(layers.values()))]
    rows = [[name, *(f"{x:.3g}" for x in row.values())] for name, row in layers.items()]
    verdict = f"Off: {'; '.join(map(str, findings))}." if findings else "Nothing is off."
    return "\n".join([*aligned([["layer", *header], *rows]), verdict])


def _with_start(
    looked_at: Callable[[Reading], tuple[Signal, list[Finding]]],
    net: Reading,
    start: PyTree | None,
    applied: Collection[str],
) -> tuple[Signal, list[Finding]]:
    """Returns the statistics, and the findings with the remedies that are left."""
    if isinstance(applied, str):
        raise TypeError(f"applied is the text {applied!r}; wanted names, such as [{applied!r}].")
    signal, findings = looked_at(net)
    if start is None:
        return signal, [_without(finding, applied) for finding in findings]
    before, at_start = looked_at(net.at(start, net.inputs))
    stayed = {finding.kind for finding in at_start}
    old = [_without(finding, applied) for finding in findings if finding.kind in stayed]
    return signal, [*rate_findings(signal, before), *old]


def _without(finding: Finding, applied: Collection[str]) -> Finding:
    """Returns a finding without the remedies that are in force."""
    in_force = {*applied}
    left = [x for x in finding.remedies if in_force.isdisjoint({x, *INCLUDED.get(x, ())})]
    return finding._replace(remedies=tuple(left))


def _looked_at(
    net: Reading, loss: Loss | None, layout: Layout | None
) -> tuple[Signal, list[Finding]]:
    """Returns the statistics of each layer, and the findings."""
    signal, positions = measured(net, loss, layout)
    layers = by_layer(signal)
    factors = branch_factors(net).factors
    ends = _of([path for path, factor in factors.items() if factor != 1.0], layers)
    is_dead = any(row["dormant"] == 1 for row in layers.values())
    is_cut = is_dead and _has_zero_factor(net)
    return signal, _findings(layers, positions, ends, is_cut)


def _has_zero_factor(net: Reading) -> bool:
    """Returns True if a kernel or a scale is zero, so that nothing is left of a layer before it."""
    leaves = {path: x for path, x in named_entries(effective(net.params)) if not is_absent(x)}
    zeros = {path for path, x in leaves.items() if not np.any(x)}
    nodes = net.program(nodes=True).facts.nodes or []
    scales = (node.constant.factors for node in nodes if has_scale(node))
    kernels = (node.constant.sources for node in nodes if node.is_product)
    return not zeros.isdisjoint({path for paths in (*scales, *kernels) for path in paths})


def _of(paths: Iterable[Path], layers: Layers) -> list[str]:
    """Returns the names of the layers that have one of these kernels, alone or stacked."""
    starts = tuple(f"{path}/" for path in paths)
    return [name for name in layers if f"{name}/".startswith(starts)]


def _findings(
    layers: Layers, positions: dict[str, int], ends: list[str], is_cut: bool
) -> list[Finding]:
    """Returns the findings: causes, or else what may follow from them.

    Args:
        layers: the layers, the last of which only has to be finite.
        positions: the number of positions of each layer.
        ends: the last layers of residual branches.
        is_cut: True if zeros cut whole layers off from the output, which is no fault.
    """
    for name, row in layers.items():
        if not np.isfinite([*row.values()]).all():
            remedies = ("look for NaN in the inputs", "take smaller weights")
            return [Finding("not finite", name, {}, remedies)]
    hidden = dict([*layers.items()][:-1] or layers.items())
    rows = [*hidden.values()]
    found = _in_branches([layers[name] for name in ends]) or _changed("size", rows, size)
    found = [*found, *_alike(hidden)] or _fading(hidden, positions, ends)
    return found or [*_changed("gradients", rows, _gradient), *_dormant(hidden, is_cut)]


def _in_branches(ends: list[Row]) -> list[Finding]:
    forward, backward = _change(ends, size), _change(ends, _gradient)
    if forward <= BRANCHES_FORWARD and backward >= 1 / BRANCHES_BACKWARD:
        return []
    values = {"forward": _per_step(forward, ends), "backward": _per_step(1 / backward, ends)}
    return [Finding("branches", "", values, ("residual_factors",))]


def _changed(kind: Kind, rows: list[Row], size: Callable[[Row], float]) -> list[Finding]:
    """Finds pre-activations or gradients whose size changes from the first layer to the last."""
    change = _change(rows, size)
    if 1 / CHANGE < change < CHANGE:
        return []
    if kind == "size":
        values, remedy = {"forward": _per_step(change, rows)}, "variance_preserving_init"
    else:
        values, remedy = {"backward": _per_step(1 / change, rows)}, "shaped"
    return [Finding(kind, "", values, (remedy,))]


def _fading(hidden: Layers, positions: dict[str, int], ends: list[str]) -> list[Finding]:
    """Finds layers whose deviations over the rows are smaller than those of the first ones.

    Medians of neighbours are compared, so that no single layer decides. The last layer of a branch
    is quiet on purpose, and a layer behind a mean over positions has less variance: both are left
    out.
    """
    most = np.median([positions[name] for name in hidden]) > 1
    names = [x for x in hidden if x not in ends and (positions[x] > 1 or not most)]
    deviations = {x: hidden[x]["variance"] ** 0.5 for x in names if hidden[x]["variance"] > 0}
    names, sizes = [*deviations], [*deviations.values()]
    starts = range(3, len(sizes) - 1)
    if not starts:
        return []
    medians = {i: float(np.median(sizes[i - 2 : i + 3])) for i in starts}
    lowest = min(medians, key=lambda i: medians[i])
    if medians[lowest] * FADING > np.median(sizes[:3]):
        return []
    name = min(names[lowest - 2 : lowest + 3], key=lambda name: deviations[name])
    values = {"first": sizes[0] ** 2, "last": deviations[name] ** 2}
    return [Finding("fading", name, values, ("variance_preserving_init",))]


def _alike(hidden: Layers) -> list[Finding]:
    cosines = {name: row["cosine"] for name, row in hidden.items()}
    if np.mean([*cosines.values()][len(cosines) // 2 :]) <= COSINE:
        return []
    name = next(name for name, cosine in cosines.items() if cosine > COSINE)
    is_first = name == next(iter(cosines))
    remedies = ("center the inputs",) if is_first else ("linearly_constrain", "shaped")
    return [Finding("alike", name, {"cosine": cosines[name]}, remedies)]


def _dormant(hidden: Layers, is_cut: bool) -> list[Finding]:
    shares = {name: row["dormant"] for name, row in hidden.items()}
    shares = {name: x * (x < 1 or not is_cut) for name, x in shares.items()}
    name = max(shares, key=lambda name: shares[name])
    if shares[name] <= SHARE:
        return []
    return [Finding("dormant", name, {"share": shares[name]}, ("data_dependent_init",))]


def _gradient(row: Row) -> float:
    return row.get("gradient_norm", 1.0)


def _change(rows: list[Row], size: Callable[[Row], float]) -> float:
    """Returns the factor from the first size to the last, of the line through the logarithms."""
    logarithms = [math.log(size(row)) for row in rows if size(row) > 0]
    steps = len(logarithms) - 1
    slope = float(np.polyfit(range(steps + 1), logarithms, 1)[0]) if steps > 0 else 0.0
    return math.exp(slope * steps)


def _per_step(change: float, rows: list[Row]) -> float:
    return float(change ** (1 / (len(rows) - 1)))
