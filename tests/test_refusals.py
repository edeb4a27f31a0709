"""Table of wrong calls: each raises an error of one line that names argument, path and value."""

from collections.abc import Callable
from functools import partial
from operator import matmul
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import jaxnorm as jn
from jaxnorm.nnx import BatchNorm, PopulationNorm, ScaleAndBias, Standardization
from jaxnorm.theory import batch_norm, c_map, c_slope, cwo, lcw, q_map, vcl
from tests.draws import float32, ones


class Refusal(NamedTuple):
    """Wrong call.

    Attributes:
        error: the exact type of the exception.
        named: parts of its message, separated by ``|``.
        call: the call.
    """

    error: type[Exception]
    named: str
    call: Callable[[], object]


def value(named: str, function: Any, *args: Any, **kwargs: Any) -> Refusal:
    return Refusal(ValueError, named, partial(function, *args, **kwargs))


def kind(named: str, function: Any, *args: Any, **kwargs: Any) -> Refusal:
    return Refusal(TypeError, named, partial(function, *args, **kwargs))


def asked(function: Any, apply: Any, params: Any, *inputs: Any, **options: Any) -> object:
    """Calls a function of a reading."""
    return function(jn.read(apply, params, *inputs), **options)


def number(argument: str, function: Any, x: Any, path: str = "") -> Refusal:
    """Refusal of one number: a TypeError if it is not real, else a ValueError."""
    if isinstance(x, (str, bool, complex)):
        return kind(f"{argument} is {x!r}|{path}", function, x)
    return value(f"{argument} is {np.asarray(x).item()}|{path}", function, x)


SGD, KEY, KEYS = optax.sgd(0.1), jax.random.key(0), jax.random.split(jax.random.key(0), 6)
NAN, INF = float("nan"), float("inf")
KERNEL, THIN, STACK = ones(4, 3), ones(1, 5), ones(3, 4, 4)
LAYER = {"kernel": KERNEL, "bias": ones(3)}
PARAMS = {"conv": {"kernel": ones(3, 3, 2, 4)}, "dense": LAYER}
ZEROS = PARAMS | {"dense": {"kernel": float32(np.zeros((4, 3)))}}
SILENT = {"a": {"kernel": float32(np.eye(4))}, "dense": {"kernel": float32(np.zeros((4, 3)))}}
EQUAL = SILENT | {"dense": {"kernel": float32(np.arange(3.0) * np.ones((4, 1)))}}
AXES = {"conv": {"kernel": (-4, -3, -2)}, "dense": {"kernel": (-2,), "bias": None}}
NODE, RAW = jn.Scaled.from_kernel(KERNEL, -2), jn.reparametrize(PARAMS, jn.Scaled)
UNITS = ones(3)
NOISE_STATE = jn.noise_injection(SGD, 1.0, seed=0).init({"kernel": NODE})
NODE_PARAMS, SCALES = {"kernel": NODE}, {"a": ones(2), "b": ones(3)}
SPECTRAL = {"kernel": jn.SpectrallyNormalized.from_kernel(KERNEL, -2)}


def init(transform: Any, params: Any, **options: Any) -> object:
    return transform(**options).init(params)


def update_without_params(params: Any, tx: Any) -> object:
    return tx.update(params, tx.init(params))


def inject_noise(stddev: Any) -> object:
    return jn.noise_injection(SGD, stddev, seed=0).init(RAW)


def project_radius(squared_radius: Any) -> object:
    return jn.project(PARAMS, squared_radius=squared_radius)


def start_on_sphere(squared_radius: Any) -> object:
    return jn.sphere_projection(squared_radius=squared_radius).init(PARAMS)


def project_by(axes: Any) -> object:
    return jn.project({"b": ones(3), "w": KERNEL}, layout=lambda params: axes)


def layer_with(name: str, layer: Any, x: Any) -> object:
    return layer(3, **{name: x})


def decay_strength(**settings: Any) -> object:
    return jn.batch_norm.affine_gamma_decay_strength(
        lambda scales, biases, sample: jn.batch_norm.gamma_decay(scales, 1.0),
        *(SCALES, SCALES, ones(4)),
        **{"batch_size": 10.0, "key": KEY, **settings},
    )


