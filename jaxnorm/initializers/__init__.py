"""Initializers for weights that live on a constraint set."""

from jaxnorm.initializers._sphere import sphere as sphere
