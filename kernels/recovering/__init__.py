"""tritmark.kernels.recovering: public functions with `on_error="recover"`."""

from __future__ import annotations

from tritmark.kernels.recovering.client import close_workers, last_recoveries

__all__ = ["close_workers", "last_recoveries"]
