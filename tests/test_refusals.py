"""What every function of kernels refuses alike: nothing to do, single weights, and no radius."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    WeightStandardized,
    centered_gradient,
    constrain,
    constraint_drift,
    linearly_constrain,
    metrics,
    noise_injection,
    project,
    project_to_sphere,
    propagate_normalization,
    reparametrize,
    sphere_init,
    sphere_projection,
    stiefel_projection,
)
from jaxnorm.theory import cwo

SGD = optax.sgd(0.1)
#: Functions of a tree of parameters.
OF_TREES = {
    "project": project,
    "constraint_drift": constraint_drift,
    "metrics": metrics,
    "centered_gradient": lambda params: centered_gradient().init(params),
    "sphere_projection": lambda params: sphere_projection().init(params),
    "stiefel_projection": lambda params: stiefel_projection().init(params),
    "reparametrize": lambda params: reparametrize(params, Scaled),
    "constrain": lambda params: constrain(params, SGD),
    "linearly_constrain": lambda params: linearly_constrain(params, SGD),
    "propagate_normalization": lambda params: propagate_normalization(params, SGD),
}


@pytest.mark.parametrize("name", OF_TREES)
def test_what_would_do_nothing_raises_with_the_paths(name: str) -> None:
    params = {"dense": {"weight": jnp.ones((3, 2)), "bias": jnp.ones(2)}}
    with pytest.raises(
        ValueError, match=r"constrains no.*: dense/bias, dense/weight.*torch_layout"
    ):
        OF_TREES[name](params)
    with pytest.raises(ValueError, match=r"constrains no parameter.*\(there are none\)"):
        OF_TREES[name]({})


CENTERING = (LinearlyConstrained, CenteredWeightNormalized, WeightStandardized)
#: What centers: of trees, whose errors name the leaf, and of one kernel.
OF_THE_LEAF = ("project", "centered_gradient", "sphere_projection", "constrain")
OF_ONE_KERNEL = {
    "project_to_sphere": lambda kernel: project_to_sphere(kernel, 0),
    "sphere_init": lambda kernel: sphere_init()(jax.random.key(0), kernel.shape),
    "constrained_step": lambda kernel: cwo.constrained_step(kernel.T, kernel.T, 0.1),
    **{kind.__name__: lambda k, kind=kind: kind.from_kernel(k, -2) for kind in CENTERING},
}


@pytest.mark.parametrize("name", [*OF_THE_LEAF, "linearly_constrain", *OF_ONE_KERNEL])
def test_single_weights_have_no_zero_sum(name: str) -> None:
    """Their centered gradient would be zero: they would never train."""
    kernel = jnp.ones((1, 5))
    named = name in OF_TREES
    with pytest.raises(ValueError, match=r"one weight each.*[Ll]eave it out") as error:
        OF_TREES[name]({"thin": {"kernel": kernel}}) if named else OF_ONE_KERNEL[name](kernel)
    assert ("'thin/kernel'" in str(error.value)) == named
    assert str(kernel.T.shape if name == "constrained_step" else kernel.shape) in str(error.value)


def test_uncentered_a_single_weight_is_a_sign() -> None:
    signs = sphere_init(4.0, centered=False)(jax.random.key(0), (1, 64))
    np.testing.assert_allclose(jnp.abs(signs), 2.0, rtol=1e-6)
    assert signs.min() < 0 < signs.max()


#: What takes a radius.
OF_RADII = {
    "project": lambda params, c: project(params, squared_radius=c),
    "constraint_drift": lambda params, c: constraint_drift(params, squared_radius=c),
    "metrics": lambda params, c: metrics(params, squared_radius=c),
    "sphere_projection": lambda params, c: sphere_projection(squared_radius=c).init(params),
    "stiefel_projection": lambda params, c: stiefel_projection(squared_radius=c).init(params),
    "constrain": lambda params, c: constrain(params, SGD, squared_radius=c),
}


def two_layers() -> Any:
    return {"conv": {"kernel": jnp.ones((3, 3, 2, 4))}, "dense": {"kernel": jnp.ones((4, 3))}}


@pytest.mark.parametrize("name", OF_RADII)
def test_a_radius_is_positive_and_there_for_every_kernel(name: str) -> None:
    """`tests/wrong` has numbers of other types."""
    message = r"squared_radius is -2.0 for the parameter 'dense/kernel'.*positive number"
    with pytest.raises(ValueError, match=message):
        OF_RADII[name](two_layers(), {"conv": 2.0, "dense": -2.0})
    message = r"squared_radius .*no entry for the parameters dense/kernel.* conv"
    with pytest.raises(ValueError, match=message):
        OF_RADII[name](two_layers(), {"conv": 2.0})


def test_a_radius_of_an_initializer_is_positive() -> None:
    with pytest.raises(ValueError, match=r"0\.0.*positive"):
        sphere_init(0.0)


@pytest.mark.parametrize("name", ["project", "constraint_drift", "metrics", "constrain"])
def test_the_norm_before_an_update_is_known_to_an_update_alone(name: str) -> None:
    with pytest.raises(ValueError, match=r"squared_radius is None.*'conv/kernel'; wanted"):
        OF_RADII[name](two_layers(), None)
    OF_RADII["sphere_projection"](two_layers(), None)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: propagate_normalization(p, SGD),
        lambda p: sphere_projection(squared_radius=None).init(p),
        lambda p: sphere_projection(squared_radius=None, centered=False).init(p),
    ],
)
def test_a_kernel_of_zeros_that_would_stay_so_is_an_error(call: Any) -> None:
    """As of a last layer that begins at zero; one unit of zeros among others may be wanted."""
    params = two_layers()
    with pytest.raises(ValueError, match=r"'dense/kernel' are all zero.*out of the layout"):
        call(params | {"dense": {"kernel": jnp.zeros((4, 3))}})
    call(params | {"dense": {"kernel": jnp.ones((4, 3)).at[:, 0].set(0)}})


@pytest.mark.parametrize("centered", [None, "no", {"conv": True, "dense": 1}])
def test_centering_that_is_no_bool_is_refused_with_the_parameter(centered: Any) -> None:
    with pytest.raises(TypeError, match=r"centered is .* for the parameter '.*/kernel'.* a bool"):
        constrain(two_layers(), SGD, centered=centered)


#: What edits the parameters and not the gradients alone.
OF_PARAMETERS = {
    "sphere_projection": lambda params: (params, sphere_projection()),
    "stiefel_projection": lambda params: (params, stiefel_projection()),
    "linearly_constrain": lambda params: linearly_constrain(params, SGD),
    "noise_injection": lambda params: (
        reparametrize(params, Scaled),
        noise_injection(SGD, 1.0, seed=0),
    ),
}


@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_update_needs_the_parameters(name: str) -> None:
    params, tx = OF_PARAMETERS[name](two_layers())
    with pytest.raises(ValueError, match=r"got no params; call update"):
        tx.update(params, tx.init(params))


PARAMS = {"a": {"kernel": jnp.ones((4, 3))}, "b": {"kernel": jnp.eye(4, 3)}}


def test_under_a_mask_settings_may_be_for_what_is_hidden() -> None:
    masked = {"a": PARAMS["a"], "b": optax.MaskedNode()}
    projected = project(masked, squared_radius={"a": 1.0, "b": 2.0})
    assert isinstance(projected["b"], optax.MaskedNode)


def test_noise_of_none_everywhere_raises() -> None:
    raw = reparametrize(PARAMS, Scaled)
    tx = noise_injection(optax.sgd(0.1), {"a": None, "b": None}, seed=0)
    with pytest.raises(ValueError, match="stddev"):
        tx.init(raw)


def test_into_must_be_callable() -> None:
    with pytest.raises(TypeError, match="Scaled"):
        reparametrize(PARAMS, "Scaled")  # type: ignore[arg-type]
