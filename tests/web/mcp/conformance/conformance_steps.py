"""What the flows of this folder say, for MCP's conformance suite."""

import io
import wave
from base64 import b64decode

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="


def make_text() -> str:
    return "This is a simple text response for testing."


def make_image() -> bytes:
    return b64decode(PIXEL)


def make_sound() -> bytes:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as written:
        written.setparams((1, 1, 8_000, 8, "NONE", ""))
        written.writeframes(bytes(8))
    return sound.getvalue()


def make_file() -> bytes:
    return b"This is an embedded resource content."


def fail() -> None:
    raise ValueError("This tool intentionally returns an error for testing")
