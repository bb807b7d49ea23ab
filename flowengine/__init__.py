"""FlowEngine."""
