"""`python -m assent` is the `assent` command."""

from assent.cli import main

if __name__ == "__main__":
    main()
