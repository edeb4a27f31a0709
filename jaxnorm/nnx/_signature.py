"""The arguments of a layer, which Flax's metaclass hides from editors and from `inspect`."""

import inspect


class Signature:
    """`inspect.signature` of a class, subclasses included: that of its `__init__`."""

    def __get__(self, layer: object, owner: type) -> inspect.Signature:
        if layer is not None:  # An instance has the signature of its call.
            raise AttributeError("__signature__")
        found = inspect.signature(getattr(owner, "__init__"))  # noqa: B009
        return found.replace(parameters=list(found.parameters.values())[1:])
