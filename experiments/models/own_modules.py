"""The user's modules that a network's file imports: those of one folder at a time."""

import sys
from pathlib import Path
from typing import Any


class Folders:
    """Lets the files of one folder import their modules, and keeps those of other folders aside.

    Two folders may have modules of one name.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._usual = frozenset[str]()
        self._path = list[str]()
        self._aside = dict[Path, tuple[list[str], dict[str, Any]]]()

    def use(self, folder: Path) -> None:
        """Finds modules in a folder before all others, and forgets those of the folder before."""
        if folder == self._folder:
            return
        if self._folder is None:
            self._usual = frozenset(sys.modules)
        else:
            self._leave(self._folder)
        self._folder, self._path = folder, [*sys.path]
        path, modules = self._aside.pop(folder, ([str(folder), *sys.path], {}))
        sys.path[:] = path
        sys.modules.update(modules)

    def _leave(self, folder: Path) -> None:
        own = {name: each for name, each in sys.modules.items() if self._is_own(name, each)}
        self._aside[folder] = [*sys.path], own
        sys.path[:] = self._path
        for name in own:
            del sys.modules[name]

    def _is_own(self, name: str, module: Any) -> bool:
        """Returns True for a module of the user's files, of no package that is installed."""
        first = name.partition(".")[0]
        if first in self._usual or first in sys.stdlib_module_names:
            return False
        file, folders = getattr(module, "__file__", None), getattr(module, "__path__", ())
        places = [Path(place) for place in (file, *folders) if place]
        installed = {"site-packages", "dist-packages"}
        return bool(places) and not any(installed & set(place.parts) for place in places)


#: The folders of the networks of this process.
FOLDERS = Folders()
