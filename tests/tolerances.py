"""Tolerances of the tests of weights, each with its reason.

Units have at most a few dozen weights and values are of order one, so a float32 result of a few
operations has an error of some ten units of 2^-24 = 6e-8.
"""

#: Keyword arguments of ``numpy.testing.assert_allclose``.
Tolerance = dict[str, float]

#: Two float32 computations of a few steps, or one and its float64 oracle: about 30 roundings.
FLOAT32: Tolerance = {"rtol": 2e-6, "atol": 2e-6}

#: Two such computations after some ten steps, in which rounding errors add up and a projection
#: divides by a norm that may be smaller than one.
FLOAT32_STEPS: Tolerance = {"rtol": 2e-5, "atol": 2e-5}

#: float64 against float64: 2^-53 = 1e-16 times the operations, and times 1e3 for units that pass
#: near the centre of their sphere, where the projection magnifies errors.
FLOAT64: Tolerance = {"rtol": 1e-11, "atol": 1e-11}

#: Values stored in 8 (bfloat16) or 11 (float16) significant bits and computed wider: a few
#: roundings of 2^-9 at storage, on values up to 4.
HALF: Tolerance = {"rtol": 2e-2, "atol": 2e-2}

#: The documented drift from the constraint after thousands of float32 steps.
DRIFT = 1e-5

#: Relative error of a squared norm whose weights were rounded to bfloat16: twice 2^-8.
BFLOAT16_DRIFT = 2.0**-7

#: The least difference between methods that are documented as different, on values of order one: a
#: thousand times FLOAT32.
DIFFERENT = 2e-3
