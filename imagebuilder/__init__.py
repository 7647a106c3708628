"""Reproducible, explained and tested GPU environment images for training."""

__version__ = "0.1.0"
