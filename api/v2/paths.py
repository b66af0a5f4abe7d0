"""Path parameters of version 2."""

from typing import Annotated

from fastapi import Path

TopicName = Annotated[str, Path(examples=["flights"])]
PartitionId = Annotated[int, Path(description="The number of the partition, from 0.", examples=[0])]
GroupName = Annotated[str, Path(examples=["readers"])]
InstanceName = Annotated[str, Path(examples=["reader-1"])]
