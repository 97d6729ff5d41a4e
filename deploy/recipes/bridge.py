"""The parts that the recipes share: settings, signatures, calls, the gateway's side, and an HTTP server."""

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import logging
import os
import signal
import socketserver
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import quote

TOLERANCE_SECONDS = 300
PRODUCT_SECONDS = 8.0
MOST_BYTES = 1 << 20
MOST_IDS = 100_000
LEAST_KEY_BYTES = 24


class Setting(NamedTuple):
    """An environment variable; without a default it must be set."""

    name: str
    what: str
    default: str | None = None


class Answer(NamedTuple):
    """The answer to a request, and its line in the log."""

    status: int
    said: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Reply(NamedTuple):
    """The reply to a call; status 0 if there was none."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def is_passing(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 425, 429) or self.status >= 500


Route = Callable[[Mapping[str, str], bytes], Answer]

SETTINGS = [
    Setting("TURNSTREAM_URL", "where the gateway is", "http://127.0.0.1:8077"),
    Setting("TURNSTREAM_TOKEN", "the tenant's `token` in [gateway.tenants]"),
    Setting("TURNSTREAM_AGENT_TOKEN", "the tenant's `agent_token` in [gateway.tenants]"),
    Setting("TURNSTREAM_TENANT", "the tenant's name in [gateway.tenants]", "default"),
    Setting("TURNSTREAM_WEBHOOK_SECRET", "`secret` in [gateway.webhook]"),
    Setting("BRIDGE_ADDRESS", "host and port that the bridge listens on", "127.0.0.1:8078"),
]


def read_settings(doc: str, example: str, own: list[Setting]) -> dict[str, str]:
    """Reads the environment, or ends the process with a message that names the wrong variable."""
    lines = [f"  {it.name:26} {it.what}" + (f" ({it.default})" if it.default else "") for it in own + SETTINGS]
    epilog = "\n".join(["environment variables:", *lines, "", "example:", example])
    style = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=doc, epilog=epilog, formatter_class=style).parse_args()
    values = {}
    for name, what, default in own + SETTINGS:
        value = os.environ.get(name, "").strip() or default
        if value is None:
            sys.exit(f"{name} is not set: {what}; --help lists all settings")
        if name.endswith("_URL"):
            value = value.rstrip("/")
            if not value.startswith(("http://", "https://")):
                sys.exit(f"{name} = {value!r} is no address, such as https://desk.example")
        values[name] = value
    return values


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256."""
    return hmac.new(key, message, hashlib.sha256).digest()


def is_same(expected: str, sent: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(expected.encode(), sent.encode())


def is_recent(seconds: str) -> bool:
    """Whether this time, in seconds since 1970, is within five minutes of now."""
    return seconds.isdecimal() and len(seconds) < 12 and abs(time.time() - int(seconds)) <= TOLERANCE_SECONDS


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is for the configured address alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirects)


