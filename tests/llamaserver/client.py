"""Talks to a llama-server as people do, with the openai package, and prints what it got as one JSON object."""
import json
import sys

import openai

base, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, timeout=300)
fixed = dict(model=model, temperature=0, seed=1)
story = "The song: river stone candle winter garden silver. The song again: river stone candle winter garden silver. "
talk = [{"role": "system", "content": "You repeat songs. " + story * 6}, {"role": "user", "content": "Sing: " + story * 3}]
tools = [{"type": "function", "function": {"name": "sing", "description": "Sing a song", "parameters": {
    "type": "object", "properties": {"song": {"type": "string", "enum": ["river", "stone"]}, "loud": {"type": "boolean"}}, "required": ["song", "loud"]}}}]
schema = {"type": "json_schema", "json_schema": {"name": "song", "schema": {
    "type": "object", "properties": {"title": {"enum": ["river", "stone"]}, "verses": {"enum": [1, 2, 3]}}, "required": ["title", "verses"]}}}
out = {}


def whole(name, **more):
    c = client.chat.completions.create(messages=talk, max_tokens=24, **fixed, **more).choices[0]
    calls = [[t.function.name, t.function.arguments] for t in c.message.tool_calls or []]
    out[name] = [c.message.content, calls, c.finish_reason]


def streamed(name, **more):
    text, calls, reason = "", {}, None
    for chunk in client.chat.completions.create(messages=talk, max_tokens=24, stream=True, stream_options={"include_usage": True}, **fixed, **more):
        for c in chunk.choices:
            text += c.delta.content or ""
            for t in c.delta.tool_calls or []:
                call = calls.setdefault(t.index, ["", ""])
                call[0] += t.function.name or ""
                call[1] += t.function.arguments or ""
            reason = c.finish_reason or reason
    out[name] = [text, list(calls.values()), reason]


def cancelled(name, after):
    stream = client.chat.completions.create(messages=talk[:1] + [{"role": "user", "content": name}], max_tokens=400, stream=True, **fixed, extra_body={"ignore_eos": True})
    for n, _ in enumerate(stream):
        if n == after:
            break
    stream.close()
    out[name] = n


for turn in range(2):
    whole(f"whole {turn}")
    streamed(f"streamed {turn}")
    whole(f"json {turn}", response_format=schema)
    streamed(f"json streamed {turn}", response_format=schema)
    whole(f"tools {turn}", tools=tools, tool_choice="required")
    streamed(f"tools streamed {turn}", tools=tools, tool_choice="required")
    cancelled(f"cancelled {turn}", 2 + 5 * turn)
    whole(f"after {turn}")
c = client.completions.create(prompt=story * 4 + "The song again: river", max_tokens=12, **fixed)
out["completion"] = c.choices[0].text
out["completion streamed"] = "".join(x.choices[0].text for x in client.completions.create(prompt=story * 4 + "The song again: river", max_tokens=12, stream=True, **fixed) if x.choices)
try:
    client.chat.completions.create(messages=[{"role": "user", "content": "x " * 20000}], **fixed)
except openai.BadRequestError as e:
    out["too long"] = [e.status_code, e.body["type"]]
out["models"] = [m.id for m in client.models.list().data]
print(json.dumps(out))
