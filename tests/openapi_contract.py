"""Holds what the daemon answers against the OpenAPI file that it ships; every test client calls this."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

SPEC: Final[dict[str, Any]] = json.loads(resources.files("nls_scheduler.wire").joinpath("openapi.json").read_bytes())
_REGISTRY: Final = Registry().with_resource("nls:", Resource(SPEC, DRAFT202012))
_PATHS: Final = [
    (re.compile(re.sub(r"\{\w+\}", "[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))), path)
    for path in SPEC["paths"]
]
_PROBLEM: Final = "application/problem+json"


def check_response(method: str, url: str, status: int, headers: Any, body: bytes) -> None:
    """Fails unless the OpenAPI file promises this answer. `headers` maps names of any case."""
    where = f"{method} {url} answered {status}"
    names = {name.lower(): value for name, value in dict(headers).items()}
    if method == "HEAD":
        return  # has no body that could be held against anything
    content_type = names.get("content-type", "").partition(";")[0]
    path = path_of(url)
    operation = SPEC["paths"].get(path, {}).get(method.lower())
    if operation is None:
        assert status == (404 if path is None else 405), f"{where}, and the contract has no such operation"
        check_schema("#/components/schemas/Problem", json.loads(body), where)
        return
    assert str(status) in operation["responses"], f"{where}, which its contract does not promise"
    pointer = f"#/paths/{_escaped(path or '')}/{method.lower()}/responses/{status}"
    promised = operation["responses"][str(status)]
    if "$ref" in promised:
        pointer = promised["$ref"]
        promised = SPEC["components"]["responses"][pointer.rpartition("/")[2]]
    if status >= 400:
        assert content_type == _PROBLEM, f"{where} with {content_type!r}"
    assert names.get("x-nls-protocol") == "1" or (status in (429, 503) and names.get("retry-after")), (
        f"{where}: no protocol"
    )
    if "content" not in promised or not body:
        return
    assert content_type in promised["content"], f"{where} with {content_type!r}"
    value = body.decode() if content_type == "text/plain" else json.loads(body)
    check_schema(f"{pointer}/content/{_escaped(content_type)}/schema", value, where)


@functools.cache
def _validator(pointer: str) -> Validator:
    """Its library takes a second to import: not in each process that runs tests, most of which ask no daemon."""
    from jsonschema import Draft202012Validator, FormatChecker

    return Draft202012Validator({"$ref": f"nls:{pointer}"}, registry=_REGISTRY, format_checker=FormatChecker())


def check_schema(pointer: str, value: Any, where: str) -> None:
    """Fails with every deviation of `value` from the schema at `pointer`."""
    errors = [f"{error.json_path}: {error.message}" for error in _validator(pointer).iter_errors(value)]
    assert not errors, f"{where}, and openapi.json says otherwise: {'; '.join(errors)[:2000]}"


def path_of(url: str) -> str | None:
    """The contract's path that `url` is an instance of."""
    path = urlsplit(url).path
    return next((template for pattern, template in _PATHS if pattern.fullmatch(path)), None)


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1").replace("{", "%7B").replace("}", "%7D")
