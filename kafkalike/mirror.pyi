from kafkalike.admin.mirror import Mirror as Mirror
from kafkalike.admin.mirror import Passed as Passed
from kafkalike.admin.mirror import Standing as Standing
from kafkalike.admin.mirror import TopicPass as TopicPass
from kafkalike.admin.mirror import describe as describe
from kafkalike.admin.mirror import promote as promote
