"""All routers of the console, for the application."""

from api.console.drawing import files
from api.console.pages import (
    access,
    export,
    groups,
    login,
    maintenance,
    messages,
    new_topic,
    offset_reset,
    oidc_login,
    overview,
    partition,
    produce_page,
    sql,
    topic,
    topic_change,
    topics,
)

ROUTERS = (
    files.router,
    login.router,
    oidc_login.router,
    oidc_login.callback,
    overview.router,
    overview.figures,
    topics.router,
    new_topic.router,
    topic_change.router,
    topic.router,
    messages.router,
    export.router,
    produce_page.router,
    partition.router,
    groups.router,
    groups.histories,
    offset_reset.router,
    sql.router,
    maintenance.router,
    access.router,
)
"""A path is looked for in this order: `new` is no topic."""
