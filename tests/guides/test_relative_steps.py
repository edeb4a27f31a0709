"""Steps of the guide that are relative to the size of kernels, written out in NumPy."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.programs import ROOT


@pytest.mark.usefixtures("standard_promotion")
def test_the_first_relative_step_is_in_proportion_to_the_kernel() -> None:
    page = (ROOT / "docs" / "guides" / "compose.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (code,) = (block for block in blocks if "def relative_adamw" in block)
    defined: dict[str, Any] = {}
    exec(code, defined)
    is_kernel = lambda params: {name: name == "kernel" for name in params}  # noqa: E731
    tx = defined["relative_adamw"](0.01, 0.1, is_kernel)
    params = {"kernel": jax.random.normal(jax.random.key(0), (3, 2)), "bias": jnp.ones(2)}
    gradients = jax.tree.map(jnp.sin, params)
    updates, _ = tx.update(gradients, tx.init(params), params)
    # Adam's first step is the sign of the gradient.
    kernel, signs = np.asarray(params["kernel"]), np.sign(gradients["kernel"])
    expected = -0.01 * (4 * np.sqrt(np.mean(kernel**2)) * signs + 0.1 * kernel)
    np.testing.assert_allclose(updates["kernel"], expected, rtol=1e-4)
    np.testing.assert_allclose(updates["bias"], -0.01 * np.ones(2), rtol=1e-4)
