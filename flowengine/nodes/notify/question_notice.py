"""Makes what people are sent of a question: a mail, a post to Slack or Teams, or the body of a request. Pure.

The question's text may come from a model or another untrusted source. It is plain text everywhere: it becomes no markup
of Slack, Teams or HTML, and adds no line to a mail's headers. Mail programs make links of what looks like an address,
so in a mail each of its lines is quoted, and the product's own links stand before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from typing import Any, Final, NamedTuple

from flowengine.core import cut_text, thaw, to_json_value
from flowengine.errors import DefinitionError

_MOST: Final = 2_800
"""Characters of a question in Slack (which takes 3,000 in a block) and Teams."""
_SUBJECT: Final = 150
_BUTTON: Final = 75
_ADDRESS: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


class QuestionNotice(NamedTuple):
    """A question, with the links for one person or channel."""

    run_id: str
    flow: str
    path: str
    message: str
    choices: Sequence[str]
    asked: float
    links: Mapping[str, str]
    """Choice → address; empty where the one who is told is not among the approvers."""
    expires: float | None = None
    on_expire: str | None = None
    form: Mapping[str, Any] | None = None
    approvers: Sequence[str] = ()
    tool: str = ""
    arguments: Mapping[str, Any] | None = None

    def scope(self) -> Mapping[str, Any]:
        """Returns the names for templates of channels (`TEMPLATE_NAMES`)."""
        question: dict[str, Any] = {"message": self.message, "path": self.path, "choices": list(self.choices)}
        question |= {"form": thaw(self.form), "expires": format_moment(self.expires), "tool": self.tool}
        question |= {"approvers": list(self.approvers), "arguments": thaw(self.arguments)}
        return {"question": question, "links": dict(self.links), "run": {"id": self.run_id, "flow": self.flow}}

    @property
    def title(self) -> str:
        """One line that says what it is about."""
        first = next((line for line in self.message.splitlines() if line.strip()), self.path)
        return cut_text(_as_line(f"{self.flow}: {first}"), _SUBJECT)

    def text(self) -> str:
        """The question as plain text, without the links."""
        parts = [self.message.strip()]
        if self.tool:
            arguments = json.dumps(to_json_value(self.arguments), ensure_ascii=False, indent=2)
            parts.append(f"Call of the tool {self.tool} with:\n{cut_text(arguments, _MOST)}")
        return "\n\n".join(parts)

    def facts(self) -> Sequence[str]:
        """Describes who may answer, until when, and which run asks."""
        sentences: list[str] = []
        if self.approvers:
            sentences.append(f"To be answered by {' or '.join(self.approvers)}.")
        if self.expires is not None:
            sentences.append(f"'{self.on_expire}' is taken if there is no answer by {format_moment(self.expires)}.")
        return [*sentences, f"Flow {self.flow}, node {self.path}, run {self.run_id}."]


def format_moment(at: float | None) -> str:
    """A time as people read it, in UTC; empty where there is none.

    >>> format_moment(0.0)
    '1970-01-01 00:00 UTC'
    """
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def check_mail_address(text: str) -> str:
    """The address, where it is one and nothing more; `DefinitionError` otherwise.

    >>> check_mail_address("ada@example.com")
    'ada@example.com'
    """
    if not _ADDRESS.fullmatch(text) or ".." in text:
        raise DefinitionError(f"{text!r:.100} is no mail address like ada@example.com")
    return text


def make_mail(notice: QuestionNotice, sender: str, to: str, message_id: str) -> EmailMessage:
    """The mail. Its headers are of one line each, whatever the question says."""
    name, address = parseaddr(sender)
    user, _, domain = check_mail_address(address).rpartition("@")
    mail = EmailMessage(policy=SMTP)
    mail["From"] = Address(_as_line(name), user, domain)
    mail["To"] = check_mail_address(to)
    mail["Subject"] = notice.title
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{message_id}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    links = [f"{choice}:\n{url}" for choice, url in notice.links.items()]
    if links:
        links.append("Each link opens a page that asks once more before anything is decided.")
    quoted = "\n".join(f"> {line}".rstrip() for line in notice.text().splitlines())
    parts = [*links, "\n".join(notice.facts()), "The question is what is quoted here:", quoted]
    mail.set_content(_whole("\n\n".join([*parts, ""])))
    return mail


def make_slack(notice: QuestionNotice) -> Mapping[str, Any]:
    """The body of a post to an incoming webhook of Slack."""
    blocks: list[Mapping[str, Any]] = [
        {"type": "section", "text": _slack_text(notice.text(), _MOST)},
        {"type": "context", "elements": [_slack_text(each, _MOST) for each in notice.facts()]},
    ]
    buttons = [
        {"type": "button", "text": _slack_text(choice, _BUTTON), "url": url} for choice, url in notice.links.items()
    ]
    blocks += [{"type": "actions", "elements": buttons[at : at + 25]} for at in range(0, len(buttons), 25)]
    # The text of the notification is read as markup, the blocks are not.
    plain = notice.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": plain, "blocks": blocks}


def make_teams(notice: QuestionNotice) -> Mapping[str, Any]:
    """The body of a post to a workflow webhook of Teams: a card. Its texts are runs, which know no markup."""
    texts = [notice.title, cut_text(notice.text(), _MOST), *notice.facts()]
    runs = [{"type": "TextRun", "text": _whole(each)} for each in texts]
    runs[0]["weight"] = "Bolder"
    actions = [
        {"type": "Action.OpenUrl", "title": cut_text(_as_line(choice), _BUTTON), "url": url}
        for choice, url in notice.links.items()
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [each]} for each in runs],
        "actions": actions,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def make_json(notice: QuestionNotice) -> Mapping[str, Any]:
    """The body of a request to any address, where its channel has no template."""
    return {"text": notice.title, **notice.scope()}


def _slack_text(text: str, most: int) -> Mapping[str, Any]:
    return {"type": "plain_text", "text": cut_text(_whole(text), most) or "–", "emoji": False}


def _as_line(text: str) -> str:
    """A text as one line, without control characters and without what turns its direction."""
    return " ".join("".join(each if each.isprintable() else " " for each in _whole(text)).split())


def _whole(text: str) -> str:
    """The text as it can be encoded."""
    return text.encode("utf-8", "replace").decode()
