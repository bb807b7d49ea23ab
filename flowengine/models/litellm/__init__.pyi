from .loading import wait_for_started_import as wait_for_started_import
from .reply import secrets_of as secrets_of
