"""What stands in the paths of version 2."""

from typing import Annotated

from fastapi import Path

TopicName = Annotated[str, Path(examples=["flights"])]
PartitionId = Annotated[int, Path(description="From 0 on.", examples=[0])]
GroupName = Annotated[str, Path(examples=["readers"])]
InstanceName = Annotated[str, Path(examples=["reader-1"])]
