"""The tests, and `check`, by which setup.cfg has every annotation executed."""

from beartype import BeartypeConf, beartype

#: An int is a float to it, as to every type checker.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
