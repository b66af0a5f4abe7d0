"""ApiVersions: the APIs that this door offers (KIP-35, KIP-511)."""

from collections.abc import Iterable

from api.kafka.protocol.apis import APIS
from api.kafka.protocol.messages.versions import ApiVersion, ApiVersionsResponse


def api_versions(offered: Iterable[int]) -> ApiVersionsResponse:
    """The versions of the APIs `offered`, which are named by their keys."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=APIS[key].advertised_min, max_version=APIS[key].max_version)
            for key in sorted(offered)
        ]
    )
