"""Which context providers are FlowEngine's own, by name. Names only: nothing is imported."""

from __future__ import annotations

from typing import Final

__all__ = ["ALIASES", "GROUP", "OURS"]

GROUP: Final = "flowengine.context_providers"
"""Entry points under which installed packages bring theirs."""

OURS: Final = {
    "conversation": "flowengine.providers.conversation:ConversationHistoryProvider",
    "fixed_file": "flowengine.providers.fixed_file:FixedFileProvider",
    "source_code": "flowengine.providers.source_code:SourceCodeProvider",
    "compressor": "flowengine.providers.compressor:ContextCompressorProvider",
    "cut": "flowengine.providers.cut:CutProvider",
    "filter": "flowengine.providers.filter:ContextFilterProvider",
    "long_term_memory": "flowengine.providers.long_term_memory:LongTermMemoryProvider",
    "retrieval": "flowengine.providers.retrieval:RetrievalProvider",
    "custom_data": "flowengine.providers.custom_data:CustomDataProvider",
}
"""Name → `module:Class`."""

ALIASES: Final = {"conversation_history": "conversation"}
