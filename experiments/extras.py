"""Libraries that single flags need."""

import importlib
from typing import Any

from experiments.errors import UserError


def library(name: str, flag: str, extra: str, otherwise: str) -> Any:
    """Imports a library; raises UserError that says how to install it.

    Args:
        name: the name of the module.
        flag: the flag that needs it.
        extra: the extra of the package that installs it.
        otherwise: the alternative without it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"{flag} needs {name}, which is not installed: pip install 'jaxnorm[{extra}]' in your "
            f"environment, or pip install -e '.[{extra}]' here; {otherwise}."
        ) from None
