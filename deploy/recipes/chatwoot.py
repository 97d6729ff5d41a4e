"""Bridges Chatwoot's agent bot and turnstream's gateway: POST /chatwoot from the one, /gateway from the other."""

import json
import re
from collections.abc import Mapping
from typing import Any

from bridge import Answer, Gateway, Reply, Setting, again, call, is_recent, is_same, mac, read_settings, serve

EXAMPLE = """  TURNSTREAM_TOKEN=… TURNSTREAM_AGENT_TOKEN=… TURNSTREAM_TENANT=shop TURNSTREAM_WEBHOOK_SECRET=… \\
  CHATWOOT_URL=https://chat.example CHATWOOT_BOT_TOKEN=… CHATWOOT_BOT_SECRET=… python3 deploy/recipes/chatwoot.py"""
SETTINGS = [
    Setting("CHATWOOT_URL", "where Chatwoot is"),
    Setting("CHATWOOT_BOT_TOKEN", "the access token of the agent bot"),
    Setting("CHATWOOT_BOT_SECRET", "the webhook secret of the agent bot"),
]
# Chatwoot gives a webhook 5 seconds.
GATEWAY_SECONDS = 4.0
# Chatwoot sends again only after 429 and 500; after other failures it opens the conversation for its agents.
LATER = 500
CONVERSATION = re.compile(r"chatwoot-([0-9]+)-([0-9]+)")
# Marks our own messages, even if they are posted with a person's token.
RESPONSE_ID = "turnstream_response_id"


class Bridge:
    """The bridge. It keeps no state: the id of a conversation contains Chatwoot's own ids."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.gateway = Gateway(settings, GATEWAY_SECONDS, LATER)
        self.url = settings["CHATWOOT_URL"]
        self.headers = {"api_access_token": settings["CHATWOOT_BOT_TOKEN"]}
        self.secret = settings["CHATWOOT_BOT_SECRET"].encode()

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether Chatwoot signed this recently."""
        at = headers.get("x-chatwoot-timestamp", "")
        signed = "sha256=" + mac(self.secret, f"{at}.".encode() + body).hex()
        return is_recent(at) and is_same(signed, headers.get("x-chatwoot-signature", ""))

    def from_chatwoot(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Takes a webhook of Chatwoot."""
        if not self.is_signed(headers, body):
            return Answer(401, "not signed by Chatwoot")
        event = json.loads(body)
        kind = event.get("event")
        speaker = speaker_of(event) if kind == "message_created" else None
        if speaker:
            conversation = conversation_id(event["account"]["id"], event["conversation"]["id"])
            return self.gateway.turn(conversation, f"message-{event['id']}", speaker, event["content"])
        is_status = kind in ("conversation_resolved", "conversation_status_changed")
        # In Chatwoot's events about a conversation, only the last message names the account.
        if is_status and event["status"] == "resolved" and event["messages"]:
            conversation = conversation_id(event["messages"][0]["account_id"], event["id"])
            changed_at = event.get("updated_at", event["timestamp"])
            return self.gateway.release(conversation, f"resolved-{changed_at}")
        return Answer(200, f"{kind} says nothing to the engine")

    def from_gateway(self, kind: str, data: Mapping[str, Any]) -> Answer:
        """Posts a response in Chatwoot, or sets a conversation's status by who is to answer."""
        place = CONVERSATION.fullmatch(data["conversation_id"])
        if place is None:
            return Answer(204, "is not Chatwoot's")
        at = f"{self.url}/api/v1/accounts/{place[1]}/conversations/{place[2]}"
        if kind == "response" and data["text"]:
            marks = {RESPONSE_ID: data["response_id"]}
            message = {"content": data["text"], "message_type": "outgoing", "content_attributes": marks}
            return told(call(f"{at}/messages", self.headers, message), "response")
        status = status_of(data) if kind == "conversation" else None
        if status:
            return told(call(f"{at}/toggle_status", self.headers, {"status": status}), status)
        return Answer(204, "changes nothing in Chatwoot")


def conversation_id(account: int, conversation: int) -> str:
    """Returns turnstream's id of a conversation in Chatwoot."""
    return f"chatwoot-{account}-{conversation}"


def speaker_of(message: Mapping[str, Any]) -> str | None:
    """Returns `user` for a customer's message, `system` for an agent's, and `None` for all others."""
    if message.get("private") or not (message.get("content") or "").strip():
        return None
    if message["message_type"] == "incoming":
        return "user"
    is_person = (message.get("sender") or {}).get("type") == "user"
    is_ours = RESPONSE_ID in (message.get("content_attributes") or {})
    is_campaign = "campaign_id" in (message.get("additional_attributes") or {})
    is_agent = message["message_type"] == "outgoing" and is_person and not is_ours and not is_campaign
    return "system" if is_agent else None


def status_of(change: Mapping[str, Any]) -> str | None:
    """Returns the status in Chatwoot after a change of hands; `None` leaves it unchanged."""
    if change["holder"] == "waiting":
        return "open"
    # A release follows when a conversation is resolved, which `pending` would undo.
    return "pending" if change["holder"] == "bot" and change["reason"] != "release" else None


def told(reply: Reply, what: str) -> Answer:
    """Returns the answer to the gateway after this reply of Chatwoot."""
    said = f"{what}: status {reply.status}"
    if reply.is_passing():
        return again(reply, said)
    return Answer(204 if reply.status < 300 else 422, said)


def main() -> None:
    settings = read_settings(__doc__, EXAMPLE, SETTINGS)
    bridge = Bridge(settings)
    routes = {"/chatwoot": bridge.from_chatwoot, "/gateway": bridge.gateway.route(bridge.from_gateway)}
    serve(settings, routes)


if __name__ == "__main__":
    main()