def call(url: str, headers: Mapping[str, str], body: Mapping[str, Any], seconds: float = PRODUCT_SECONDS) -> Reply:
    """Posts JSON and returns the reply."""
    headers = {"content-type": "application/json; charset=utf-8", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with OPENER.open(request, timeout=seconds) as response:
            return Reply(response.status, response.headers, response.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.headers)
    except (OSError, http.client.HTTPException) as error:
        logging.warning("nobody answers at %s: %s", url, error)
        return Reply(0, {})


def again(reply: Reply, said: str) -> Answer:
    """Tells the gateway to send the event again, at the time that the product allows."""
    after = reply.headers.get("retry-after", "")
    return Answer(503, said, {"retry-after": after} if after.isdecimal() else {})


class DeliveredEvents:
    """The ids of the latest delivered events, kept in memory alone."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self.most = most
        self.lock = threading.Lock()
        self.under_way: set[str] = set()
        self.ids: dict[str, None] = {}

    def once(self, event: str, deliver: Callable[[], Answer]) -> Answer:
        """Delivers an event once. If another thread is delivering it, asks for it again."""
        with self.lock:
            if event in self.ids:
                return Answer(204, "was delivered before")
            if event in self.under_way:
                return Answer(503, "is being delivered")
            self.under_way.add(event)
        answer = None
        try:
            answer = deliver()
            return answer
        finally:
            with self.lock:
                self.under_way.discard(event)
                if answer and answer.status < 300:
                    self.ids[event] = None
                if len(self.ids) > self.most:
                    del self.ids[next(iter(self.ids))]


class Gateway:
    """The gateway: sends turns and releases to it, and takes events from it."""

    def __init__(self, settings: Mapping[str, str], seconds: float, later: int) -> None:
        """`seconds` bounds a call; `later` is the status that makes the product send again."""
        self.url = settings["TURNSTREAM_URL"]
        self.tokens = {"user": settings["TURNSTREAM_TOKEN"], "system": settings["TURNSTREAM_AGENT_TOKEN"]}
        self.tenant = settings["TURNSTREAM_TENANT"]
        self.seconds, self.later = seconds, later
        self.delivered = DeliveredEvents()
        try:
            secret = settings["TURNSTREAM_WEBHOOK_SECRET"].removeprefix("whsec_")
            self.key = base64.b64decode(secret, validate=True)
        except ValueError:
            self.key = b""
        if len(self.key) < LEAST_KEY_BYTES:
            sys.exit(f"TURNSTREAM_WEBHOOK_SECRET must be base64 of at least {LEAST_KEY_BYTES} bytes")

    def turn(self, conversation: str, turn_id: str, speaker: str, text: str) -> Answer:
        """Writes a turn; one of the speaker `system` takes the conversation over."""
        return self._post(conversation, "turns", speaker, {"turn_id": turn_id, "speaker": speaker, "text": text})

    def release(self, conversation: str, turn_id: str) -> Answer:
        """Gives the conversation back to the engine."""
        return self._post(conversation, "release", "system", {"turn_id": turn_id})

    def _post(self, conversation: str, what: str, speaker: str, body: Mapping[str, str]) -> Answer:
        # The gateway answers once the turn is on the log: a chat product does not wait for the response.
        headers = {"authorization": f"Bearer {self.tokens[speaker]}", "prefer": "respond-async"}
        url = f"{self.url}/v1/conversations/{quote(conversation)}/{what}"
        reply = call(url, headers, body, self.seconds)
        said = f"{conversation} {what} {speaker} {body['turn_id']}: status {reply.status}"
        if reply.is_passing():
            return Answer(self.later, said)
        return Answer(200 if reply.status in (200, 202, 422) else 422, said)

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the gateway signed this recently, as Standard Webhooks specifies."""
        event, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        signed = "v1," + base64.b64encode(mac(self.key, f"{event}.{at}.".encode() + body)).decode()
        sent = headers.get("webhook-signature", "").split()
        return is_recent(at) and any([is_same(signed, it) for it in sent])

    def route(self, deliver: Callable[[str, Mapping[str, Any]], Answer]) -> Route:
        """Returns a route for the gateway's events; `deliver` gets the type and the data of each."""

        def take(headers: Mapping[str, str], body: bytes) -> Answer:
            if not self.is_signed(headers, body):
                return Answer(401, "not signed by the gateway")
            event = json.loads(body)
            kind, data = event["type"], event["data"]
            if data.get("tenant_id", "default") != self.tenant:
                return Answer(204, f"{event['id']} is of another tenant")
            answer = self.delivered.once(event["id"], lambda: deliver(kind, data))
            return answer._replace(said=f"{event['id']} {data['conversation_id']} {answer.said}")

        return take


class Server(ThreadingHTTPServer):
    """An HTTP server with one thread for each request; it answers requests under way before the process ends."""

    daemon_threads = False
    request_queue_size = 128
    routes: Mapping[str, Route] = {}

    def server_bind(self) -> None:
        # HTTPServer's own method also asks the DNS for this machine's name, which is not needed.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_: Any) -> None:
        logging.warning("a request broke off: %r", sys.exc_info()[1])


class Handler(BaseHTTPRequestHandler):
    """Answers POSTs by their path, and logs one line for each."""

    server: Server
    timeout = 5

    def do_POST(self) -> None:
        answer = self._answer()
        level = logging.INFO if answer.status < 400 else logging.WARNING
        logging.log(level, "%s %s", answer.status, " ".join(answer.said.split()))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _answer(self) -> Answer:
        route = self.server.routes.get(self.path.partition("?")[0])
        length = self.headers.get("content-length", "")
        if route is None:
            return Answer(404, "no such path")
        if not length.isdecimal():
            return Answer(411, "no content-length")
        if len(length) > 9 or int(length) > MOST_BYTES:
            return Answer(413, "too long")
        try:
            return route(self.headers, self.rfile.read(int(length)))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            logging.exception("not understood")
            return Answer(500, f"not understood: {error!r}")

    def log_message(self, *_: Any) -> None:
        """Logs nothing, since `do_POST` does."""


def serve(settings: Mapping[str, str], routes: Mapping[str, Route]) -> None:
    """Serves until SIGTERM or SIGINT."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    host, _, port = settings["BRIDGE_ADDRESS"].rpartition(":")
    try:
        if not host:
            raise ValueError("no host")
        server = Server((host, int(port)), Handler)
    except (OSError, OverflowError, ValueError) as error:
        sys.exit(f"BRIDGE_ADDRESS = {settings['BRIDGE_ADDRESS']!r} is no host and port to listen on: {error}")
    server.routes = routes
    for ending in (signal.SIGTERM, signal.SIGINT):
        # `shutdown` waits for the loop below, which runs in the thread that gets the signal.
        signal.signal(ending, lambda *_: threading.Thread(target=server.shutdown).start())
    print("listening on http://{}:{}".format(*server.server_address), file=sys.stderr, flush=True)
    with server:
        server.serve_forever(poll_interval=0.1)
