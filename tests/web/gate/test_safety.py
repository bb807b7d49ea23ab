"""Who gets in, as a table; and that the app asks the gate."""

from __future__ import annotations

import httpx
import pytest

from flowengine.web.gate.safety import AccessKeys, Hosts, RequestHead, TokenRule, is_loopback, refuse_head
from tests.support.pace import done_within
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import Served

KEYS = AccessKeys("the-token")
RULE = TokenRule(KEYS)
HERE = "127.0.0.1:8700"
PAGE = RequestHead("GET", "/", HERE, cookie=KEYS.cookie)
FORM = RequestHead("POST", "/runs/r/approve/n", HERE, f"http://{HERE}", "same-origin", cookie=KEYS.cookie)
CALL = RequestHead("POST", "/api/runs", HERE, authorization="Bearer the-token")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (PAGE, None),
        (PAGE._replace(host="localhost:1"), None),
        (PAGE._replace(host="[::1]:8700"), None),
        (PAGE._replace(host="evil.example"), 421),
        (PAGE._replace(host="127.0.0.1.evil.example:8700"), 421),
        (PAGE._replace(host="evil.example@127.0.0.1"), 421),
        (PAGE._replace(host=""), 421),
        (PAGE._replace(host="[::1"), 421),
        (PAGE._replace(host="192.168.0.7:8700"), 421),
        (PAGE._replace(origin="http://evil.example"), 403),
        (PAGE._replace(has_two_lengths=True), 400),
        (PAGE._replace(cookie=None), 401),
        (PAGE._replace(cookie="the-token"), 401),
        (PAGE._replace(cookie=KEYS.form), 401),
        (PAGE._replace(cookie="ü"), 401),
        (PAGE._replace(cookie=None, authorization="Bearer the-token"), None),
        (PAGE._replace(cookie=None, authorization="bearer  the-token "), None),
        (PAGE._replace(cookie=None, authorization="Basic the-token"), 401),
        (PAGE._replace(cookie=None, authorization="Bearer the-toke"), 401),
        (PAGE._replace(cookie=None, authorization="Bearer \udcff"), 401),
        (PAGE._replace(cookie=None, path="/static/viewer.js"), None),
        (PAGE._replace(cookie=None, path="/static/viewer.js", host="evil.example"), 421),
        (PAGE._replace(cookie=None, path="/static/viewer.js", method="POST"), 401),
        (FORM, None),
        (FORM._replace(origin=None), None),
        (FORM._replace(origin=None, fetch_site=None), 403),
        (FORM._replace(origin=None, fetch_site="same-site"), 403),
        (FORM._replace(origin="null"), 403),
        (FORM._replace(origin="http://evil.example"), 403),
        (FORM._replace(origin="http://127.0.0.1:9999"), 403),
        (FORM._replace(origin="http://[::1"), 403),
        (FORM._replace(origin=f"https://{HERE}"), None),
        (FORM._replace(cookie=None), 401),
        (CALL, None),
        (CALL._replace(origin=f"http://{HERE}"), None),
        (CALL._replace(origin="http://evil.example"), 403),
        (CALL._replace(authorization=None), 401),
        (CALL._replace(authorization=None, cookie=KEYS.cookie, origin=f"http://{HERE}"), 403),
        (CALL._replace(authorization=None, cookie=KEYS.cookie, method="GET"), None),
    ],
)
def test_a_request_gets_in_by_host_origin_and_token(asked: RequestHead, status: int | None):
    refusal = refuse_head(asked, Hosts()) or RULE.refusal(asked)
    assert (None if refusal is None else refusal.status) == status


def test_each_secret_is_good_for_one_thing():
    assert len({KEYS.token, KEYS.cookie, KEYS.form}) == 3
    assert AccessKeys("other").cookie != KEYS.cookie


@pytest.mark.parametrize(("host", "known"), [("192.168.0.7:8700", True), ("box", True), ("box.evil.example", False)])
def test_a_server_that_others_reach_is_known_by_addresses_and_by_names_that_were_given(host: str, known: bool):
    assert Hosts(frozenset({"box"}), any_address=True).knows(host) is known


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_is_known_by_name_and_number(host: str):
    assert is_loopback(host)
    assert not is_loopback("example.org")


# --- the app behind the gate


