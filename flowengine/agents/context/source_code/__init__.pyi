from .source_files import CodeTree as CodeTree
from .source_files import FileStamp as FileStamp
from .source_files import is_text as is_text
from .source_files import lines_of as lines_of
