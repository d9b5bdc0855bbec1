from kafkalike.maintenance.retention import WORKS as WORKS
from kafkalike.maintenance.retention import MaintenanceReport as MaintenanceReport
from kafkalike.maintenance.retention import TopicReport as TopicReport
from kafkalike.maintenance.retention import maintain as maintain
