"""A user's program that takes every public name of jaxnorm, for a type checker: it is not run.

`tests/test_typed.py` asks mypy about it, in strict mode, and that no public name is missing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

import jaxnorm as jn

Tree = dict[str, Any]


def apply(params: Tree, x: Array) -> Array:
    return jax.nn.relu(x @ params["kernel"] + params["bias"])


def transforms(params: Tree, gradients: Tree) -> Tree:
    inner = optax.chain(optax.sgd(0.1), jn.clip_by_layer_norm(1.0), jn.centered_gradient())
    step = jn.fixed_step(lambda count: 0.1 / (1 + count), layout=jn.flax_layout, per="kernel")
    on_sphere = optax.chain(inner, step, jn.sphere_projection(layout=jn.flax_layout))
    orthogonal: optax.GradientTransformation = jn.stiefel_projection(squared_radius=1.0)
    kernel: Array = jn.project_to_stiefel(params["kernel"], -2, 1.0)
    constrained: optax.GradientTransformation = jn.constrain_updates(jn.center, jn.flax_layout)
    print(orthogonal.init({"kernel": kernel}), constrained.init(params))
    tx: optax.GradientTransformationExtraArgs = jn.noise_injection(on_sphere, 0.1, seed=0)
    state: jn.NoiseState = tx.init(params)
    updates, state = tx.update(gradients, state, params)
    noisy: Tree = jn.perturb_scales(params, 0.1, jax.random.key(0))
    clean: Tree = jn.clean_parameters(state, optax.apply_updates(noisy, updates))
    return clean


def in_one_call(params: Tree, x: Array) -> Tree:
    print(jn.describe_roles(apply, params, x, heads=["head"]))
    raw, tx = jn.normalizer_free(apply, params, optax.adam(1e-3), x, heads=["head"])
    in_loss, averaged, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    nodes = [node for node in averaged.values() if isinstance(node, jn.MovingAverages)]
    print(in_loss(averaged, x), nodes, tx.applied)
    inner = optax.chain(optax.sgd(0.1), jn.zero_sum_projection(jn.flax_layout))
    wrapped: optax.GradientTransformationExtraArgs = jn.centered_inputs(
        jn.read(apply, params, x), inner
    )
    state: jn.CenteredInputsState = wrapped.init(jn.map_kernels(jn.center, jn.flax_layout, params))
    state = jn.refresh_input_means(jn.read(apply, params, x), state, decay=0.9)
    means: Tree = jn.input_means(jn.read(apply, params, x), axis_name=None)
    return {"raw": raw, "state": tx.init(raw), "means": means}


def read_once(params: Tree, x: Array) -> Tree:
    net: jn.Reading = jn.read(apply, params, x, as_inputs=["query"])
    print(jn.describe_roles(net), jn.traced_layout(net), jn.residual_factors(net))
    raw, tx = jn.normalizer_free(net, optax.adam(1e-3))
    means: Tree = jn.input_means(net, raw, x)
    return {"raw": raw, "state": tx.init(raw), "means": means}


def layouts(params: Tree, x: Array) -> list[jn.Layout]:
    rules: jn.Layout = jn.layout_from_rules([("kernel$", -2), ("bias", None)])
    traced: jn.Layout = jn.traced_layout(jn.read(apply, params, x))
    text: str = jn.describe(params, traced)
    sums: Tree = jn.map_kernels(lambda kernel, axes: kernel.sum(axes), traced, params)
    print(text, sums, jn.first_layer(jn.read(apply, params, x)))
    return [jn.flax_layout, jn.torch_layout, rules, traced, jn.exclude("^head/", layout=rules)]


def methods(params: Tree, key: Array) -> tuple[Array, dict[str, Array]]:
    raw, tx = jn.constrain(params, optax.adam(1e-3), squared_radius=2.0, centered=True)
    params, tx = jn.linearly_constrain(params, tx)
    raw, tx = jn.propagate_normalization(params, tx, scale=1.0, centered=True)
    noisy = jn.with_scale_noise(apply, 0.1, per="sample")
    output: Array = noisy(key, raw, jnp.ones((2, 3)))
    drift: dict[str, Array] = jn.constraint_drift(jn.project(raw))
    logged: dict[str, Array] = jn.metrics(raw, jax.tree.map(jnp.zeros_like, raw))
    deviations: Tree = jn.linear_stddev(jn.read(apply, params, jnp.ones((2, 3))), 0.5)
    return output.mean() + len(deviations), drift | logged


def nodes(params: Tree, kernel: Array) -> Tree:
    kinds: list[jn.Reparametrization] = [
        jn.Scaled.from_kernel(kernel, -2),
        jn.LinearlyConstrained.from_kernel(kernel, -2),
        jn.WeightNormalized.from_kernel(kernel, -2),
        jn.CenteredWeightNormalized.from_kernel(kernel, -2),
        jn.WeightStandardized.from_kernel(kernel, -2),
        jn.SpectrallyNormalized.from_kernel(kernel, -2),
    ]
    raw: Tree = jn.reparametrize(params, jn.Scaled)
    estimates = jn.spectral.power_iteration(raw, iterations=1)
    raw = jn.spectral.attach_singular_vectors(raw, estimates)
    folded = jn.fold_into_kernel(kernel, None, kernel[0], kernel[0], fan_in_axes=-2)
    bias: Array = folded.bias
    count: int = jn.parameter_count(raw)
    print(count, bias, [node.effective().shape for node in kinds])
    plain: Tree = jn.effective(raw)
    return plain


def arrays(x: Array) -> list[Array]:
    mean, stddev = jn.normprop.gaussian_moments(jax.nn.relu)
    activation = jn.normprop.standardized(jax.nn.relu, centered=False)
    depth = jn.shaping.traced_depth(jn.read(apply, {"kernel": x, "bias": x[0]}, x), factors=None)
    activation = jn.shaping.shaped(jax.nn.tanh, depth, method="dks", target=1.5)
    both: tuple[Array, Array] = jn.normprop.rectified_moments(x, x)
    moments: jn.Moments = jn.merge_moments(jn.batch_moments(x, 0), jn.batch_moments(x, 0))
    return [
        *(jn.center(x, 0), jn.project_to_sphere(x, 0), activation(x), *both, moments.mean),
        *(jn.kurtosis(x, 0), jnp.asarray(mean), jnp.asarray(stddev)),
        jnp.asarray(jn.normprop.jacobian_factor(jax.nn.relu)),
    ]


def losses(params: Tree, x: Array, key: Array) -> Array:
    output, found = jn.collect_preactivations(jn.read(apply, params, x[:4]))
    betas: Tree = jn.vcl.initial_betas(found)
    loss: Array = jn.vcl.total_variance_constancy(
        found, jn.vcl.positive_betas(betas), sample_size=2
    )
    loss = loss + jn.variance_constancy_loss(x, 1.0, groups=2)
    affine: Tree = jn.batch_norm.affine_gamma_decay_strength(
        lambda scales, biases, samples: jnp.zeros(()), params, params, params, 128, key=key
    )
    strengths: Tree = jn.batch_norm.gamma_decay_strength(
        lambda tree: jnp.zeros(()), params, 128, key=key
    )
    decay: Array = jn.batch_norm.gamma_decay(params, affine) + jn.batch_norm.gamma_decay(
        params, strengths
    )
    total: Array = loss + decay + output.mean()
    return total


def initial(params: Tree, batches: list[Array]) -> tuple[Tree, Tree]:
    params = jn.data_dependent_init(jn.read(apply, params, batches[0]))
    params = jn.orthogonal_init(jn.read(apply, params, batches[0]), gain=1.0)
    params = jn.variance_preserving_init(jn.read(apply, params, batches[0]))
    params = jn.scale_branches(params, jn.residual_factors(jn.read(apply, params, batches[0])))
    signal: dict[str, Array] = jn.propagation(jn.read(apply, params, batches[0]), loss=jnp.mean)
    text: str = jn.describe_propagation(apply, params, batches[0])
    findings: list[jn.Finding] = jn.propagation_findings(jn.read(apply, params, batches[0]))
    blamed: list[jn.Finding] = jn.rate_findings(signal, signal)
    print(signal, text, [finding.kind for finding in findings + blamed])
    population: Tree = jn.batch_norm.population_statistics(batches)
    count: Array = jn.batch_norm.independent_positions(batches[0])
    return params, population | {"count": count}


def models(x: Array, rngs: nnx.Rngs) -> tuple[nnx.Module, list[jn.nnx.BatchNorm]]:
    model = nnx.Sequential(nnx.Linear(3, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs))
    layers: list[jn.nnx.BatchNorm] = [jn.nnx.BatchNorm(2, groups=2), jn.nnx.Standardization(2)]
    others = (jn.nnx.PopulationNorm(2), jn.nnx.ScaleAndBias(2), jn.nnx.Identity())
    plain: nnx.Module = jn.nnx.replace_batch_norm(model, x)
    folded: jn.nnx.FoldedModel = jn.nnx.fold_batch_norm(model, x)
    functional: jn.nnx.Functional = jn.nnx.functionalize(plain)
    anew: Tree = jn.nnx.estimate_statistics(model, *functional[1:], x, batch_size=2)
    layout: jn.Layout = jn.nnx.layout(model)
    print(others, folded.remaining, functional.params, anew, layout)
    return folded.model, layers


def theory(x: Array) -> list[Any]:
    vcl, lcw, cwo = jn.theory.vcl, jn.theory.lcw, jn.theory.cwo
    normprop, batch_norm = jn.theory.normprop, jn.theory.batch_norm
    numbers: list[Array] = [
        vcl.sample_variance_variance(3.0, 1.0, 2),
        vcl.mixture_kurtosis(0.5, 1.0, 1.0),
        *vcl.variance_ratio_bound(3.0, 10, 0.1),
        *(lcw.activation_shift(x, 1.0), *lcw.forward_moments(x, 0.0, 1.0)),
        cwo.constrained_step(x, x, 0.1),
        *cwo.step_coefficients(x, x, 0.1),
        cwo.standardization_gradient(x, x),
        *(normprop.coherence(x), normprop.canonical_error(x), normprop.canonical_error_bound(x)),
        batch_norm.max_learning_rate("bn"),
        batch_norm.generalization_error("bn", 0.5, 0.1),
        *batch_norm.integrals(1.0, 0.5),
        batch_norm.linear_gamma_decay(32),
    ]
    start: jn.theory.batch_norm.OrderParameters = batch_norm.fixed_point("bn")
    flow = batch_norm.order_parameter_flow(start, 0.1)
    solved = batch_norm.solve_order_parameters(start, x, 0.1)
    scalars: float = vcl.separation_threshold()
    gains = (*lcw.variance_gain(jax.nn.relu), lcw.gradient_gain(jax.nn.relu))
    maps = jn.theory.q_map, jn.theory.c_map, jn.theory.c_slope
    print([each(jax.nn.tanh, 0.5) for each in maps])
    return [numbers, flow, solved, scalars, gains]
