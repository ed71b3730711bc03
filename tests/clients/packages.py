"""Calls one of the packages that programs talk to a server with, once, with twenty tools: packages.py PACKAGE first|next|version TEXT.

The server is $SERVER. The conversation is conversation.json in the current folder: "first" begins it, "next" goes on with it.
"""
import importlib.metadata
import json
import os
import sys

package, what, *rest = sys.argv[1:]
if what == "version":
    print(importlib.metadata.version({"langchain": "langchain-openai"}.get(package, package)))
    sys.exit()
text, server, model = rest[0], os.environ["SERVER"], "qwen"

system = (
    "You are a careful assistant of a workshop. Use a tool wherever one answers the question better than you do, one at a time, "
    "and say in one sentence what you found. Never make up a number that a tool could have told you."
)
things = "file folder commit branch issue message meeting contact invoice order".split()
tools = []
for thing in things:
    for verb, does in (("find", "Finds every"), ("change", "Changes one")):
        tools.append({
            "name": f"{verb}_{thing}",
            "description": f"{does} {thing} that fits what is asked. Says the {thing}'s name, who owns it, and when it was changed last.",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": f"What the {thing} is called, or a part of it"},
                    "owner": {"type": "string", "description": f"Whose {thing} it is; everybody's if nothing is said"},
                    "limit": {"type": "integer", "description": "How many are wanted at most", "minimum": 1, "maximum": 100},
                    "order": {"type": "string", "enum": ["name", "newest", "oldest"], "description": "Which comes first"},
                },
                "required": ["name"],
            },
        })
openai_tools = [{"type": "function", "function": t} for t in tools]

messages = []
if what == "next":
    with open("conversation.json") as f:
        messages = json.load(f)
messages.append({"role": "user", "content": text})
whole = [{"role": "system", "content": system}] + messages

if package == "openai":
    import openai

    client = openai.OpenAI(base_url=server + "/v1", api_key="none")
    answer = ""
    for chunk in client.chat.completions.create(model=model, messages=whole, tools=openai_tools, stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            answer += chunk.choices[0].delta.content
elif package == "anthropic":
    import anthropic

    client = anthropic.Anthropic(base_url=server, api_key="none")
    named = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in tools]
    with client.messages.stream(model=model, system=system, messages=messages, tools=named, max_tokens=1000) as stream:
        answer = "".join(stream.text_stream)
elif package == "langchain":
    from langchain_openai import ChatOpenAI

    llm = ChatOpenAI(model=model, base_url=server + "/v1", api_key="none").bind_tools(openai_tools)
    answer = llm.invoke([(m["role"], m["content"]) for m in whole]).content
elif package == "litellm":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    answer = litellm.completion(model="openai/" + model, api_base=server + "/v1", api_key="none", messages=whole, tools=openai_tools).choices[0].message.content
else:
    sys.exit(f"no package {package}")

messages.append({"role": "assistant", "content": answer})
with open("conversation.json", "w") as f:
    json.dump(messages, f)
print(answer)
