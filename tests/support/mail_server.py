"""A real mail server on loopback (aiosmtpd), in a thread of its own: it keeps what it gets, or refuses it."""

from __future__ import annotations

import asyncio
import re
import threading
import warnings
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, NamedTuple, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

__all__ = ["MailServer", "Mailed", "links_in"]


class Mailed(NamedTuple):
    """A mail that arrived."""

    sender: str
    to: list[str]
    mail: EmailMessage

    @property
    def text(self) -> str:
        return self.mail.get_content().replace("\r\n", "\n")


def links_in(text: str) -> dict[str, str]:
    """Choice → path of its link, in a mail of ours."""
    return dict(re.findall(r"^(.+):\n\S+?(/answer/\S+)$", text, re.MULTILINE))


class MailServer:
    """`with MailServer() as server: …`; `refusals` are answered in the place of the next mails, one each."""

    def __init__(self, password: str = "") -> None:
        self.mails: list[Mailed] = []
        self.refusals: list[str] = []
        self.tries = 0
        self.farewell = "221 Bye"
        self.arrived = threading.Event()
        """Set once there is a mail."""
        self._password = password

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        self.tries += 1
        if self.refusals:
            return self.refusals.pop(0)
        mail = cast(EmailMessage, message_from_bytes(cast(bytes, envelope.content), policy=default))
        self.mails.append(Mailed(str(envelope.mail_from), list(envelope.rcpt_tos), mail))
        self.arrived.set()
        return "250 OK"

    async def handle_QUIT(self, server: SMTP, session: Any, envelope: Envelope) -> str:  # noqa: N802 - as above
        return self.farewell

    def _authenticate(self, server: SMTP, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and data.password.decode() == self._password
        # What came is told again, as servers of bad manners do.
        return AuthResult(success=is_right, handled=False, message=None if is_right else f"535 no: {data.password!r}")

    def _make(self) -> SMTP:
        if not self._password:
            return SMTP(self, hostname="localhost")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # It is on loopback, so it needs no TLS.
            return SMTP(
                self, hostname="localhost", authenticator=self._authenticate, auth_require_tls=False, auth_required=True
            )

    def __enter__(self) -> MailServer:
        self._loop = asyncio.new_event_loop()
        begun = threading.Event()

        async def begin() -> None:
            self._server = await self._loop.create_server(self._make, "127.0.0.1", 0)
            self.port = int(self._server.sockets[0].getsockname()[1])
            begun.set()

        self._loop.create_task(begin())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        assert begun.wait(60)
        return self

    def __exit__(self, *exc: object) -> None:
        async def end() -> None:
            self._server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
