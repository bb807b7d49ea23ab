from .masker import Masker as Masker
from .masker import recognizers as recognizers
from .more_recognizers import MORE_RECOGNIZERS as MORE_RECOGNIZERS
from .patterns import Pattern as Pattern
from .patterns import Recognizer as Recognizer
