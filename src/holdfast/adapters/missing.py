"""What is told when a framework is not installed."""


def missing(framework: str, *, extra: str) -> ImportError:
    """The error for an adapter whose framework is not there."""
    return ImportError(
        f"{framework} is not installed. Install it with: pip install 'holdfast[{extra}]'"
    )
