"""The command line: one module for each group of verbs."""


def main() -> None:
    """Entry point of the `headwater` command."""
