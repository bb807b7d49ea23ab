"""The version, where every module may read it without importing the package's public names."""

__all__ = ["__version__"]

__version__ = "0.1.0"
