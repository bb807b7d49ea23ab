"""Tells people of a run's questions: by mail, or by a request to where the project allows it.

What is to be sent is found in the run's record alone: an open question, and whom it was told to already. Each delivery
is tried a few times in a short while and gives a record of what became of it; it never raises. Who drives the run
writes that record down, so a delivery whose record was lost is made again.
"""

from __future__ import annotations

import hashlib
import os
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from functools import partial
from time import time
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import anyio

from flowengine.core import (
    ESCAPE,
    ApprovalRequested,
    Notified,
    Secrets,
    call_abandonable,
    cut_text,
    find_url_secrets,
    node_of_question,
    origin_of,
    question_path,
    replace_escape,
)
from flowengine.engine import Event, NodeRecorded, RunStarted
from flowengine.errors import DefinitionError, FlowEngineError, TemplateError, UnknownEffectError, did_you_mean
from flowengine.journal import may_answer, open_questions, times_asked
from flowengine.nodes.compiled_flow import QuestionDelivery
from flowengine.nodes.http_request import make_request
from flowengine.nodes.http_sender import Sender
from flowengine.nodes.notify.channels import MailServer, NotifyChannel, NotifySettings, channel_of, render_body
from flowengine.nodes.notify.links import AnswerLink, find_signer
from flowengine.nodes.notify.question_notice import (
    QuestionNotice,
    check_mail_address,
    make_json,
    make_mail,
    make_slack,
    make_teams,
)

_LONGEST_ERROR: Final = 300
_LONGEST_ANSWER: Final = 2000
"""Bytes of an answer that are looked at."""
_MAKERS: Final = {"slack": make_slack, "teams": make_teams, "http": make_json}


class DeliveryPace(NamedTuple):
    """Seconds."""

    attempt: float = 10.0
    """For one try."""
    pauses: Sequence[float] = (1.0, 3.0)
    """Between two tries; there is one more of them than pauses."""


_PACE: Final = DeliveryPace()


class _TemporaryError(Exception):
    """It may arrive if it is tried again."""


class _Target(NamedTuple):
    """One who is to be told of a question."""

    channel: str
    to: str
    by: str
    """Who answers by its links."""
    channel_of: NotifyChannel


