from .ranking import MemoryItem as MemoryItem
from .ranking import Recalled as Recalled
from .sqlite import SQLiteMemoryItems as SQLiteMemoryItems
