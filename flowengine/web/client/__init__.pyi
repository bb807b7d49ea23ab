from .called_runs import CalledRun as CalledRun
from .called_runs import ClientError as ClientError
from .called_runs import RunProgress as RunProgress
from .called_runs import RunQuestion as RunQuestion
from .clients import AsyncClient as AsyncClient
from .clients import Client as Client
