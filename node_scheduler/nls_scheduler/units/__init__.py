"""Sizes, durations and clocks."""
