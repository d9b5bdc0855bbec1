from kafkalike.admin.metrics.cluster_collector import AppendCollector as AppendCollector
from kafkalike.admin.metrics.cluster_collector import exposition as exposition
from kafkalike.admin.metrics.cluster_collector import serve_appends as serve_appends
