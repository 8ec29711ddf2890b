"""The command line as a module: python -m tritmark."""

from tritmark.harness.cli import main

if __name__ == "__main__":
    main()