def test_without_the_token_nothing_is_told(server: Served):
    for path in ("/", "/flows", "/compare?a=x&b=y", "/runs/x", "/runs/x/events", "/runs/x/nodes/y", "/nowhere"):
        response = httpx.get(server.url + path, trust_env=False, verify=NO_TLS)
        assert response.status_code == 401, path
        assert "A token is needed" in response.text
    response = httpx.get(f"{server.url}/api/runs", trust_env=False, verify=NO_TLS)
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"].startswith("Bearer ")


def test_a_foreign_host_is_refused_even_with_the_token(server: Served):
    response = server.client.get("/", headers={"Host": "evil.example"})
    assert response.status_code == 421
    response = server.client.get(f"/?token={server.token}", headers={"Host": "evil.example"})
    assert response.status_code == 421
    assert "set-cookie" not in response.headers


def test_the_token_in_an_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(server: Served):
    response = httpx.get(f"{server.url}/flows?x=1&token={server.token}", trust_env=False, verify=NO_TLS)
    assert (response.status_code, response.headers["location"]) == (303, "/flows?x=1")
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"flowengine-{server.port}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Max-Age=86400" in cookie
    assert server.token not in cookie
    assert httpx.get(f"{server.url}/?token=wrong", trust_env=False, verify=NO_TLS).status_code == 401
    elsewhere = httpx.get(f"{server.url}//evil.example/?token={server.token}", trust_env=False, verify=NO_TLS)
    assert elsewhere.headers["location"] == "/evil.example/"
    odd = httpx.get(f"{server.url}/flows/a%3Fb%23c%25d?x=1&token={server.token}", trust_env=False, verify=NO_TLS)
    assert odd.headers["location"] == "/flows/a%3Fb%23c%25d?x=1"


@pytest.mark.parametrize("value", ['"' + "\\" * 60_000 + '"', '"' + "\\0" * 30_000 + '"', ";" * 60_000, "=;" * 30_000])
def test_a_long_cookie_takes_no_time(server: Served, value: str):
    with done_within(0.5):
        assert httpx.get(f"{server.url}/", headers={"Cookie": f"a={value}"}, trust_env=False).status_code == 401


def test_a_cross_origin_post_is_refused_whatever_it_brings(server: Served):
    with httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS) as browser:
        browser.get(f"/?token={server.token}")
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            for path in ("/api/runs", "/runs/x/approve/y", "/api/runs/x/cancel"):
                response = browser.post(path, headers={"Origin": origin}, data={"choice": "yes"})
                assert response.status_code == 403, (origin, path)
        assert browser.post("/api/runs", headers={"Origin": server.url}, json={"flow": "shout"}).status_code == 403
    response = server.client.post("/api/runs", headers={"Origin": "http://evil.example"}, json={"flow": "shout"})
    assert response.status_code == 403
    assert server.get("/api/runs")["total"] == 0


def test_a_form_without_its_secret_is_refused(server: Served):
    with httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS) as browser:
        browser.get(f"/?token={server.token}")
        headers = {"Origin": server.url}
        assert browser.post("/runs/x/approve/y", headers=headers, data={"choice": "yes"}).status_code == 403
        assert browser.post("/runs/x/approve/y", headers=headers, data={"token": server.token}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/flows", "/api/runs", "/static/viewer.css", "/nowhere", "/runs/nobody"])
def test_every_answer_forbids_what_no_page_of_ours_needs(server: Served, path: str):
    headers = server.client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers or "uvicorn" in headers["server"]


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/flows/..%2f..%2fetc%2fpasswd",
     "/flows//etc/passwd", "/runs/..%2f..%2fetc%2fpasswd", "/runs/x/nodes/../../../etc/passwd", "/static/viewer.py"],
)  # fmt: skip
def test_no_path_outside_of_the_store_is_served(server: Served, path: str):
    response = server.client.get(path)
    assert response.status_code == 404
    assert "root:" not in response.text
    assert "import" not in response.text


def test_bodies_are_read_up_to_a_limit(server: Served):
    large = b'{"flow": "' + b"x" * 5_000_000 + b'"}'
    headers = {"Content-Type": "application/json"}
    assert server.client.post("/api/runs", content=large, headers=headers).status_code == 413
    assert server.client.post("/api/runs", content=iter([large]), headers=headers).status_code == 413
    assert server.client.post("/api/runs", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
