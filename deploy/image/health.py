"""Ask the gateway of this container whether it lives, where its settings say that it listens.

Exit code 1 when it does not answer 200 within five seconds.
"""

import sys

import httpx

from ingest.settings import load_settings

TIMEOUT_S = 5.0


def main() -> int:
    """Returns the exit code."""
    settings = load_settings(None)
    scheme = "https" if settings.ssl_certfile else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    at = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{at}:{settings.port}/health"
    try:
        # A certificate is for the name that clients use, and this is the same container: no proxy leads here.
        httpx.get(url, verify=scheme == "http", timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
