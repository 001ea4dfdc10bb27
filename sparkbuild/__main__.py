"""``python -m sparkbuild``."""

from sparkbuild.cli import main

if __name__ == "__main__":
    main()
