"""`python -m sayso` is the `sayso` command."""

from sayso.cli import main

if __name__ == "__main__":
    main()
