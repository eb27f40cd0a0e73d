#!/usr/bin/env python3
"""Renders chat templates with Python's jinja2, as `transformers` sets it up, for the tests of `nibble-chat`.

    python3 golden/chat_templates.py                   # our own: writes golden/chat/expected.json (full texts)
    python3 golden/chat_templates.py FOLDER            # also: writes golden/chat_templates.json (hashes only)
    python3 golden/chat_templates.py FOLDER --text DIR # also: one text file per rendering, to compare by eye

FOLDER holds `*.jinja` files of other projects; only names, hashes and lengths of their renderings are kept.
Needs jinja2 3.1.
"""

import argparse
import hashlib
import json
import pathlib
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
NOW = datetime(2024, 7, 6, 5, 4, 3)
BOS, EOS = "<|bos|>", "<|eos|>"


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: marks what the assistant wrote; it renders as its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


SYSTEM = {"role": "system", "content": "You are a terse guide.\nAnswer in <b>one</b> line & never say \"no\"."}
USER = {"role": "user", "content": "  What is the capital of France? "}
ASSISTANT = {"role": "assistant", "content": "It's Paris — 'la Ville Lumière' 🗼."}
AGAIN = {"role": "user", "content": "And of \"Côte d'Ivoire\"?\n\nBe <exact>."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather at a place, in °C & \"feels like\".",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A city, e.g. <Paris>"},
                    "days": {"type": "integer", "description": "How many", "default": 3, "minimum": 1},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "The unit"},
                },
                "required": ["place"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "terms": {"type": "array", "items": {"type": "number"}, "description": "What to add"},
                    "exact": {"type": "boolean", "description": "Whether to round", "default": False},
                    "scale": {"type": "number", "description": "A factor", "default": 1.5},
                    "note": {
                        "type": "object",
                        "description": "A note",
                        "properties": {"text": {"type": "string"}},
                    },
                },
                "required": ["terms", "exact"],
            },
            "return": {"type": "number", "description": "The sum"},
        },
    },
]


