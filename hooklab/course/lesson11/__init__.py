"""Lesson 11's own: checks, predictions, figures, and helpers that are not its subject."""
