"""Libraries that a flag needs and the application does not."""

import importlib
from typing import Any

from experiments.errors import UserError


def library(name: str, flag: str, extra: str, otherwise: str) -> Any:
    """The module of a library; raises UserError that says how to get it.

    Args:
        name: of the module.
        flag: what needs it.
        extra: the extra of the package that installs it.
        otherwise: what does without it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"{flag} needs {name}, which is not installed: pip install 'jaxnorm[{extra}]' in your "
            f"environment, or pip install -e '.[{extra}]' here; {otherwise}."
        ) from None
