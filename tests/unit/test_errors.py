"""Exit codes are an interface."""

from collections import Counter

from sparkbuild.errors import EXIT_INTERRUPTED, SparkbuildError, error_classes


def test_exit_codes_are_unique_and_leave_the_shell_its_own() -> None:
    codes = Counter(cls.exit_code for cls in error_classes())
    assert max(codes.values()) == 1
    assert not {0, 1, 126, 127, EXIT_INTERRUPTED} & set(codes)
    assert len(codes) >= 17


def test_every_class_has_its_own_title() -> None:
    titles = Counter(cls.title for cls in error_classes())
    assert max(titles.values()) == 1
    assert SparkbuildError.title not in titles
