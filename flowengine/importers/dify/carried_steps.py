"""What Dify's own steps did, in Python. Imported flows call these functions; change them as you like."""

from __future__ import annotations

import inspect
import io
import re
import zipfile
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

_LONGEST = 50_000_000


def read_document(file: Any) -> Any:
    """Return the text of a file, or of each file of a list: texts, Word documents, and PDF where pypdf is installed."""
    if isinstance(file, list):
        return [read_document(each) for each in cast("list[Any]", file) if each is not None]
    if file is None:
        return ""
    data: bytes = file.read_bytes()
    if file.media_type == "application/pdf":
        reader = import_module("pypdf").PdfReader(io.BytesIO(data))  # Only PDF files need it: pip install pypdf
        return "\n".join(page.extract_text() for page in reader.pages)
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("word/document.xml") as document:
            text = document.read(_LONGEST).decode("utf-8")
        return re.sub(r"<[^<>]+>", "", re.sub(r"</w:p>", "\n", text))
    return data.decode("utf-8")


async def search_documents(query: str, documents: str, limit: int = 4) -> list[dict[str, Any]]:
    """Return the passages of a folder of texts that are nearest to the query."""
    from flowengine import RetrievalProvider

    folder = Path(__file__).parent / documents
    if not folder.is_dir():
        raise FileNotFoundError(f"put the documents of the knowledge base into the folder {documents}")
    result = RetrievalProvider(documents=folder, max_results=limit).fragments(query, ())
    fragments = await result if inspect.isawaitable(result) else result
    return [
        {"content": each.text, "title": each.label, "metadata": {"position": at}}
        for at, each in enumerate(fragments, 1)
    ]


def current_time(format: str = "%Y-%m-%d %H:%M:%S", timezone: str = "UTC") -> str:
    """Return the time in a time zone."""
    return datetime.now(ZoneInfo(timezone)).strftime(format)


def timestamp_to_localtime(timestamp: float, timezone: str = "UTC") -> str:
    """Return the local time of seconds since 1970."""
    return datetime.fromtimestamp(float(timestamp), ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S")


def localtime_to_timestamp(localtime: str, timezone: str = "UTC") -> int:
    """Return the seconds since 1970 of a local time, written as 2025-01-31 12:00:00."""
    return int(datetime.fromisoformat(localtime).replace(tzinfo=ZoneInfo(timezone)).timestamp())


def timezone_conversion(current_time: str, current_timezone: str = "UTC", target_timezone: str = "UTC") -> str:
    """Return a local time, written as 2025-01-31 12:00:00, in another time zone."""
    moment = datetime.fromisoformat(current_time).replace(tzinfo=ZoneInfo(current_timezone))
    return moment.astimezone(ZoneInfo(target_timezone)).strftime("%Y-%m-%d %H:%M:%S")


def weekday(year: int, month: int, day: int) -> str:
    """Return the day of the week of a date."""
    return datetime(int(year), int(month), int(day)).strftime("%A")
