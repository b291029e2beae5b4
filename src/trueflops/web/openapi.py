"""The API in OpenAPI's words: every command with its flags, read off the parser like the forms.

In: forms. Out: the document that GET /openapi.json sends (https://spec.openapis.org/oas/v3.1.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trueflops import __version__
from trueflops.language import LANGUAGES
from trueflops.web.allowed import LONGEST_TEXT
from trueflops.web.asked import MOST_LISTED
from trueflops.web.exported import KINDS
from trueflops.web.forms import Field, Form

Schema = dict[str, Any]
_JSON: Final = "application/json"
_ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string", "description": "the command line's own sentence"},
        "code": {"type": "string", "examples": ["BAD_INPUT", "UNKNOWN_NAME", "TOO_LONG"]},
    },
}
_ANSWERED: Final[Schema] = {
    "type": "object",
    "required": ["command", "exit_code", "answer"],
    "properties": {
        "command": {"type": "string", "description": "the command line that gives this answer"},
        "exit_code": {"enum": [0, 1], "description": "1: the answer is no, as: it does not fit"},
        "answer": {
            "type": "object",
            "required": ["schema_version"],
            "description": "what the command prints with --json, to the digit",
        },
    },
}
_DROPPED: Final[Schema] = {
    "type": "object",
    "required": ["kind", "answer", "question"],
    "properties": {
        "kind": {"enum": ["trace", "profile", "csv", "answer", "config"]},
        "answer": {"type": "object"},
        "question": {"type": ["object", "null"], "description": "to be asked, if it asks one"},
    },
}
_EVENT: Final[Schema] = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["progress", "answer", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_OPTIONS: Final[Schema] = {
    "type": "object",
    "required": ["commands", "models", "accelerators", "frameworks", "engines"],
    "properties": {"commands": {"type": "object"}},
}


def document(forms: Mapping[str, Form]) -> Schema:
    """The whole document."""
    paths: Schema = {f"/api/{form.command}": {"post": _command(form)} for form in forms.values()}
    paths |= {
        "/api/search": {"get": _search(forms)},
        "/api/drop": {"post": _drop()},
        "/api/export/{kind}": {"post": _export(forms)},
        "/api/options": {"get": _get("what forms are made of", _OPTIONS)},
        "/api/words/{language}": {"get": _words()},
    }
    shapes = {"Error": _ERROR, "Answered": _ANSWERED, "Dropped": _DROPPED}
    shapes |= {_shape(name): _question(form) for name, form in forms.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trueflops",
            "version": __version__,
            "description": "Time, memory, money and energy of a model and a plan on any "
            "accelerator. A question is a command and its flags by name; the answer is the JSON "
            "that the command line prints.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": shapes},
    }


def _shape(command: str) -> str:
    return f"{command.capitalize()}Question"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _reply(about: str, schema: Schema, media: str = _JSON) -> Schema:
    return {"description": about, "content": {media: {"schema": schema}}}


def _errors(*more: int) -> Schema:
    said = {
        403: "another site's page asked",
        404: "there is no such thing",
        413: "the body is too large",
        421: "the server is called by a name that is not its own",
        422: "the question cannot be answered, and why",
        500: "a bug of ours",
        503: "it takes too long or too much memory, or too many ask",
    }
    codes = sorted({403, 413, 421, 422, 500, 503, *more})
    return {str(code): _reply(said[code], _ref("Error")) for code in codes}


def _body(schema: Schema, media: str = _JSON) -> Schema:
    return {"required": True, "content": {media: {"schema": schema}}}


def _command(form: Form) -> Schema:
    return {
        "operationId": form.command,
        "summary": form.about,
        "requestBody": _body(_ref(_shape(form.command))),
        "responses": {"200": _reply("the answer", _ref("Answered")), **_errors()},
    }


def _question(form: Form) -> Schema:
    required = [field.name for field in form.fields if field.required]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: field_schema(field) for field in form.fields},
        **({"required": required} if required else {}),
    }


def field_schema(field: Field) -> Schema:
    """What a flag may be given; null and a flag that is left out are the same."""
    kinds: list[str] = []
    shape: Schema = {"description": field.about}
    if field.flag.bare:
        kinds.append("boolean")
    if field.flag.valued:
        kinds += ["string", "number"]
        shape |= {"maxLength": LONGEST_TEXT, "minLength": 1}
    if field.flag.choices and field.flag.valued:
        words = [*field.flag.choices, *map(str, field.flag.choices)]
        own = [True, False] if field.flag.bare else []
        left_out = [] if field.required else [None]
        return {"description": field.about, "enum": [*dict.fromkeys(words), *own, *left_out]}
    if field.name == "model":
        kinds = ["string", "object"]
    if field.several:
        kinds = ["string", "array"]
        one = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
        shape |= {"items": one, "maxItems": MOST_LISTED}
    if not field.required:
        kinds.append("null")
    return {**shape, "type": kinds}


def _search(forms: Mapping[str, Form]) -> Schema:
    asked = {
        "name": "question",
        "in": "query",
        "required": True,
        "description": 'JSON: {"command": "train", …}, the rest as that command is asked',
        "content": {_JSON: {"schema": _any_question(forms)}},
    }
    return {
        "operationId": "search",
        "summary": "the same answer, with events progress (decided, legal, best_seconds, text) "
        "until the event answer, or error; closing the connection ends the work",
        "parameters": [asked],
        "responses": {
            "200": _reply("events", _EVENT, "text/event-stream"),
            **_errors(404),
        },
    }


def _any_question(forms: Mapping[str, Form]) -> Schema:
    return {
        "type": "object",
        "required": ["command"],
        "properties": {"command": {"enum": list(forms)}},
    }


def _drop() -> Schema:
    return {
        "operationId": "drop",
        "summary": "recognise a trace, a profile, a CSV, an answer or a config, and show it",
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": about,
                "schema": {"type": "string", "maxLength": LONGEST_TEXT},
            }
            for name, about in (("name", "of the file"), ("on", "the chip of a trace: H100"))
        ],
        "requestBody": _body({"type": "string"}, "application/octet-stream"),
        "responses": {"200": _reply("what it is", _ref("Dropped")), **_errors()},
    }


def _export(forms: Mapping[str, Form]) -> Schema:
    tool = {"type": ["string", "null"], "description": "of emit: megatron, vllm …"}
    asked = _any_question(forms)
    asked["properties"]["tool"] = tool
    kind = {"name": "kind", "in": "path", "required": True, "schema": {"enum": list(KINDS)}}
    files = {
        "application/json": {"schema": {"type": "object"}},
        "application/zip": {"schema": {"type": "string"}},
        "text/csv": {"schema": {"type": "string"}},
    }
    return {
        "operationId": "export",
        "summary": "files of an answer: a trace for Perfetto, launch files, a table",
        "parameters": [kind],
        "requestBody": _body(asked),
        "responses": {"200": {"description": "the file", "content": files}, **_errors(404)},
    }


def _words() -> Schema:
    said = {"type": "object", "additionalProperties": {"type": "string"}}
    language = {
        "name": "language", "in": "path", "required": True, "schema": {"enum": list(LANGUAGES)},
    }  # fmt: skip
    return {**_get("the page's strings: English text -> the same in it", said),
            "parameters": [language]}  # fmt: skip


def _get(about: str, schema: Schema) -> Schema:
    return {"summary": about, "responses": {"200": _reply(about, schema), **_errors(404)}}
