"""Lists FlowEngine's own context providers by name. Names only: nothing is imported."""

from __future__ import annotations

from typing import Final

__all__ = ["ALIASES", "GROUP", "OURS"]

GROUP: Final = "flowengine.context_providers"
"""Entry points under which installed packages bring theirs."""

OURS: Final = {
    "conversation": "flowengine.context_providers.conversation:ConversationHistoryProvider",
    "fixed_file": "flowengine.context_providers.fixed_file:FixedFileProvider",
    "source_code": "flowengine.context_providers.source_code.source_code:SourceCodeProvider",
    "compressor": "flowengine.context_providers.compressor.compressor:ContextCompressorProvider",
    "cut": "flowengine.context_providers.cut:CutProvider",
    "filter": "flowengine.context_providers.filter:ContextFilterProvider",
    "long_term_memory": "flowengine.context_providers.long_term_memory:LongTermMemoryProvider",
    "retrieval": "flowengine.context_providers.retrieval:RetrievalProvider",
    "custom_data": "flowengine.context_providers.custom_data:CustomDataProvider",
}
"""Name → `module:Class`."""

ALIASES: Final = {"conversation_history": "conversation"}
