from .migrations import VERSION as VERSION
from .rates import PostgresRates as PostgresRates
from .store import PostgresJournal as PostgresJournal
from .store import PostgresStore as PostgresStore
from .tables import Beginnings as Beginnings
from .writer import HandedBackError as HandedBackError
