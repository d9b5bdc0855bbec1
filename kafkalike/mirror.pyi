from kafkalike.admin.mirror import Mirror as Mirror
from kafkalike.admin.mirror import MirrorLag as MirrorLag
from kafkalike.admin.mirror import SyncResult as SyncResult
from kafkalike.admin.mirror import TopicSync as TopicSync
from kafkalike.admin.mirror import describe as describe
from kafkalike.admin.mirror import promote as promote
