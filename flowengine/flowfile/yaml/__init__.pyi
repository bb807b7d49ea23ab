from .dump import to_yaml as to_yaml
from .parser import MAX_BYTES as MAX_BYTES
from .parser import decode as decode
from .parser import parse_yaml as parse_yaml
from .parser import refuse_characters as refuse_characters
from .positions import KeyPath as KeyPath
from .positions import SourceText as SourceText
