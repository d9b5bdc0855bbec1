from kafkalike.maintenance.maintenance_run import WORKS as WORKS
from kafkalike.maintenance.maintenance_run import MaintenanceReport as MaintenanceReport
from kafkalike.maintenance.maintenance_run import TopicReport as TopicReport
from kafkalike.maintenance.maintenance_run import maintain as maintain