def call(name, arguments, ident):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {"place": "Côte d'Ivoire", "days": 2, "unit": "celsius"}
SUM = {"terms": [1, 2.5, -3e20], "exact": True, "note": {"text": "a\nb", "none": None}}
ASK = {"role": "user", "content": "Weather, and 1 + 2.5?"}
ONE_CALL = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", WEATHER, "call00001")]}
ONE_RESULT = {"role": "tool", "content": "{\"t\": 31.5}", "tool_call_id": "call00001", "name": "get_weather"}
TWO_CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call("get_weather", WEATHER, "call00001"), call("add", SUM, "call00002")],
}
TWO_RESULTS = [ONE_RESULT, {"role": "tool", "content": "3.5", "tool_call_id": "call00002", "name": "add"}]
STRING_CALL = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [call("get_weather", json.dumps(WEATHER), "call00001")],
}
REASONED = {"role": "assistant", "content": "Paris.", "reasoning_content": "Known by heart.\nFrance -> Paris."}
THINK_TAGS = {"role": "assistant", "content": "<think>\nBy heart.\n</think>\n\nParis."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi."}]}
MORE = {"role": "user", "content": "Thanks. More?"}


def conversation(*messages, tools=None, add_generation_prompt=True, **extra):
    return {
        "messages": list(messages),
        "tools": tools,
        "add_generation_prompt": add_generation_prompt,
        "extra": extra,
    }


CONVERSATIONS = {
    "plain": conversation(SYSTEM, USER, ASSISTANT, AGAIN),
    "plain-closed": conversation(SYSTEM, USER, ASSISTANT, AGAIN, add_generation_prompt=False),
    "answered": conversation(SYSTEM, USER, ASSISTANT, add_generation_prompt=False),
    "no-system": conversation(USER, ASSISTANT, AGAIN),
    "tools": conversation(SYSTEM, USER, ASSISTANT, AGAIN, tools=TOOLS),
    "tools-no-system": conversation(USER, ASSISTANT, AGAIN, tools=TOOLS),
    "tool-result": conversation(SYSTEM, ASK, ONE_CALL, ONE_RESULT, tools=TOOLS),
    "tool-result-no-system": conversation(ASK, ONE_CALL, ONE_RESULT, tools=TOOLS),
    "tool-answered": conversation(SYSTEM, ASK, ONE_CALL, ONE_RESULT, ASSISTANT, MORE, tools=TOOLS),
    "two-results": conversation(SYSTEM, ASK, TWO_CALLS, *TWO_RESULTS, tools=TOOLS),
    "string-arguments": conversation(ASK, STRING_CALL, ONE_RESULT, tools=TOOLS),
    "no-tools-given": conversation(ASK, ONE_CALL, ONE_RESULT),
    "reasoning": conversation(USER, REASONED, MORE),
    "reasoning-off": conversation(USER, REASONED, MORE, enable_thinking=False, thinking=False),
    "reasoning-on": conversation(SYSTEM, USER, THINK_TAGS, MORE, enable_thinking=True, thinking=True),
    "parts": conversation(SYSTEM, PARTS),
    "two-users": conversation(USER, AGAIN),
    "assistant-first": conversation(ASSISTANT, USER),
    "unknown-role": conversation(USER, {"role": "narrator", "content": "Meanwhile ..."}),
    "empty": conversation(),
}

# One construct each, beyond what the conversations reach. `v` is in every scope.
SNIPPETS = [s for s in (HERE / "chat" / "snippets.txt").read_text(encoding="utf-8").split("\n====\n") if s]
VALUES = {
    "text": " a-b, C d\n",
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "map": {"z": 1, "a": [1, {"k": None}], "m": "é\"\u2028</x>"},
    "rows": [{"n": "x", "k": 2, "ok": True}, {"n": "y", "k": 1, "ok": False}, {"n": "z"}],
    "int": 7,
    "float": 2.5,
    "whole": 2.0,
    "big": 1e22,
    "small": 1.5e-7,
    "true": True,
    "none": None,
    "empty": "",
}


def attempt(source, **variables):
    """The text, or the error: its message, and whether the template itself raised it."""
    try:
        return {"text": environment().from_string(source).render(**variables)}
    except Exception as error:  # noqa: BLE001 - every way to fail is a result here
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error) if raised else f"{type(error).__name__}: {error}", "raised": raised}


def render(source, chat):
    return attempt(
        source,
        messages=chat["messages"],
        tools=chat["tools"],
        documents=None,
        add_generation_prompt=chat["add_generation_prompt"],
        bos_token=BOS,
        eos_token=EOS,
        **chat["extra"],
    )


def hashed(result):
    if "text" not in result:
        return result
    data = result["text"].encode("utf-8", "surrogatepass")
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def own():
    templates = {
        path.name: {name: render(path.read_text(encoding="utf-8"), chat) for name, chat in CONVERSATIONS.items()}
        for path in sorted((HERE / "chat").glob("*.jinja"))
    }
    return {
        "jinja2": jinja2.__version__,
        "now": NOW.strftime("%Y-%m-%dT%H:%M:%S"),
        "bos": BOS,
        "eos": EOS,
        "conversations": CONVERSATIONS,
        "templates": templates,
        "values": VALUES,
        "snippets": [{"source": source, **attempt(source, v=VALUES)} for source in SNIPPETS],
    }


def others(folder, text):
    templates = {}
    for path in sorted(folder.glob("*.jinja")):
        data = path.read_bytes()
        results = {name: render(data.decode("utf-8"), chat) for name, chat in CONVERSATIONS.items()}
        templates[path.name] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "results": {name: hashed(result) for name, result in results.items()},
        }
        if text:
            text.mkdir(parents=True, exist_ok=True)
            for name, result in results.items():
                body = result.get("text", "ERROR " + result.get("error", ""))
                (text / f"{path.stem}.{name}.txt").write_bytes(body.encode("utf-8", "surrogatepass"))
    return {"jinja2": jinja2.__version__, "templates": templates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path)
    arguments = parser.parse_args()
    write(HERE / "chat" / "expected.json", own())
    if arguments.folder:
        write(HERE / "chat_templates.json", others(arguments.folder, arguments.text))


if __name__ == "__main__":
    main()
