"""An API server's question about a new pod and its answer: AdmissionReview, admission.k8s.io/v1. Pure.

The answer is always yes. Nothing is kept of a question, so that a dry run is like any other.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.injecting import Injection, Role, Unpatchable, patch_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSION: Final = "admission.k8s.io/v1"
_WARNING_LIMIT: Final = 120
"""Longer ones may be cut off by the API server."""


class UnreadableReview(ValueError):  # noqa: N818 - says what came
    """No AdmissionReview that could be answered; the message is one sentence."""


def answer(
    body: bytes, injection: Injection, default: Role | None = None, *, on_defect: Callable[[str], object]
) -> dict[str, Any]:
    """The review with its response. Raises UnreadableReview.

    Args:
        body: what has come.
        injection: what pods get.
        default: see `patch_for`.
        on_defect: told, with the exception at hand, of what nobody foresaw in a pod, which is let through as it is.
    """
    request = _request(body)
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    patch, why = _patch(request, injection, default, on_defect)
    if why is not None:
        response["warnings"] = [f"nls-jupyter adds nothing to this pod: {why}."[:_WARNING_LIMIT]]
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"apiVersion": VERSION, "kind": "AdmissionReview", "response": response}


def _patch(
    request: Mapping[str, Any], injection: Injection, default: Role | None, on_defect: Callable[[str], object]
) -> tuple[list[dict[str, Any]], str | None]:
    """The operations, or why there are none although it is a new pod."""
    try:
        return patch_for(request["object"], injection, default) if _is_new_pod(request) else [], None
    except Unpatchable as why:
        return [], str(why)
    except RecursionError:
        return [], "it is nested too deeply"
    except Exception as error:  # noqa: BLE001 - told, and the pod starts all the same
        on_defect("DEFECT: a pod cannot be patched, and is let through as it is")
        return [], f"a defect, please report it with the webhook's log: {type(error).__name__}"


def _request(body: bytes) -> Mapping[str, Any]:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableReview("What came is not JSON.") from error
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (VERSION, "AdmissionReview"):
        raise UnreadableReview(f"What came is no AdmissionReview of {VERSION}.")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise UnreadableReview("The review has no request with a uid.")
    return request


def _is_new_pod(request: Mapping[str, Any]) -> bool:
    kind = request.get("kind")
    is_pod = isinstance(kind, dict) and (kind.get("group"), kind.get("version"), kind.get("kind")) == ("", "v1", "Pod")
    plain = request.get("operation") == "CREATE" and not request.get("subResource")
    return is_pod and plain and isinstance(request.get("object"), dict)
