"""Reading what was captured: :class:`Seen`, and one :class:`Pass` of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
