"""The two ways to the built-in server that every client is tried against."""

from harness.gapless import BINARY

# In one process, and as a stdio child of the gateway.
UPSTREAMS: dict[str, tuple[str, ...]] = {"builtin": (), "stdio": (BINARY, "stdio")}
