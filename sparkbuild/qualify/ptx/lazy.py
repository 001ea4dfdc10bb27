"""Dictionaries that make a value when it is first asked for: a file's kernels are read one by one.

Iterating over the names costs nothing; ``items`` and ``values`` make everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class _Later(Generic[T]):
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make


class LazyDict(dict[str, T]):
    """Holds a value, or how to make it."""

    def put(self, name: str, make: Callable[[], T]) -> None:
        """Have ``make`` called when ``name`` is first asked for."""
        dict.__setitem__(self, name, cast("T", _Later(make)))

    def __iter__(self) -> Iterator[str]:
        """Own, so that ``dict(...)`` and ``{**...}`` ask for the values instead of taking them."""
        return super().__iter__()

    def __getitem__(self, name: str) -> T:
        value = dict.__getitem__(self, name)
        if isinstance(value, _Later):
            value = value.make()
            dict.__setitem__(self, name, value)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dictionary."""
        if name not in self:
            return default
        return self[name]

    def copy(self) -> dict[str, T]:
        """As of a dictionary; makes every value."""
        return dict(self)

    def items(self) -> Any:
        """As of a dictionary; makes every value."""
        self._make()
        return dict.items(self)

    def values(self) -> Any:
        """As of a dictionary; makes every value."""
        self._make()
        return dict.values(self)

    def _make(self) -> None:
        for name in self:
            self[name]


class LazyCounts(dict[str, int]):
    """Counts of words that are found when the first one is asked for."""

    def __init__(self, find: Callable[[], Iterator[str]]) -> None:
        super().__init__()
        self._find: Callable[[], Iterator[str]] | None = find

    def _fill(self) -> None:
        if self._find is not None:
            find, self._find = self._find, None
            self.update(Counter(find()))

    def __getitem__(self, word: str) -> int:
        self._fill()
        return super().__getitem__(word)

    def __contains__(self, word: object) -> bool:
        self._fill()
        return super().__contains__(word)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return super().__iter__()

    def __len__(self) -> int:
        self._fill()
        return super().__len__()

    def get(self, word: str, default: Any = None) -> Any:
        """As of a dictionary."""
        self._fill()
        return super().get(word, default)

    def keys(self) -> Any:
        """As of a dictionary."""
        self._fill()
        return super().keys()

    def items(self) -> Any:
        """As of a dictionary."""
        self._fill()
        return super().items()

    def values(self) -> Any:
        """As of a dictionary."""
        self._fill()
        return super().values()
