from .page_texts import codes_page as codes_page
from .page_texts import commands_page as commands_page
from .page_texts import format_rows as format_rows
from .page_texts import tests_page as tests_page
