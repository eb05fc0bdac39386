"""The checks of lesson 8: the first value that is not finite, and six trainings that do not learn."""

from __future__ import annotations

from hooklab.course.lesson08.check_clinic import patient_a, patient_b, patient_c, patient_d, patient_e, patient_f
from hooklab.course.lesson08.check_first import the_first_nonfinite

__all__ = ["patient_a", "patient_b", "patient_c", "patient_d", "patient_e", "patient_f", "the_first_nonfinite"]
