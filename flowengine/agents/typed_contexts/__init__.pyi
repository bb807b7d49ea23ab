from .data_changes import apply_change as apply_change
from .data_changes import are_at_odds as are_at_odds
from .data_changes import describe_change as describe_change
from .manager import CHANGES_OF as CHANGES_OF
from .manager import ContextManager as ContextManager
from .typed import ToolCallResult as ToolCallResult
from .typed import TypedContext as TypedContext
