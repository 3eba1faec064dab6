"""`python -m maxmatch`, and what torchrun starts."""

from maxmatch.cli import main

if __name__ == "__main__":
    main()
