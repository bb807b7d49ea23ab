from .repair import Repair as Repair
from .repair import repair_store as repair_store
from .store import SQLiteStore as SQLiteStore
