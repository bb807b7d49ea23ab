from .schedule_ticker import LABEL as LABEL
from .schedule_ticker import ScheduleTicker as ScheduleTicker
from .schedule_ticker import recall_state as recall_state
from .worker_schedules import WorkerSchedules as WorkerSchedules
from .worker_schedules import serving_schedules as serving_schedules
