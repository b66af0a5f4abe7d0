"""A copier by Faust: `by_faust.py BOOTSTRAP SOURCE TARGET GROUP classic` makes the two topics where they are
missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a member of GROUP.
"""

import sys

import faust

bootstrap, source, target, group, _ = sys.argv[1:]
application = faust.App(
    group,
    broker=f"kafka://{bootstrap}",
    store="memory://",
    datadir="data",
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.2,
    consumer_auto_offset_reset="earliest",
    key_serializer="raw",
    value_serializer="raw",
    topic_partitions=2,
    topic_replication_factor=1,
    web_enabled=False,
)
read = application.topic(source, key_type=bytes, value_type=bytes)
written = application.topic(target, key_type=bytes, value_type=bytes)


@application.agent(read)
async def copy(stream: "faust.Stream[bytes]") -> None:
    """Write each record when the one before it is acknowledged."""
    async for key, value in stream.items():
        await (await written.send(key=key, value=value.upper()))


@application.task
async def create() -> None:
    """Make the topic that nothing here reads."""
    await written.declare()


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--loglevel=warn", "--without-web"]
    application.main()