def constancy(**settings: Any) -> object:
    options = {"beta": ones(2, 3), **settings}
    return jn.variance_constancy_loss(ones(6, 2, 3), **options)


def normalize(features: int = 3, mask: Any = None, **options: Any) -> object:
    return BatchNorm(features, **options)(ones(6, 3), mask=mask)


def update_noise(stddev: Any) -> object:
    tx = jn.noise_injection(SGD, stddev, seed=0)
    return tx.update(NODE_PARAMS, tx.init(NODE_PARAMS), NODE_PARAMS)


CENTERED = partial(init, jn.centered_gradient)
SPHERE, STIEFEL = (partial(init, tx) for tx in (jn.sphere_projection, jn.stiefel_projection))
FIXED = partial(init, jn.fixed_step, relative=0.1)
CONSTRAIN = partial(jn.constrain, optimizer=SGD)
LINEARLY, PROPAGATE = (
    partial(method, optimizer=SGD) for method in (jn.linearly_constrain, jn.propagate_normalization)
)
#: Functions of parameters and a radius that is known before any update.
WITH_RADIUS = (jn.project, jn.constraint_drift, STIEFEL, CONSTRAIN)
OF_PARAMS = (
    *(*WITH_RADIUS, jn.metrics, SPHERE, CENTERED, FIXED, LINEARLY, PROPAGATE),
    partial(jn.reparametrize, into=jn.Scaled),
    partial(jn.map_kernels, jn.center, jn.flax_layout),
)
CENTERING = (jn.project, SPHERE, CENTERED, CONSTRAIN, LINEARLY)
CENTERED_KINDS = (jn.LinearlyConstrained, jn.CenteredWeightNormalized, jn.WeightStandardized)
#: Functions that keep each unit's norm, or make steps relative to it.
KEEP_NORMS = (
    *(PROPAGATE, FIXED),
    partial(SPHERE, squared_radius=None),
    partial(SPHERE, squared_radius=None, centered=False),
)

#: Numbers, of every scalar type, that are neither squared radii nor standard deviations.
NUMBERS = (
    *(NAN, INF, -1.0, np.float32(-1), np.float64(NAN), np.float16(INF)),
    *(jnp.float32(-1), jnp.bfloat16(NAN), "2", True, 1j),
)
SEEDS = (-1, 2**32, 1.7, np.int64(2**40), np.float32(1), np.int64(-1), "1", True, None)
#: Axes that a matrix does not have.
AXES = {"(2,)": 2, "(-3,)": -3, "(0, -2)": (0, -2), "()": ()}
RANGE = "2 axes|-2 to -1|0 to 1"
UNKNOWN = "constrains no|dense/bias|dense/weight|torch_layout|traced_layout"
EFFECTIVE = "Scaled|jaxnorm.effective(params)"


def per_channel(x: Any) -> Any:
    return jnp.tanh(x * UNITS)


def multiply(params: Any, x: Any) -> Any:
    return x @ params["kernel"]


def attend(params: Any, x: Any) -> Any:
    x = x @ params["kernel"]
    return x @ x.T


def scanned(params: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, kernel: (h @ kernel, None), x, params["kernel"])[0]


def solve(params: Any, x: Any) -> Any:
    return jax.lax.linalg.triangular_solve(params["kernel"][0], x, left_side=True)


def multiply_twice(params: Any, x: Any) -> Any:
    return x @ params["a/b"]["kernel"] + x @ params["a"]["b"]["kernel"]


def noisy(apply: Any, stddev: Any, params: Any, key: Any = KEY, **options: Any) -> object:
    model = jn.with_scale_noise(apply, stddev, layout=ROWS_OF_KERNELS, **options)
    return model(key, params, ones(5, 4))


def layout_of_stack(axis: int) -> object:
    """Layout of layers that are stacked elsewhere than in front."""
    make = nnx.vmap(lambda key: nnx.Linear(4, 3, use_bias=False, rngs=nnx.Rngs(key)), out_axes=axis)
    return jn.nnx.layout(make(jax.random.split(KEY, 5)))


