from kafkalike.admin.testing import ManualClock as ManualClock
from kafkalike.admin.testing import MemoryCluster as MemoryCluster
