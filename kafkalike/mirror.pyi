from kafkalike.admin.cluster_mirror import Mirror as Mirror
from kafkalike.admin.cluster_mirror import MirrorLag as MirrorLag
from kafkalike.admin.cluster_mirror import SyncResult as SyncResult
from kafkalike.admin.cluster_mirror import TopicSync as TopicSync
from kafkalike.admin.cluster_mirror import describe as describe
from kafkalike.admin.cluster_mirror import promote as promote