@dataclass(frozen=True)
class PeopleNotifier:
    """Tells people by the channels of a project."""

    settings: NotifySettings
    sender: Sender
    """Sends requests to where the project allows it."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    pace: DeliveryPace = _PACE

    def due(self, events: Sequence[Event], /) -> Sequence[QuestionDelivery]:
        """Returns the notifications that are due for the questions of a waiting run."""
        started, moments, now = events[0], times_asked(events), time()
        assert isinstance(started, RunStarted)  # Every journal begins so.
        keys = {
            (question_path(each.node, each.record), each.record.asked, each.record.channel, each.record.to)
            for each in events
            if isinstance(each, NodeRecorded) and type(each.record) is Notified and each.record.error is None
        }
        deliveries: list[QuestionDelivery] = []
        for path, question in open_questions(events).items():
            if question.expires is not None and question.expires <= now:
                continue
            for record, target in self._targets(question, moments[path]):
                key = (path, record.asked, record.channel, record.to)
                if key not in keys:
                    send = partial(self._deliver, started, path, question, record, target)
                    deliveries.append(QuestionDelivery(node_of_question(path, question), key, send))
        return deliveries

    def find_unset(self, *, all_channels: bool) -> Sequence[str]:
        """Returns the unset variables without which nobody is told."""
        channels = self.settings.channels
        selection = (
            channels if all_channels else {name: channels[name] for name in self.settings.default if name in channels}
        )
        needs_mail = any(each.type == "mail" for each in selection.values())
        needed = replace(self.settings, channels=selection, mail=self.settings.mail if needs_mail else None).variables
        return [each for each in needed if not self.environ.get(each, "").strip()]

    def _targets(self, question: ApprovalRequested, at: float) -> Iterator[tuple[Notified, _Target | None]]:
        """The record of each delivery, and who is meant; None where the record says why it cannot be delivered."""
        for channel in self.settings.default if question.notify is None else question.notify:
            blank = Notified(channel if isinstance(channel, str) else "channel", "", at, question.name)
            try:
                for target in self._targets_of(channel):
                    yield blank._replace(channel=target.channel, to=target.to), target
            except FlowEngineError as error:
                yield blank._replace(error=_shorten(str(error))), None

    def _targets_of(self, declaration: Any) -> list[_Target]:
        channel = self.settings.channels.get(declaration) if isinstance(declaration, str) else channel_of(declaration)
        if channel is None:
            raise DefinitionError(
                f"the project has no channel '{declaration}'{did_you_mean(str(declaration), self.settings.channels)}"
            )
        if channel.type == "mail":
            for each in channel.to:
                check_mail_address(each)
            return [_Target(channel.label, each, each, channel) for each in channel.to]
        origin = origin_of(self._address_of(channel))
        if origin is None:
            raise DefinitionError(f"channel '{channel.label}' has no address that begins with https:// or http://")
        return [_Target(channel.label, origin[1], channel.name or f"{channel.type}:{origin[1]}", channel)]

    async def _deliver(
        self, started: RunStarted, path: str, question: ApprovalRequested, record: Notified, target: _Target | None
    ) -> Notified:
        """Tell one of them; what became of it."""
        if target is None:
            return record
        failure = ""
        for number, pause in enumerate((*self.pace.pauses, 0.0), 1):
            try:
                with anyio.fail_after(self.pace.attempt):
                    await self._send(self._notice(started, path, question, record.asked, target.by), record, target)
                return record._replace(attempts=number)
            except (_TemporaryError, UnknownEffectError, OSError, TimeoutError, smtplib.SMTPException) as error:
                failure = self._explain(error, target.channel_of)
                is_last = isinstance(error, smtplib.SMTPException) and not _may_pass(error)
            except Exception as error:  # Nothing of it may fail the run, whatever a template or a library raises.
                failure, is_last = self._explain(error, target.channel_of), True
            if is_last or number > len(self.pace.pauses):
                return record._replace(error=failure, attempts=number)
            await anyio.sleep(pause)
        return record._replace(error=failure)

    def _notice(
        self, started: RunStarted, path: str, question: ApprovalRequested, at: float, by: str
    ) -> QuestionNotice:
        signer = find_signer(self.environ)
        choices = question.choices if may_answer(by, question.approvers) else ()
        links = {
            choice: f"{self.settings.url.rstrip('/')}{link_path(signer.sign(link))}"
            for choice in choices
            for link in (AnswerLink(started.run_id, path, at, choice, by, question.expires),)
        }
        return QuestionNotice(
            started.run_id, started.flow, path, question.message, question.choices, at, links, question.expires,
            question.on_expire, question.form, question.approvers, question.tool, question.arguments,
        )  # fmt: skip

    async def _send(self, notice: QuestionNotice, record: Notified, target: _Target) -> None:
        channel = target.channel_of
        mark = hashlib.sha256(repr((notice.run_id, notice.path, *record[:3])).encode()).hexdigest()[:32]
        if channel.type == "mail":
            await self._send_mail(notice, channel, target.to, mark)
        else:
            await self._post(notice, channel, mark)

    async def _send_mail(self, notice: QuestionNotice, channel: NotifyChannel, to: str, mark: str) -> None:
        server = self.settings.mail
        if server is None:
            raise DefinitionError("the project file has no [notify.mail], which names the server of mails")
        if not channel.name and not server.allows(to):
            raise DefinitionError(
                f"a question may have no mail sent to {to}: `allow_to` of [notify.mail] does not list it"
            )
        mail = make_mail(notice, server.sender, to, mark)
        user, password = self._value_of(server.user_env), self._value_of(server.password_env)
        give = partial(_give_to_server, server, mail, to, user, password, self.pace.attempt)
        await call_abandonable(give)

    async def _post(self, notice: QuestionNotice, channel: NotifyChannel, mark: str) -> None:
        headers = {"idempotency-key": mark, **channel.headers}
        values: dict[str, Any] = {"url": self._address_of(channel), "headers": headers}
        if channel.body is not None:
            values["body"] = render_body(channel.body, notice.scope())
        elif channel.json is not None:
            values["json"] = render_body(channel.json, notice.scope())
        else:
            values["json"] = _MAKERS[channel.type](notice)
        request = make_request("POST", values, channel.headers_env, 0)
        exchange = await self.sender.send(request, self.pace.attempt)
        status = exchange.answer.status
        if 200 <= status < 300:
            return
        address = urlsplit(self._address_of(channel))
        secret = [self._value_of(each) for each in channel.headers_env.values()]
        secret += [f"{address.path}?{address.query}"] if channel.url_env else find_url_secrets(channel.url)
        secret += [link.rpartition("/")[2] for link in notice.links.values()]
        message = f"the answer was {status}{_quote(exchange.answer.content, secret)}"
        raise _TemporaryError(message) if status == 429 or status >= 500 else DefinitionError(message)

    def _address_of(self, channel: NotifyChannel) -> str:
        return self._value_of(channel.url_env) if channel.url_env else channel.url

    def _value_of(self, variable: str) -> str:
        value = self.environ.get(variable, "").strip() if variable else ""
        if variable and not value:
            raise DefinitionError(f"the environment variable {variable} is not set")
        return value

    def _explain(self, error: BaseException, channel: NotifyChannel) -> str:
        """Explains why a delivery failed, without secrets."""
        mail = self.settings.mail
        names = [channel.url_env, *channel.headers_env.values()]
        names += [] if mail is None else [mail.password_env, mail.user_env]
        values = [self.environ.get(each, "").strip() for each in names if each]
        if isinstance(error, TimeoutError):
            text = f"there was no answer within {self.pace.attempt:g} s"
        elif isinstance(error, FlowEngineError | _TemporaryError):
            text = f"a template of the channel fails: {error}" if isinstance(error, TemplateError) else str(error)
        else:
            text = f"{type(error).__name__}: {error}"
        return _shorten(Secrets(values).hide(text))


def link_path(token: str) -> str:
    """Returns the path of a link's page below the server's address."""
    return f"/answer/{token}"


def _quote(content: bytes, secret: Sequence[str]) -> str:
    r"""How an answer goes on, which strangers wrote; nothing where a part of what is secret may be in it.

    >>> _quote(b'{"error":\x1b "no such channel"}', ["key-0123456789"])
    ': {"error": "no such channel"}'
    >>> _quote(b"no, key-0%31234567", ["key-0123456789"])
    ''
    """
    text = content[:_LONGEST_ANSWER].decode("utf-8", "replace")
    searchable = f"{text}\n{ESCAPE.sub(replace_escape, text)}"
    # Ten characters of a secret are one, too: servers repeat what they were sent, cut short.
    parts = {each[at : at + 10] for each in secret for at in range(max(1, len(each) - 9))}
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return f": {line}" if line and not any(len(part) > 5 and part in searchable for part in parts) else ""


def _shorten(text: str) -> str:
    return cut_text(" ".join(text.encode("utf-8", "replace").decode().split()), _LONGEST_ERROR)


def _may_pass(error: smtplib.SMTPException) -> bool:
    """Tells whether a server may take later what it refuses now: its codes from 500 on are for good."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code < 500 for code, _ in error.recipients.values())
    return not (isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= 500)


def _give_to_server(server: MailServer, mail: EmailMessage, to: str, user: str, password: str, seconds: float) -> None:
    """Hand a mail to its server; it is in a thread, and each of its steps has so many seconds."""
    if server.security == "tls":
        context = ssl.create_default_context()
        client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=seconds, context=context)
    else:
        client = smtplib.SMTP(server.host, server.port, timeout=seconds)
    with closing(client):
        if server.security == "starttls":
            client.starttls(context=ssl.create_default_context())
        if user:
            client.login(user, password)
        client.send_message(mail, mail["From"].addresses[0].addr_spec, [to])
        with suppress(OSError):  # The server has the mail, however they part: an error would have it sent again.
            client.quit()
