"""Round-trip times and the time-outs derived from them (RFC 6298, section 2)."""

_SMOOTHING, _VARIATION = 1 / 8, 1 / 4  # alpha and beta of RFC 6298, section 2.3
_SPREAD = 4  # K of RFC 6298, section 2.2


class RoundTrip:
    """The smoothed round-trip time to one peer, and its variation."""

    __slots__ = ("smoothed_s", "variation_s")

    def __init__(self, first_s: float) -> None:
        self.smoothed_s, self.variation_s = first_s, first_s / 2

    def add(self, sample_s: float) -> None:
        """Add a measurement. For repeated requests, see `Neighbours._confirm_alive` (Karn's rule)."""
        self.variation_s += _VARIATION * (abs(self.smoothed_s - sample_s) - self.variation_s)
        self.smoothed_s += _SMOOTHING * (sample_s - self.smoothed_s)

    @property
    def timeout_s(self) -> float:
        """How long an answer may take, in seconds."""
        return self.smoothed_s + _SPREAD * self.variation_s
