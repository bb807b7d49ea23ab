from .formats import FORMATS as FORMATS
from .formats import find_sources as find_sources
from .formats import read_source as read_source
from .import_report import format_counts as format_counts
from .project_writer import find_asks as find_asks
from .project_writer import write_project as write_project
from .source_tree import SourceTree as SourceTree
