from .otel import send as send
from .span_sender import sending_spans as sending_spans
from .spans import Span as Span
from .spans import spans_of as spans_of
