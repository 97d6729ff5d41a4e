"""Bridges Slack's Events API and turnstream's gateway: POST /slack from the one, /gateway from the other."""

import json
import re
from collections.abc import Mapping
from typing import Any

from bridge import Answer, Gateway, Setting, again, call, is_recent, is_same, mac, read_settings, serve

EXAMPLE = """  TURNSTREAM_TOKEN=… TURNSTREAM_AGENT_TOKEN=… TURNSTREAM_TENANT=shop TURNSTREAM_WEBHOOK_SECRET=… \\
  SLACK_BOT_TOKEN=xoxb-… SLACK_SIGNING_SECRET=… SLACK_AGENTS=U0AGENT,U0OTHER SLACK_AGENTS_CHANNEL=C0DESK \\
  python3 deploy/recipes/slack.py"""
SETTINGS = [
    Setting("SLACK_BOT_TOKEN", "the bot token of the app (xoxb-…)"),
    Setting("SLACK_SIGNING_SECRET", "the signing secret of the app"),
    Setting("SLACK_AGENTS", "ids of the users who are agents, with commas between them", ""),
    Setting("SLACK_AGENTS_CHANNEL", "id of the channel that is told who waits; without it nobody is", ""),
    Setting("SLACK_RELEASE", "what an agent writes to give a conversation back", "!release"),
    Setting("SLACK_API_URL", "where Slack is", "https://slack.com/api"),
]
# Slack gives an event 3 seconds, and sends it again after any failure.
GATEWAY_SECONDS = 2.0
LATER = 503
CONVERSATION = re.compile(r"slack-([A-Z0-9]+)-([A-Z0-9]+)(?:-([0-9]+\.[0-9]+))?")
# Transient errors, which Slack also sends with status 200.
PASSING = ("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")


class Bridge:
    """The bridge. It keeps no state: the id of a conversation contains the channel and the thread."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.gateway = Gateway(settings, GATEWAY_SECONDS, LATER)
        self.url = settings["SLACK_API_URL"]
        self.headers = {"authorization": f"Bearer {settings['SLACK_BOT_TOKEN']}"}
        self.secret = settings["SLACK_SIGNING_SECRET"].encode()
        self.agents = {agent.strip() for agent in settings["SLACK_AGENTS"].split(",")}
        self.agents_channel = settings["SLACK_AGENTS_CHANNEL"]
        self.release = settings["SLACK_RELEASE"]

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether Slack signed this recently."""
        at = headers.get("x-slack-request-timestamp", "")
        signed = "v0=" + mac(self.secret, f"v0:{at}:".encode() + body).hex()
        return is_recent(at) and is_same(signed, headers.get("x-slack-signature", ""))

    def from_slack(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Takes an event of Slack."""
        if not self.is_signed(headers, body):
            return Answer(401, "not signed by Slack")
        payload = json.loads(body)
        if payload["type"] == "url_verification":
            return Answer(200, "url_verification", {"content-type": "text/plain"}, payload["challenge"].encode())
        if payload["type"] != "event_callback" or not self.is_said(payload["event"]):
            return Answer(200, f"{payload['type']} says nothing to the engine")
        event, text = payload["event"], text_of(payload)
        conversation = conversation_id(payload["team_id"], event)
        # A mention in a channel comes as two events with two ids; a message has one `ts` in its channel.
        turn_id = event["ts"]
        is_agent = event["user"] in self.agents
        if is_agent and text == self.release:
            return self.gateway.release(conversation, turn_id)
        if not text:
            return Answer(200, f"{conversation} {turn_id} has no words")
        return self.gateway.turn(conversation, turn_id, "system" if is_agent else "user", text)

    def is_said(self, event: Mapping[str, Any]) -> bool:
        """Whether a person said this in a conversation."""
        is_message = event["type"] in ("message", "app_mention") and not event.get("subtype")
        is_person = bool(event.get("user")) and not event.get("bot_id")
        return is_message and is_person and event["channel"] != self.agents_channel

    def from_gateway(self, kind: str, data: Mapping[str, Any]) -> Answer:
        """Posts a response in its thread, or tells the agents which conversation waits."""
        place = CONVERSATION.fullmatch(data["conversation_id"])
        if place is None:
            return Answer(204, "is not Slack's")
        _, channel, thread = place.groups()
        if kind == "response" and data["text"]:
            return self.post("response", channel, escaped(data["text"]), thread)
        if kind == "conversation" and data["holder"] == "waiting" and self.agents_channel:
            where = f"<#{channel}>, thread {thread}" if thread else f"direct messages {channel}"
            queue = escaped(data.get("queue", "without a name"))
            text = f"A customer waits for an agent. Queue: {queue}. Where: {where}. Id: {data['conversation_id']}"
            return self.post("waiting", self.agents_channel, text)
        return Answer(204, "changes nothing in Slack")

    def post(self, what: str, channel: str, text: str, thread: str | None = None) -> Answer:
        """Posts a message, and returns the answer to the gateway."""
        message = {"channel": channel, "text": text, "unfurl_links": False, "unfurl_media": False}
        if thread:
            message["thread_ts"] = thread
        reply = call(f"{self.url}/chat.postMessage", self.headers, message)
        result = json.loads(reply.body) if reply.status == 200 else {}
        error = result.get("error", "")
        said = f"{what}: status {reply.status} {error}"
        if reply.is_passing() or error in PASSING:
            return again(reply, said)
        return Answer(204 if result.get("ok") else 422, said)


def conversation_id(team: str, event: Mapping[str, Any]) -> str:
    """Returns the id of a conversation: a thread of a channel, or a whole direct channel."""
    if event.get("channel_type") == "im":
        return f"slack-{team}-{event['channel']}"
    return f"slack-{team}-{event['channel']}-{event.get('thread_ts') or event['ts']}"


def text_of(payload: Mapping[str, Any]) -> str:
    """Returns the text of a message without a leading mention of the app, unescaped."""
    text = payload["event"].get("text", "").strip()
    for app in payload.get("authorizations", []):
        if app["is_bot"]:
            text = text.removeprefix(f"<@{app['user_id']}>").strip()
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escaped(text: str) -> str:
    """Escapes a text, so that nothing in it becomes a mention or a link in Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def main() -> None:
    settings = read_settings(__doc__, EXAMPLE, SETTINGS)
    bridge = Bridge(settings)
    serve(settings, {"/slack": bridge.from_slack, "/gateway": bridge.gateway.route(bridge.from_gateway)})


if __name__ == "__main__":
    main()
