"""Runs the bridges between a fake gateway and fake products, on payloads as Chatwoot and Slack send them."""

import base64
import hashlib
import hmac
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

sys.dont_write_bytecode = True

from bridge import Answer, DeliveredEvents  # noqa: E402

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "tests" / "fixtures"
KEY = bytes(range(32))
SECRET = base64.b64encode(KEY).decode()
HANG_UP = 0
# The answer of a fake: a status, headers and a body.
Scripted = tuple[int, dict[str, str], Any]


class Call(NamedTuple):
    """A call that a fake received."""

    path: str
    headers: Mapping[str, str]
    body: Any


class Fake:
    """A server that records its calls, and gives the scripted answers, else 200."""

    def __init__(self) -> None:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                fake.calls.append(Call(self.path, self.headers, body))
                fake.is_open.wait(10)
                status, headers, said = fake.answers.pop(0) if fake.answers else (200, {}, fake.usual)
                if status == HANG_UP:
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.usual: Any = {"ok": True}
        self.reset()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def reset(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[Scripted] = []
        self.is_open = threading.Event()
        self.is_open.set()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Bridge:
    """A bridge in a separate process."""

    def __init__(self, script: str, settings: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-B", HERE / script], env=dict(settings), stderr=subprocess.PIPE, text=True
        )
        line = self.process.stderr.readline()
        bound = re.fullmatch(r"listening on http://(127\.0\.0\.1):([0-9]+)\n", line)
        if bound is None:
            self.stop()
            raise AssertionError(f"{script} said {line!r}")
        self.host, self.port = bound[1], int(bound[2])
        self.log: list[str] = []
        self.reading = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reading.start()

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        connection.request("POST", path, body, dict(headers))
        response = connection.getresponse()
        answer = response.status, response.headers, response.read()
        connection.close()
        return answer

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(10)
        if hasattr(self, "reading"):
            self.reading.join(10)
        self.process.stderr.close()
        return status


def payload(name: str, **changes: Any) -> dict[str, Any]:
    return json.loads((FIXTURES / "recipes" / f"{name}.json").read_bytes()) | changes


def record(name: str, **changes: Any) -> dict[str, Any]:
    """A record of turnstream as the gateway sends it."""
    told = json.loads((FIXTURES / "records" / "v1" / f"{name}.json").read_bytes())
    told.pop("tenant_id", None)
    return {"tenant_id": "ferries", **told, **changes}


def signed(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


class BridgeTest(unittest.TestCase):
    """Tests of one bridge, which is started once for all of them."""

    script: str
    secret = SECRET
    own: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        if cls is BridgeTest or not hasattr(cls, "own"):
            raise unittest.SkipTest("only the tests of a bridge run")
        cls.gateway, cls.product = Fake(), Fake()
        cls.settings = {
            "TURNSTREAM_URL": cls.gateway.url,
            "TURNSTREAM_TOKEN": "front",
            "TURNSTREAM_AGENT_TOKEN": "desk",
            "TURNSTREAM_TENANT": "ferries",
            "TURNSTREAM_WEBHOOK_SECRET": cls.secret,
            "BRIDGE_ADDRESS": "127.0.0.1:0",
        } | {name: value.replace("PRODUCT", cls.product.url) for name, value in cls.own.items()}
        cls.bridge = Bridge(cls.script, cls.settings)

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.bridge.stop() == 0, "SIGTERM ends it cleanly"
        for fake in (cls.gateway, cls.product):
            fake.stop()

    def setUp(self) -> None:
        for fake in (self.gateway, self.product):
            fake.reset()
        self.event_id = f"responses-0-{time.monotonic_ns()}"

    def tell(self, kind: str, data: Mapping[str, Any], event_id: str = "") -> tuple[int, Mapping[str, str]]:
        """Calls the bridge as the gateway does."""
        event_id = event_id or f"{kind}-0-{time.monotonic_ns()}"
        body = json.dumps({"id": event_id, "type": kind, "data": data}).encode()
        now = str(int(time.time()))
        signature = base64.b64encode(signed(KEY, f"{event_id}.{now}.".encode() + body)).decode()
        headers = {"webhook-id": event_id, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
        status, headers, _ = self.bridge.post("/gateway", headers, body)
        return status, headers

    def assert_gateway_called(self, path: str, token: str, body: dict[str, str]) -> None:
        """Checks that this was the only call."""
        called = [
            (call.path, call.headers["authorization"], call.headers["prefer"], call.body)
            for call in self.gateway.calls
        ]
        expected = (f"/v1/conversations/{path}", f"Bearer {token}", "respond-async", body)
        self.assertEqual((called, self.product.calls), ([expected], []))
        self.gateway.reset()

    def assert_nobody_called(self) -> None:
        self.assertEqual((self.gateway.calls, self.product.calls), ([], []))

    def check_what_the_gateway_answers(self, name: str, later: int) -> None:
        cases = [(200, 200), (202, 200), (422, 200), (503, later), (504, later), (429, later), (HANG_UP, later)]
        for status, answered in [*cases, (400, 422), (401, 422), (403, 422), (302, 422)]:
            with self.subTest(status):
                self.gateway.reset()
                self.gateway.answers = [(status, {"location": f"{self.gateway.url}/elsewhere"}, {})]
                self.assertEqual(self.say(payload(name))[0], answered)
                self.assertEqual(len(self.gateway.calls), 1, "nothing is sent twice, and no redirect followed")

    def check_events_that_come_again(self, data: Mapping[str, Any], failures: list[Scripted]) -> None:
        """The product fails, then accepts the event; after that the gateway sends it once more."""
        for failure in failures:
            with self.subTest(failure):
                self.product.reset()
                self.product.answers = [failure]
                event_id = f"responses-0-{time.monotonic_ns()}"
                status, headers = self.tell("response", data, event_id)
                self.assertEqual((status, headers.get("retry-after")), (503, failure[1].get("retry-after")))
                self.assertEqual(self.tell("response", data, event_id)[0], 204)
                self.assertEqual(len(self.product.calls), 2)
                self.assertEqual(self.product.calls[0].body, self.product.calls[1].body)
                self.assertEqual(self.tell("response", data, event_id)[0], 204)
                self.assertEqual(len(self.product.calls), 2, "it was delivered")

    def check_events_that_are_refused(self, data: Mapping[str, Any], refusal: Scripted) -> None:
        self.product.answers = [refusal]
        self.assertEqual(self.tell("response", data)[0], 422)
        self.assertEqual(len(self.product.calls), 1, "no redirect is followed")

    def say(self, event: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Calls the bridge as the product does."""
        body = json.dumps(event).encode()
        return self.bridge.post(self.path, self.signature(body), body)

    def check_who_signs(self, name: str) -> None:
        """Only requests that were signed lately pass, in either direction."""
        body = json.dumps(payload(name)).encode()
        now = int(time.time())
        data = record("response.brief", conversation_id="chatwoot-3-451")
        event = json.dumps({"id": self.event_id, "type": "response", "data": data}).encode()
        for path, sign, said in [(self.path, self.signature, body), ("/gateway", self.gateway_signature, event)]:
            refused = {
                "unsigned": ({}, said),
                "another key": (sign(said, key=b"another"), said),
                "another body": (sign(said), said.replace(b"a", b"b", 1)),
                "too old": (sign(said, at=now - 310), said),
                "too early": (sign(said, at=now + 310), said),
                "no time": ({**sign(said), **{it: "soon" for it in sign(said) if "time" in it}}, said),
                "no ASCII": ({**sign(said), **{it: "é" for it in sign(said) if "signature" in it}}, said),
            }
            for why, (headers, sent) in refused.items():
                with self.subTest(f"{path}: {why}"):
                    self.assertEqual(self.bridge.post(path, headers, sent)[0], 401)
                    self.assert_nobody_called()
            for at in (now - 290, now + 290):
                self.assertIn(self.bridge.post(path, sign(said, at=at), said)[0], (200, 204))
            self.gateway.reset()
            self.product.reset()

    def gateway_signature(self, body: bytes, key: bytes = KEY, at: int = 0) -> dict[str, str]:
        now = str(at or int(time.time()))
        mark = base64.b64encode(signed(key, f"{self.event_id}.{now}.".encode() + body)).decode()
        # A sender that changes its key signs with both.
        headers = {"webhook-id": self.event_id, "webhook-timestamp": now}
        return {**headers, "webhook-signature": f"v1a,other v1,{'A' * 44} v1,{mark}"}


class ChatwootTest(BridgeTest):
    script, path = "chatwoot.py", "/chatwoot"
    own = {"CHATWOOT_URL": "PRODUCT/", "CHATWOOT_BOT_TOKEN": "bot-token", "CHATWOOT_BOT_SECRET": "chatwoot-secret"}
    response = record("response.brief", conversation_id="chatwoot-3-451", outcome="response")

    def signature(self, body: bytes, key: bytes = b"chatwoot-secret", at: int = 0) -> dict[str, str]:
        now = str(at or int(time.time()))
        mark = signed(key, f"{now}.".encode() + body).hex()
        return {"x-chatwoot-timestamp": now, "x-chatwoot-signature": f"sha256={mark}", "x-chatwoot-delivery": "d-1"}

    def test_a_customers_message_is_a_turn_with_one_id_however_often_it_comes(self) -> None:
        turn = {
            "turn_id": "message-9001",
            "speaker": "user",
            "text": "When does the last ferry leave on Sundays?",
        }
        for _ in range(2):
            self.assertEqual(self.say(payload("chatwoot/customer_message"))[0], 200)
            self.assert_gateway_called("chatwoot-3-451/turns", "front", turn)

    def test_an_agents_message_takes_over(self) -> None:
        self.assertEqual(self.say(payload("chatwoot/agent_message"))[0], 200)
        text = "I have moved your booking to the 21:40 ferry."
        turn = {"turn_id": "message-9005", "speaker": "system", "text": text}
        self.assert_gateway_called("chatwoot-3-451/turns", "desk", turn)

    def test_what_else_happens_in_chatwoot_is_no_turn(self) -> None:
        customer, agent = payload("chatwoot/customer_message"), payload("chatwoot/agent_message")
        others = {
            "the bot's own": payload("chatwoot/bot_message"),
            "ours with a person's token": agent | {"content_attributes": {"turnstream_response_id": "turns-2-18"}},
            "a private note": payload("chatwoot/agent_private_note"),
            "a picture": customer | {"content": None, "attachments": [{"id": 1, "file_type": "image"}]},
            "an automation": agent | {"sender": None},
            "a campaign": agent | {"additional_attributes": {"campaign_id": 5}},
            "a greeting": agent | {"message_type": "template", "sender": None},
            "a change of the agent": agent | {"message_type": "activity"},
            "an edit": customer | {"event": "message_updated"},
            "opened": payload("chatwoot/conversation_opened"),
            "snoozed": payload("chatwoot/conversation_resolved", event="conversation_status_changed", status="snoozed"),
            "never spoken in": payload("chatwoot/conversation_resolved", messages=[]),
            "the widget": {"event": "webwidget_triggered", "id": 140, "source_id": "5b1c"},
        }
        for why, event in others.items():
            with self.subTest(why):
                self.assertEqual(self.say(event)[0], 200)
                self.assert_nobody_called()

    def test_a_resolved_conversation_is_released_with_one_id_however_it_is_told(self) -> None:
        resolved = payload("chatwoot/conversation_resolved")
        for event in (resolved, resolved, resolved | {"event": "conversation_status_changed"}):
            self.assertEqual(self.say(event)[0], 200)
            directive = {"turn_id": "resolved-1790000300.748213"}
            self.assert_gateway_called("chatwoot-3-451/release", "desk", directive)

    def test_what_the_gateway_cannot_take_comes_again(self) -> None:
        # Chatwoot sends again after 500, and not after 503.
        self.check_what_the_gateway_answers("chatwoot/customer_message", 500)
        self.check_what_the_gateway_answers("chatwoot/conversation_resolved", 500)

    def test_only_signed_requests_are_taken(self) -> None:
        self.check_who_signs("chatwoot/customer_message")

    def test_a_response_is_posted_once(self) -> None:
        for _ in range(2):
            self.assertEqual(self.tell("response", self.response, self.event_id)[0], 204)
        [call] = self.product.calls
        self.assertEqual(call.path, "/api/v1/accounts/3/conversations/451/messages")
        self.assertEqual(call.headers["api_access_token"], "bot-token")
        marks = {"turnstream_response_id": "turns-2-18"}
        text = "The tower is open from ten to four."
        self.assertEqual(call.body, {"content": text, "message_type": "outgoing", "content_attributes": marks})
        self.assertEqual(self.gateway.calls, [])

    def test_what_chatwoot_cannot_take_comes_again_and_is_posted_once(self) -> None:
        failures = [(503, {}, {}), (500, {}, {}), (429, {"retry-after": "7"}, {}), (HANG_UP, {}, {})]
        self.check_events_that_come_again(self.response, failures)

    def test_what_chatwoot_refuses_is_refused(self) -> None:
        for status in (401, 404, 422):
            self.product.reset()
            self.check_events_that_are_refused(self.response, (status, {}, {}))
        self.product.reset()
        self.check_events_that_are_refused(self.response, (302, {"location": f"{self.product.url}/x"}, {}))

    def test_an_event_that_is_being_delivered_is_not_delivered_beside_that(self) -> None:
        self.product.is_open.clear()
        answers: list[int] = []
        first = threading.Thread(
            target=lambda: answers.append(self.tell("response", self.response, self.event_id)[0])
        )
        first.start()
        while not self.product.calls:
            time.sleep(0.01)
        self.assertEqual(self.tell("response", self.response, self.event_id)[0], 503)
        self.product.is_open.set()
        first.join()
        self.assertEqual((answers, len(self.product.calls)), ([204], 1))

    def test_who_is_to_answer_shows_in_the_status(self) -> None:
        cases = [
            ("waiting", "hand_off", "open"),
            ("bot", "nobody_came", "pending"),
            ("bot", "agent_silent", "pending"),
            ("bot", "release", None),
            ("agent", "agent_turn", None),
        ]
        for holder, reason, status in cases:
            with self.subTest(reason):
                self.product.reset()
                data = record("conversation", conversation_id="chatwoot-3-451", holder=holder, reason=reason)
                self.assertEqual(self.tell("conversation", data)[0], 204)
                path = "/api/v1/accounts/3/conversations/451/toggle_status"
                expected = [(path, "bot-token", {"status": status})] if status else []
                called = [(it.path, it.headers["api_access_token"], it.body) for it in self.product.calls]
                self.assertEqual(called, expected)

    def test_events_of_others_are_left_alone(self) -> None:
        ids = ["c-7", "chatwoot-3", "chatwoot-3-451-9", "chatwoot-3-x", "slack-T1-C1", "xchatwoot-3-451"]
        for conversation in [*ids, "chatwoot-3-451\n"]:
            self.assertEqual(self.tell("response", self.response | {"conversation_id": conversation})[0], 204)
        self.assertEqual(self.tell("response", self.response | {"tenant_id": "harbour"})[0], 204)
        nobodys = {name: value for name, value in self.response.items() if name != "tenant_id"}
        self.assertEqual(self.tell("response", nobodys)[0], 204)
        self.assertEqual(self.tell("dead_letter", record("recorded.held", conversation_id="chatwoot-3-451"))[0], 204)
        self.assert_nobody_called()

    def test_requests_that_are_none(self) -> None:
        self.assertEqual(self.bridge.post("/elsewhere", {}, b"{}")[0], 404)
        self.assertEqual(self.bridge.post("/chatwoot", {"content-length": "much"}, b"")[0], 411)
        self.assertEqual(self.bridge.post("/chatwoot", {"content-length": str((1 << 20) + 1)}, b"")[0], 413)
        self.assertEqual(self.bridge.post("/chatwoot", self.signature(b"[1"), b"[1")[0], 500)
        self.assert_nobody_called()


class SlackTest(BridgeTest):
    script, path = "slack.py", "/slack"
    secret = f"whsec_{SECRET}"
    own = {
        "SLACK_API_URL": "PRODUCT/api",
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_SIGNING_SECRET": "slack-secret",
        "SLACK_AGENTS": "U0OTHER01, U0TEUN001",
        "SLACK_AGENTS_CHANNEL": "C0DESK001",
    }
    thread = "slack-T0FERRY01-C0HELP001-1790000100.000100"
    direct = "slack-T0FERRY01-D0ILSE001"
    response = record("response.brief", conversation_id=thread, outcome="response")

    def signature(self, body: bytes, key: bytes = b"slack-secret", at: int = 0) -> dict[str, str]:
        now = str(at or int(time.time()))
        mark = signed(key, f"v0:{now}:".encode() + body).hex()
        return {"x-slack-request-timestamp": now, "x-slack-signature": f"v0={mark}"}

    def assert_posted(self, body: dict[str, Any]) -> None:
        [call] = self.product.calls
        self.assertEqual((call.path, call.headers["authorization"]), ("/api/chat.postMessage", "Bearer xoxb-1"))
        self.assertEqual(call.body, body | {"unfurl_links": False, "unfurl_media": False})
        self.product.reset()

    def test_the_challenge_is_answered(self) -> None:
        status, headers, body = self.say(payload("slack/url_verification"))
        self.assertEqual((status, headers["content-type"]), (200, "text/plain"))
        self.assertEqual(body, payload("slack/url_verification")["challenge"].encode())
        self.assert_nobody_called()

    def test_what_people_say_are_turns_with_one_id_however_often_they_come(self) -> None:
        threads = [
            ("channel_message", self.thread, "1790000100.000100", "Are dogs & bicycles allowed on board?"),
            ("thread_reply", self.thread, "1790000160.000200", "And in winter?"),
            ("direct_message", self.direct, "1790000220.000500", "Is my ticket valid tomorrow?"),
        ]
        for name, conversation, turn_id, text in threads:
            for _ in range(2):
                self.assertEqual(self.say(payload(f"slack/{name}"))[0], 200)
                turn = {"turn_id": turn_id, "speaker": "user", "text": text}
                self.assert_gateway_called(f"{conversation}/turns", "front", turn)

    def test_a_mention_that_comes_as_two_events_is_one_turn_without_the_name(self) -> None:
        turn = {"turn_id": "1790000190.000300", "speaker": "user", "text": "which pier is it?"}
        for name in ("app_mention", "app_mention_as_message"):
            self.assertEqual(self.say(payload(f"slack/{name}"))[0], 200)
            self.assert_gateway_called("slack-T0FERRY01-C0HELP001-1790000190.000300/turns", "front", turn)

    def test_a_persons_name_stays(self) -> None:
        event = payload("slack/app_mention")
        event["authorizations"][0] |= {"is_bot": False, "user_id": "U0MARA001"}
        event["event"]["text"] = "<@U0MARA001> knows the pier"
        self.assertEqual(self.say(event)[0], 200)
        turn = {"turn_id": "1790000190.000300", "speaker": "user", "text": "<@U0MARA001> knows the pier"}
        self.assert_gateway_called("slack-T0FERRY01-C0HELP001-1790000190.000300/turns", "front", turn)

    def test_agents_take_over_and_release(self) -> None:
        self.assertEqual(self.say(payload("slack/agent_message"))[0], 200)
        turn = {"turn_id": "1790000280.000600", "speaker": "system", "text": "I am Teun, I look it up for you."}
        self.assert_gateway_called(f"{self.thread}/turns", "desk", turn)
        self.assertEqual(self.say(payload("slack/agent_release"))[0], 200)
        self.assert_gateway_called(f"{self.thread}/release", "desk", {"turn_id": "1790000340.000700"})

    def test_a_customer_releases_nothing(self) -> None:
        event = payload("slack/agent_release")
        event["event"]["user"] = "U0ILSE001"
        self.assertEqual(self.say(event)[0], 200)
        turn = {"turn_id": "1790000340.000700", "speaker": "user", "text": "!release"}
        self.assert_gateway_called(f"{self.thread}/turns", "front", turn)

    def test_what_else_happens_in_slack_is_no_turn(self) -> None:
        def changed(name: str, **changes: Any) -> dict[str, Any]:
            event = payload(f"slack/{name}")
            return event | {"event": event["event"] | changes}

        others = {
            "the bot's own": payload("slack/bot_message"),
            "an edit": payload("slack/edited_message"),
            "a file": changed("channel_message", subtype="file_share"),
            "only the name": changed("app_mention", text="<@U0BOT0001> "),
            "among agents": changed("agent_message", channel="C0DESK001"),
            "a reaction": changed("channel_message", type="reaction_added"),
            "nobody's": changed("channel_message", user=None),
            "a limit": {"type": "app_rate_limited", "team_id": "T0FERRY01", "minute_rate_limited": 1790000100},
        }
        for why, event in others.items():
            with self.subTest(why):
                self.assertEqual(self.say(event)[0], 200)
                self.assert_nobody_called()

    def test_what_the_gateway_cannot_take_comes_again(self) -> None:
        self.check_what_the_gateway_answers("slack/thread_reply", 503)
        self.check_what_the_gateway_answers("slack/agent_release", 503)

    def test_only_signed_requests_are_taken(self) -> None:
        self.check_who_signs("slack/thread_reply")

    def test_a_response_is_posted_once_in_its_thread(self) -> None:
        for _ in range(2):
            self.assertEqual(self.tell("response", self.response, self.event_id)[0], 204)
        text = "The tower is open from ten to four."
        self.assert_posted({"channel": "C0HELP001", "thread_ts": "1790000100.000100", "text": text})
        self.assertEqual(self.tell("response", self.response | {"conversation_id": self.direct})[0], 204)
        self.assert_posted({"channel": "D0ILSE001", "text": text})

    def test_a_response_calls_nobody_by_name(self) -> None:
        data = self.response | {"text": "Ask <!channel> & co", "conversation_id": self.direct}
        self.assertEqual(self.tell("response", data)[0], 204)
        self.assert_posted({"channel": "D0ILSE001", "text": "Ask &lt;!channel&gt; &amp; co"})

    def test_agents_are_told_once_who_waits(self) -> None:
        data = record("conversation", conversation_id=self.thread, queue="boats & more")
        for _ in range(2):
            self.assertEqual(self.tell("conversation", data, self.event_id)[0], 204)
        where = "Queue: boats &amp; more. Where: <#C0HELP001>, thread 1790000100.000100."
        text = f"A customer waits for an agent. {where} Id: {self.thread}"
        self.assert_posted({"channel": "C0DESK001", "text": text})
        data = record("conversation", conversation_id=self.direct)
        self.assertEqual(self.tell("conversation", data)[0], 204)
        where = "Queue: front desk. Where: direct messages D0ILSE001."
        text = f"A customer waits for an agent. {where} Id: {self.direct}"
        self.assert_posted({"channel": "C0DESK001", "text": text})
        for holder, reason in [("agent", "agent_turn"), ("bot", "release"), ("bot", "nobody_came")]:
            data = record("conversation", conversation_id=self.thread, holder=holder, reason=reason)
            self.assertEqual(self.tell("conversation", data)[0], 204)
        self.assert_nobody_called()

    def test_what_slack_cannot_take_comes_again_and_is_posted_once(self) -> None:
        limited = {"ok": False, "error": "ratelimited"}
        failures = [
            (429, {"retry-after": "30"}, limited),
            (200, {"retry-after": "3"}, limited),
            (200, {}, {"ok": False, "error": "internal_error"}),
            (503, {}, {}),
            (HANG_UP, {}, {}),
        ]
        self.check_events_that_come_again(self.response, failures)

    def test_what_slack_refuses_is_refused(self) -> None:
        for error in ("channel_not_found", "invalid_auth"):
            self.product.reset()
            self.check_events_that_are_refused(self.response, (200, {}, {"ok": False, "error": error}))
        self.product.reset()
        self.check_events_that_are_refused(self.response, (302, {"location": f"{self.product.url}/x"}, {}))

    def test_events_of_others_are_left_alone(self) -> None:
        for conversation in ["c-7", "slack-T1", "slack-T1-C1-soon", "chatwoot-3-451", "slack-T1-C1-1.2-3"]:
            self.assertEqual(self.tell("response", self.response | {"conversation_id": conversation})[0], 204)
        self.assertEqual(self.tell("response", self.response | {"tenant_id": "harbour"})[0], 204)
        self.assert_nobody_called()


class ProcessTest(unittest.TestCase):
    """The bridges as processes: settings, log and end."""

    settings = {
        "TURNSTREAM_TOKEN": "front",
        "TURNSTREAM_AGENT_TOKEN": "desk",
        "TURNSTREAM_WEBHOOK_SECRET": SECRET,
        "BRIDGE_ADDRESS": "127.0.0.1:0",
        **ChatwootTest.own,
        "CHATWOOT_URL": "http://127.0.0.1:1",
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_SIGNING_SECRET": "slack-secret",
    }

    def run_with(self, script: str, settings: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", HERE / script, *arguments]
        return subprocess.run(command, env=dict(settings), capture_output=True, text=True, timeout=10)

    def test_a_setting_that_is_not_as_it_should_be_is_named(self) -> None:
        common = ["TURNSTREAM_TOKEN", "TURNSTREAM_AGENT_TOKEN", "TURNSTREAM_WEBHOOK_SECRET"]
        needed = {
            "chatwoot.py": [*common, "CHATWOOT_URL", "CHATWOOT_BOT_TOKEN", "CHATWOOT_BOT_SECRET"],
            "slack.py": [*common, "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET"],
        }
        wrong = {
            "TURNSTREAM_URL": ["gateway:8077"],
            "TURNSTREAM_WEBHOOK_SECRET": ["no base64!", "c2hvcnQ=", f"!{SECRET}"],
            "BRIDGE_ADDRESS": ["8078", "127.0.0.1:http", "127.0.0.1:99999"],
        }
        for script, names in needed.items():
            cases = [(name, "") for name in names] + [(name, it) for name in wrong for it in wrong[name]]
            for name, value in cases:
                with self.subTest(f"{script} {name}={value}"):
                    ended = self.run_with(script, self.settings | {name: value})
                    self.assertEqual(ended.returncode, 1)
                    self.assertRegex(ended.stderr, f"^{name} [^\n]+\n$")

    def test_help_names_the_settings_and_an_example(self) -> None:
        for script in ("chatwoot.py", "slack.py"):
            helped = self.run_with(script, {}, "--help")
            self.assertEqual(helped.returncode, 0)
            for said in ("TURNSTREAM_WEBHOOK_SECRET", "BRIDGE_ADDRESS", "example:", f"python3 deploy/recipes/{script}"):
                self.assertIn(said, helped.stdout)

    def test_a_request_under_way_is_answered_before_the_end_and_logged_without_words(self) -> None:
        product = Fake()
        self.addCleanup(product.stop)
        product.is_open.clear()
        bridge = Bridge("chatwoot.py", self.settings | {"CHATWOOT_URL": product.url})
        test = ChatwootTest()
        test.bridge, test.event_id = bridge, "responses-2-18"
        data = {name: value for name, value in ChatwootTest.response.items() if name != "tenant_id"}
        answers: list[int] = []
        telling = threading.Thread(target=lambda: answers.append(test.tell("response", data, "responses-2-18")[0]))
        telling.start()
        while not product.calls:
            time.sleep(0.01)
        threading.Timer(0.3, product.is_open.set).start()
        self.assertEqual(bridge.stop(), 0)
        telling.join()
        self.assertEqual(answers, [204])
        [line] = bridge.log
        self.assertRegex(line, r" INFO 204 responses-2-18 chatwoot-3-451 response: status 200\n$")


class DeliveredEventsTest(unittest.TestCase):
    def test_only_the_last_events_are_remembered(self) -> None:
        events, delivered = DeliveredEvents(most=2), []
        for event in ("a", "b", "a", "c", "b", "a"):
            events.once(event, lambda: delivered.append(event) or Answer(204, ""))
        self.assertEqual(delivered, ["a", "b", "c", "a"])
        self.assertLessEqual(len(events.ids), 2)

    def test_what_failed_is_delivered_again(self) -> None:
        events = DeliveredEvents()
        self.assertEqual(events.once("a", lambda: Answer(503, "")).status, 503)
        self.assertRaises(KeyError, events.once, "a", lambda: {}["no"])
        self.assertEqual(events.once("a", lambda: Answer(204, "")).said, "")
        self.assertEqual(events.once("a", lambda: Answer(503, "")).status, 204)


if __name__ == "__main__":
    unittest.main()
