"""The reference mirror: `server` is the mirror process itself, `driver` what the harness starts and asks it with."""
