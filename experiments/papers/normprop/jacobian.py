"""Section 3.4: the Jacobian of a normalized layer: E J J' = 1.47 I, and its singular values."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, draw_lines, new_figure
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import compared, measured_report, near
from jaxnorm.normprop import jacobian_factor, standardized

ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
}


class Settings(NamedTuple):
    """Settings; the paper assumes rows that are nearly orthogonal."""

    units: int = 64
    inputs: tuple[int, ...] = (64, 256, 4096)
    samples: int = 4000


def run(settings: Settings, context: Context) -> Report:
    """Measures the mean Gram matrix of each activation, and singular values by number of inputs."""
    rows_key, gram_key, layer_key = jax.random.split(jax.random.key(0), 3)
    weights = unit_rows(rows_key, settings.units, settings.inputs[1], 0.0)
    diagonals, theory, findings = {}, {}, []
    for name, activation in ACTIVATIONS.items():
        gram = np.asarray(jacobian_grams(gram_key, weights, activation, settings.samples))
        diagonals[name] = float(np.diag(gram).mean())
        theory[name] = float(jacobian_factor(activation)) ** 2
        findings.append(
            near(f"mean diagonal of E J J', {name}", diagonals[name], theory[name], 0.02)
        )
        context.advance(0.7 * len(theory) / len(ACTIVATIONS), name)
    findings.append(near("the same, relu", diagonals["relu"], 1.47, 0.02, "paper"))
    values = {n: _singular_values(layer_key, settings.units, n) for n in settings.inputs}
    for n, each in values.items():
        share = float((np.abs(each - 1.21) < 0.1 * 1.21).mean())
        name = f"share of singular values within 10% of 1.21, relu, {n} inputs"
        findings.append(compared(name, share, 1.0, share > 0.9, "paper, if all are"))
    return measured_report(findings, {"jacobian": _draw(diagonals, theory, values)})


def unit_rows(
    key: Array, units: int, inputs: int, common: float | Float[Array, ""]
) -> Float[Array, "units inputs"]:
    """Draws unit-norm rows; ``common``, from 0 to 1, is their share of one direction."""
    row_key, direction_key = jax.random.split(key)
    rows = _unit(jax.random.normal(row_key, (units, inputs)))
    direction = _unit(jax.random.normal(direction_key, (1, inputs)))
    return _unit(jnp.sqrt(1 - common) * rows + jnp.sqrt(common) * direction)


def _unit(rows: Float[Array, "rows inputs"]) -> Float[Array, "rows inputs"]:
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def jacobian_grams(
    key: Array,
    weights: Float[Array, "units inputs"],
    activation: Callable[[Array], Array],
    samples: int,
) -> Float[Array, "units units"]:
    """Averages J J' of the standardized layer over standard normal inputs."""
    layer = standardized(activation)

    def gram(key: Array) -> Float[Array, "units units"]:
        x = jax.random.normal(key, (weights.shape[1],))
        jacobian = jax.jacobian(lambda x: layer(weights @ x))(x)
        return jacobian @ jacobian.T

    return jax.lax.map(gram, jax.random.split(key, samples), batch_size=1000).mean(0)


def _singular_values(key: Array, units: int, inputs: int) -> Float[np.ndarray, " units"]:
    """Returns the singular values of the Jacobian of one ReLU layer at one input."""
    rows_key, input_key = jax.random.split(key)
    weights = unit_rows(rows_key, units, inputs, 0.0)
    layer = standardized(jax.nn.relu)
    jacobian = jax.jacobian(lambda x: layer(weights @ x))(jax.random.normal(input_key, (inputs,)))
    return np.linalg.svd(np.asarray(jacobian, np.float64), compute_uv=False)


def _draw(
    diagonals: Mapping[str, float],
    theory: Mapping[str, float],
    values: Mapping[int, Float[np.ndarray, " units"]],
) -> Figure:
    figure = new_figure(2)
    left, right = figure.axes
    places = np.arange(len(diagonals))
    left.bar(places - 0.2, list(diagonals.values()), 0.4, label="measured", color=COLOURS[1])
    left.bar(places + 0.2, list(theory.values()), 0.4, label="theory", color=COLOURS[6])
    left.set_xticks(places, list(diagonals))
    left.set(ylabel="mean diagonal of E J J'", ylim=(0, 1.25 * max(theory.values())))
    left.legend(ncols=2, loc="upper right")
    right.axhline(1.21, color=COLOURS[0], linestyle="--", label="1.21")
    draw_lines(right, {f"{n} inputs": each for n, each in values.items()}, ".-", first=1)
    right.set(xlabel="rank", ylabel="singular value at one input (relu)")
    return figure


DERIVED = "the paper derives it and measures nothing; the rows are ours"

JACOBIAN = Item(
    "normprop/jacobian",
    "the Jacobian of a layer of standardized activations",
    "E J J' is about 1.47 I for ReLU, singular values about 1.21",
    run,
    smoke=Preset(
        Settings(units=16, inputs=(16, 64), samples=500), "15 s on 2 CPU cores", "16 units"
    ),
    cpu=Preset(Settings(), "30 s on 2 CPU cores", DERIVED),
    full=Preset(Settings(samples=40000), "2 min on 2 CPU cores", DERIVED),
)
