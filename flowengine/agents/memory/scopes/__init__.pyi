from .kept_scopes import list_scopes as list_scopes
from .kept_scopes import read_scope as read_scope
from .kept_scopes import remove_scope as remove_scope
from .memories import MemoryScope as MemoryScope
from .memories import aware as aware
from .memories import parse_thread_scope_id as parse_thread_scope_id
