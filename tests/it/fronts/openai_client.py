"""Speaks with the gateway through OpenAI's own client, and prints what it saw, one line of JSON each."""

import json
import sys
import urllib.request

import openai

base_url, go_on = sys.argv[1:3]


def client(token: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key=token, max_retries=5)


def show(**seen: object) -> None:
    print(json.dumps(seen), flush=True)


def stream(messages: list, **more: object) -> dict:
    """A completion as it is streamed: its words, and what was not committed when it came."""
    words, partials, outcome = "", [], None
    chunks = shop.chat.completions.create(
        model="turnstream", user="ann", messages=messages, stream=True, extra_body=more
    )
    for chunk in chunks:
        ours = (chunk.model_extra or {}).get("turnstream") or {}
        if "partial" in ours:
            if not partials:
                # The model writes on once its first words were seen.
                urllib.request.urlopen(go_on).close()
            partials.append(ours["partial"])
        elif ours:
            outcome = ours
        for choice in chunk.choices:
            words += choice.delta.content or ""
    return {"words": words, "partials": partials, "outcome": outcome}


try:
    client("nobody").models.list()
except openai.AuthenticationError as error:
    show(refused=error.status_code)
shop = client("front")
show(models=[model.id for model in shop.models.list()])
messages = [{"role": "user", "content": "What is a violin?"}]
first = stream(messages, partials=True)
show(**first)
messages.append({"role": "assistant", "content": first["words"]})
# The engine is killed and started meanwhile.
for question in ["Who plays one?", "Is it made of wood?", "What is a piano?", "What is a drum?"]:
    messages.append({"role": "user", "content": question})
    show(asked=question)
    urllib.request.urlopen(go_on).close()
    answer = stream(messages)
    show(**answer)
    messages.append({"role": "assistant", "content": answer["words"]})