ROWS_OF_KERNELS = jn.layout_from_rules([("", -2)])
#: By its name a stack's units are sums over layers.
ALONG_LAYERS = jn.layout_from_rules([("kernel", (-3, -2))])
DENSE, STACKED, ROW = {"kernel": KERNEL}, {"kernel": STACK}, ones(2, 4)
SAME_PATH = {"a/b": DENSE, "a": {"b": DENSE}}


TABLE = (
    # Nothing to constrain, and units of a single weight.
    *(value(UNKNOWN, f, {"dense": {"weight": KERNEL, "bias": ones(3)}}) for f in OF_PARAMS),
    *(value("constrains no|(there are none)", f, {}) for f in OF_PARAMS),
    *(value("'thin/kernel'|(1, 5)|exclude", f, {"thin": {"kernel": THIN}}) for f in CENTERING),
    *(value("(1, 5)|exclude", node.from_kernel, THIN, -2) for node in CENTERED_KINDS),
    value("(1, 5)|exclude", jn.project_to_sphere, THIN, 0),
    value("(5, 1)|exclude", cwo.constrained_step, THIN.T, THIN.T, 0.1),
    # Numbers out of their range.
    *(
        number("squared_radius", function, x, "'conv/kernel'")
        for function in (project_radius, start_on_sphere)
        for x in (0, *NUMBERS)
    ),
    *(number("stddev", inject_noise, x) for x in NUMBERS),
    *(number("stddev", partial(lcw.variance_gain, jax.nn.relu), x) for x in (0.0, NAN)),
    *(value(f"seed is {x!r}|4294967295", jn.noise_injection, SGD, 1.0, seed=x) for x in SEEDS),
    *(number("relative", jn.fixed_step, x) for x in (0.0, *NUMBERS)),
    value("per is 'layer'|'unit'|'kernel'", jn.fixed_step, 0.1, per="layer"),
    *(number("max_norm", jn.clip_by_layer_norm, x) for x in (0.0, np.float32(-1), NAN)),
    number("max_norm", jn.clip_by_layer_norm, jnp.array(-1.0)),
    *(
        number("momentum", partial(layer_with, "momentum", BatchNorm), x)
        for x in (2.0, -0.1, NAN, "2")
    ),
    *(
        number("epsilon", partial(layer_with, "epsilon", layer), x)
        for layer in (BatchNorm, PopulationNorm, Standardization)
        for x in (-1.0, INF)
    ),
    *(number("epsilon", partial(vcl.variance_ratio_bound, 3.0, 5), x) for x in (0.0, 1.5)),
    value("strengths is nan", jn.batch_norm.gamma_decay, LAYER, np.float32(NAN)),
    kind(
        "strengths is '1'|'bias'", jn.batch_norm.gamma_decay, LAYER, {"kernel": None, "bias": "1"}
    ),
    value("strength|(3,)|(2,)", jn.batch_norm.gamma_decay, SCALES, {"a": ones(3), "b": 1.0}),
    value("strengths|b", jn.batch_norm.gamma_decay, SCALES, {"a": 1.0}),
    value("batch_size is 0.0|'b'", decay_strength, batch_size={"a": 1.0, "b": 0.0}),
    value("excess_kurtosis is nan", decay_strength, excess_kurtosis=NAN),
    value("means is inf|'b'", decay_strength, means={"a": 1.0, "b": INF}),
    value("stddevs is -1.0", decay_strength, stddevs=-1.0),
    value("sample_size=4|6 rows", constancy, sample_size=4),
    value("sample_size=0", constancy, sample_size=0),
    value("sample_size=1|one value", constancy, sample_size=1),
    value("3 groups|6 rows", constancy, groups=3),
    value("beta|(3,)|(2, 3)", constancy, beta=ones(3)),
    *(
        value(f"stddev|'kernel/scale'|{shape}|(3,)", update_noise, jnp.full(shape, 0.1))
        for shape in ((2,), (5,), (1, 3))
    ),
    *(
        value(f"stddev is {x}|'dense'", jn.with_scale_noise, jnp.matmul, {"dense": x})
        for x in (-0.1, NAN, INF)
    ),
    value("per|'batch'", jn.with_scale_noise, jnp.matmul, 0.1, per="batch"),
    value(
        "'kernel'|(2, 3)|rows|layout",
        *(asked, jn.propagation, lambda p, x: x.reshape(2, 4) @ p["kernel"], LAYER, ones(2, 4)),
    ),
    value("n is 1", vcl.variance_ratio_bound, 3.0, 1, 0.5),
    *(
        value("'gn'|bn, sgd, wn", function, "gn")
        for function in (batch_norm.fixed_point, batch_norm.max_learning_rate)
    ),
    value(
        "'bn_linear'|sgd_linear, sgd_relu, wn_linear",
        *(batch_norm.generalization_error, "bn_linear", 1.0, 0.25),
    ),
    value("-2.0 in an array", jn.project_to_sphere, KERNEL, 0, jnp.array([1.0, -2.0, 3])),
    # Statistics and normalizations.
    value("no minibatch", jn.batch_norm.population_statistics, []),
    *(value(f"groups={x}", jn.batch_moments, ones(6, 2), 0, groups=x) for x in (4, 0)),
    value("axis_name='data'", jn.batch_moments, KERNEL, 0, groups=2, axis_name="data"),
    kind("float32", jn.batch_moments, KERNEL, 0, where=KERNEL),
    *(value(f"num_features={x}", normalize, x) for x in (1, 4)),
    value("axis 1", BatchNorm(3, axis=1), ones(2, 4, 5)),
    value("groups=4", normalize, groups=4),
    value("axis_name", normalize, groups=2, axis_name="data"),
    value("bool[6]|[6,3]", normalize, mask=jnp.ones(6, bool)),
    kind("mask", normalize, mask=ones(6, 1)),
    value("use_runing", nnx.view, BatchNorm(3), use_runing_average=True),
    value("refesh", nnx.view, PopulationNorm(3), refesh=True),
    *(
        value(f"num_features={features}.", ScaleAndBias(features), ones(*shape))
        for features, shape in ((8, (2, 1)), (1, (2, 8)), (3, (2, 4)), (3, ()))
    ),
    value("stddev is -1.0", ScaleAndBias, 3, stddev=-1.0),
    value("0.5|rngs", ScaleAndBias, 3, stddev=0.5),
    # Settings by path.
    *(
        value("squared_radius|-2.0|'dense/kernel'", f, PARAMS, squared_radius=radii)
        for f in (*WITH_RADIUS, SPHERE)
        for radii in ({"conv": 2.0, "dense": -2.0},)
    ),
    *(
        value("squared_radius|conv|dense", f, PARAMS, squared_radius={"conv": 2.0})
        for f in (*WITH_RADIUS, SPHERE)
    ),
    *(
        kind("squared_radius is None|'conv/kernel'", f, PARAMS, squared_radius=None)
        for f in WITH_RADIUS
    ),
    *(
        value(f"squared_radius|{shape}|(3,)", jn.project, LAYER, squared_radius=ones(*shape))
        for shape in ((2,), (3, 3), (1, 1))
    ),
    *(
        kind(f"centered is {x!r}|'conv/kernel'", CONSTRAIN, PARAMS, centered=x)
        for x in (None, "no", 1)
    ),
    kind("centered is 1|'dense/kernel'", CONSTRAIN, PARAMS, centered={"conv": True, "dense": 1}),
    value("stddev is None", inject_noise, {"conv": None, "dense": None}),
    # Parameters and updates.
    *(value("'dense/kernel'|exclude", f, ZEROS) for f in KEEP_NORMS),
    *(
        value("no params|update(", update_without_params, params, tx)
        for params, tx in (
            (PARAMS, jn.sphere_projection()),
            (PARAMS, jn.stiefel_projection()),
            (PARAMS, jn.fixed_step(0.1)),
            jn.linearly_constrain(PARAMS, SGD),
            (RAW, jn.noise_injection(SGD, 1.0, seed=0)),
        )
    ),
    *(
        value(f"{method.__name__}|dense/kernel|effective(params)", method, RAW, SGD)
        for method in (jn.constrain, jn.linearly_constrain, jn.propagate_normalization)
    ),
    *(
        value("'dense/kernel'|all zero|exclude", method, params, SGD)
        for method in (jn.constrain, jn.propagate_normalization)
        for params in (SILENT, {"dense": {"kernel": jnp.zeros((3, 2))}})
    ),
    value("'dense/kernel'|equal within each unit", jn.constrain, EQUAL, SGD),
    *(
        kind(named, method, *arguments)
        for method in (jn.constrain, jn.linearly_constrain, jn.propagate_normalization)
        for named, arguments in (
            ("the function adam|call it: adam(1e-3)", (PARAMS, optax.adam)),
            ("a dict|parameters first", (PARAMS, PARAMS)),
            ("a float|optax.adam(1e-3)", (PARAMS, 0.1)),
        )
    ),
    *(
        kind(named, function, *arguments)
        for named, optimizer in (
            ("the function adam|call it: adam(1e-3)", optax.adam),
            ("a float", 0.1),
        )
        for function, arguments in (
            (partial(jn.noise_injection, seed=0), (optimizer, 1.0)),
            (jn.centered_inputs, (jn.read(multiply, DENSE, ones(2, 4)), optimizer)),
            (jn.normalizer_free, (multiply, DENSE, optimizer, ones(2, 4))),
        )
    ),
    *(
        kind(
            "apply is of type 'dict'|apply(params, *inputs)", function, DENSE, multiply, *arguments
        )
        for function, arguments in (
            (jn.read, (ones(2, 4),)),
            (jn.describe_roles, (ones(2, 4),)),
            (jn.describe_propagation, (ones(2, 4),)),
            (jn.normalizer_free, (SGD, ones(2, 4))),
        )
    ),
    value("'kernel'|(0, 3)|minibatch is empty", asked, jn.propagation, multiply, DENSE, ones(0, 4)),
    *(
        kind("a dict|flax_layout|lambda params: axes", partial(function, layout=AXES), *arguments)
        for function, arguments in (
            (jn.constrain, (PARAMS, SGD)),
            (jn.project, (PARAMS,)),
            (jn.collect_preactivations, (jn.read(multiply, {"kernel": KERNEL}, ones(2, 4)),)),
        )
    ),
    kind("a dict|order of the documentation", jn.map_kernels, jn.center, PARAMS, jn.flax_layout),
    *(
        kind(dtype, function, jnp.ones((3, 2), dtype), 0)
        for function in (jn.center, jn.project_to_sphere)
        for dtype in ("int32", "bool", "complex64")
    ),
    *(
        kind("int32", function, {"kernel": jnp.ones((3, 2), int)})
        for function in (jn.project, jn.constraint_drift, jn.metrics)
    ),
    *(
        kind("'kernel'|complex64|imaginary part|exclude", f, {"kernel": KERNEL.astype("complex64")})
        for f in (*WITH_RADIUS, jn.metrics, SPHERE, CENTERED, FIXED)
    ),
    kind("int32", jn.centered_gradient().update, {"kernel": jnp.ones((3, 2), int)}, None),
    value("updates|conv|dense", jn.metrics, PARAMS, {"dense": LAYER}),
    kind("'str'", jn.reparametrize, PARAMS, "Scaled"),
    value("kernel/scale|other", jn.clean_parameters, NOISE_STATE, {"other": ones(3)}),
    value("opt_state", jn.clean_parameters, SGD.init(PARAMS), PARAMS),
    value(
        "dense/kernel|reparametrize|where=",
        *(jn.noise_injection(SGD, 1.0, seed=0).init, {"dense": LAYER}),
    ),
    value("BatchNorm|layout_from_rules", jn.nnx.layout, nnx.BatchNorm(3, rngs=nnx.Rngs(0))),
    *(
        Refusal(
            KeyError,
            "'kernel'|other/kernel|power_iteration(params)",
            partial(function, SPECTRAL, {"other/kernel": ones(4)}),
        )
        for function in (jn.spectral.power_iteration, jn.spectral.attach_singular_vectors)
    ),
    # Arguments in another place, or of another kind.
    *(
        kind(f"first argument of {name} is of type {of}|jn.read(apply, params", *call)
        for name in ("traced_layout", "residual_factors", "input_means", "centered_inputs")
        for of, call in (
            ("'function'", (getattr(jn, name), multiply, DENSE, ROW)),
            ("'dict'", (getattr(jn, name), PARAMS, PARAMS, ROW)),
        )
    ),
    kind("as_inputs is the string '^q$'|['^q$']", jn.read, multiply, DENSE, ROW, as_inputs="^q$"),
    kind("heads is the string 'a'", jn.normalizer_free, multiply, DENSE, SGD, ROW, heads="a"),
    kind("function sgd|sgd(1e-3)", jn.normalizer_free, multiply, DENSE, optax.sgd, ROW),
    kind("function sgd|sgd(1e-3)", jn.centered_inputs, jn.read(multiply, DENSE, ROW), optax.sgd),
    kind("function sgd|sgd(1e-3)", jn.noise_injection, optax.sgd, 0.1, seed=0),
    kind("the key is 0|jax.random.key", jn.with_scale_noise(multiply, 0.1), 0, DENSE, ROW),
    kind("dict|list of pairs", jn.layout_from_rules, {"kernel": 0}),
    kind("layout=", jn.exclude, "bias", jn.torch_layout),
    kind("into is of type 'int'|Scaled", jn.reparametrize, PARAMS, 3),
    value("depth is 0|traced_depth", jn.shaping.shaped, jnp.tanh, 0),
    value("gain is 0.0", asked, jn.orthogonal_init, multiply, DENSE, ROW, gain=0.0),
    value("stddev is -1.0", jn.linear_stddev, jn.read(multiply, DENSE, ROW), -1.0),
    value(
        "probes is 0",
        partial(
            jn.batch_norm.gamma_decay_strength, jnp.sum, ROW, 10, key=jax.random.key(0), probes=0
        ),
    ),
    # Axes, rules and layouts.
    *(
        value(f"{RANGE}|{shown}", function, KERNEL, axes)
        for function in (jn.center, jn.project_to_sphere)
        for shown, axes in AXES.items()
    ),
    *(
        value(f"'kernel'|(4, 3)|{RANGE}|{shown}", jn.layout_from_rules([("kernel", axes)]), LAYER)
        for shown, axes in AXES.items()
    ),
    value(
        "'attention'|conv/kernel, dense/bias, dense/kernel",
        *(jn.layout_from_rules([("kernel", -1), ("attention", None)]), PARAMS),
    ),
    value("kernel|(-3,)", jn.fold_into_kernel, KERNEL, UNITS, UNITS, UNITS, fan_in_axes=-3),
    value("'tail'|dense/kernel", jn.exclude("tail"), PARAMS),
    value("structure|conv|dense|w", jn.exclude("bias", layout=lambda _: {"w": 0}), PARAMS),
    value("(3, 4, 4)|stacked=1", jn.project_to_stiefel, STACK, -2),
    value(
        "'layers/kernel'|(3, 4, 4)|layout_from_rules|per='unit'",
        partial(FIXED, per="kernel", layout=jn.layout_from_rules([("kernel$", -2)])),
        {"layers": {"kernel": STACK}},
    ),
    value(
        "'layers/kernel'|(3, 4, 4)|stacked=1",
        *(STIEFEL, {"layers": {"kernel": STACK}}),
        layout=jn.layout_from_rules([("kernel", -2)]),
    ),
    value("SpectrallyNormalized|(3, 4, 4)", jn.SpectrallyNormalized.from_kernel, STACK, -2),
    value("structure|w", project_by, {"w": (-2,)}),
    kind("'w'|{'x': (-3,)}", project_by, {"b": None, "w": {"x": (-3,)}}),
    value("'w'|'x'", project_by, {"b": None, "x": (-2,)}),
    value("'w'|(4, 3)|2 axes|(-3,)", project_by, {"b": None, "w": (-3,)}),
    kind("'w'|-2", project_by, {"b": None, "w": -2}),
    kind("'w'|[-2]", project_by, {"b": None, "w": [-2]}),
    kind("'w'|(-2)", project_by, {"b": None, "w": (np.int64(-2),)}),
    # Maps of activations, and what cannot be shaped.
    value("c is 1.5|-1 to 1", c_map, jnp.tanh, 1.5),
    value("per channel|shape", q_map, per_channel),
    value("jumps|infinite|leaky_relu", c_slope, jnp.sign),
    value("jumps|infinite|leaky_relu", c_slope, lambda x: x * jnp.sign(x - 1)),
    value("'bn'|'tat' or 'dks'", jn.shaping.shaped, jnp.tanh, 5, "bn"),
    value("0.9|0.7359|smaller", jn.shaping.shaped, jax.nn.relu, 5),
    value("jumps|leaky_relu", jn.shaping.shaped, jax.nn.selu, 5),
    value("no input scale|linear|leaky_relu", jn.shaping.shaped, jnp.positive, 5),
    value(
        "attention|number of activations", asked, jn.shaping.traced_depth, attend, LAYER, ones(2, 4)
    ),
    value("'kernel'|reparametrize", asked, jn.orthogonal_init, multiply, NODE_PARAMS, ones(2, 4)),
    # Programs, minibatches and keys that do not fit, and models of other libraries.
    value(
        "none of its parameters|bias, kernel",
        *(asked, jn.traced_layout, lambda params, x: x + params["bias"].sum(), LAYER, UNITS),
    ),
    value(
        "'kernel'|triangular_solve|layout_from_rules|as_inputs=",
        *(asked, jn.traced_layout, solve, STACKED, ones(4, 2)),
    ),
    value("'a/b/kernel'", asked, jn.collect_preactivations, multiply_twice, SAME_PATH, KERNEL.T),
    value(
        "kernel|with_scale_noise",
        *(jn.linear_stddev, jn.read(scanned, STACKED, KERNEL.T), 1.0),
        layout=ROWS_OF_KERNELS,
    ),
    *(
        value("stddev|'kernel'|(2,)", noisy, apply, jnp.full(2, 0.1), params)
        for apply, params in ((multiply, DENSE), (scanned, STACKED))
    ),
    *(
        value(f"keys of shape (6,)|{named}", noisy, multiply, 0.1, DENSE, KEYS, per=per)
        for per, named in (("sample", "5 rows"), ("step", "per='step'"))
    ),
    value(
        "'kernel'|(-3, -2)|traced_layout",
        *(asked, jn.variance_preserving_init, scanned),
        *(jn.reparametrize(STACKED, jn.Scaled, ALONG_LAYERS), KERNEL.T),
        layout=ALONG_LAYERS,
    ),
    *(value("'kernel'|traced_layout", layout_of_stack, axis) for axis in (1, 2)),
    *(
        kind(f"{type(model).__name__}|NNX|traced_layout", function, model, *inputs)
        for model in (linen.Dense(4), eqx.nn.Linear(3, 4, key=KEY))
        for function, inputs in (
            (jn.nnx.functionalize, ()),
            (jn.nnx.layout, ()),
            (jn.nnx.replace_batch_norm, (KERNEL,)),
            (jn.nnx.fold_batch_norm, (KERNEL,)),
        )
    ),
    # Nodes used as arrays.
    kind(EFFECTIVE, matmul, KERNEL.T, NODE),
    kind(EFFECTIVE, matmul, NODE, KERNEL.T),
    kind(EFFECTIVE, KERNEL.__add__, NODE),
    kind(EFFECTIVE, jax.jit(lambda kernel: KERNEL.T @ kernel), NODE),
    *(kind(EFFECTIVE, function, NODE) for function in (np.asarray, jnp.asarray)),
)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("refusal", TABLE, ids=lambda refusal: refusal.named)
def test_error_names_what_is_wrong_in_one_line(refusal: Refusal) -> None:
    with pytest.raises(refusal.error) as raised:
        refusal.call()
    assert type(raised.value) is refusal.error
    message = str(raised.value)
    assert [part for part in refusal.named.split("|") if part not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("function", KEEP_NORMS)
def test_one_zero_unit_among_others_is_accepted(function: Callable[..., object]) -> None:
    function(PARAMS | {"dense": {"kernel": KERNEL.at[:, 0].set(0)}})
