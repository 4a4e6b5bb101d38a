"""The admin API of one process: JSON over HTTP. A refusal is one sentence.

GET /health · GET /mirrors · POST /mirrors · GET, DELETE /mirrors/NAME · GET /mirrors/NAME/last-mirrored-offsets ·
POST /mirrors/NAME/start, stop, pause, resume (body: {"topics": [...]}; without: all of them) ·
GET /events?after=N · GET /metrics (Prometheus text) · POST /crash-at (body: {"step": ...})
Status: 400 a malformed request, 404 no such mirror or topic, 409 the state does not allow it, 503 a cluster
did not answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Protocol

from aiohttp import web

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.audit import AuditLog
from mirrors.reference.server.describing import MirrorRow
from mirrors.reference.server.model import MirrorConfig
from mirrors.reference.server.operations import UnknownMirrorError

_EVENTS: Final = 20_000  # in one answer
ACTIONS: Final = ("start", "stop", "pause", "resume")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Operator(Protocol):
    """What the API calls: see `operations.Operations`."""

    def mirrors(self) -> dict[str, MirrorConfig]: ...  # noqa: D102
    async def create(self, config: MirrorConfig) -> None: ...  # noqa: D102
    async def delete(self, mirror: str) -> None: ...  # noqa: D102
    async def start(self, mirror: str, topics: Collection[str] | None) -> list[str]: ...  # noqa: D102
    async def stop(self, mirror: str, topics: Collection[str] | None) -> list[str]: ...  # noqa: D102
    async def pause(self, mirror: str, topics: Collection[str] | None) -> list[str]: ...  # noqa: D102
    async def resume(self, mirror: str, topics: Collection[str] | None) -> list[str]: ...  # noqa: D102
    async def describe(self, mirror: str) -> list[MirrorRow]: ...  # noqa: D102
    def last_mirrored(self, mirror: str) -> list[dict[str, int | str]]: ...  # noqa: D102
    def crash_at(self, step: str) -> None: ...  # noqa: D102


class AdminApi:
    """Serves one process. health: what /health answers. metrics: the text of /metrics."""

    def __init__(
        self,
        operator: Operator,
        audit: AuditLog,
        *,
        health: Callable[[], dict[str, Any]],
        metrics: Callable[[], str],
    ) -> None:
        self._operator = operator
        self._audit = audit
        self._health = health
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[_refusals])
        app.add_routes(
            [
                web.get("/health", self._get_health),
                web.get("/mirrors", self._get_mirrors),
                web.post("/mirrors", self._post_mirror),
                web.get("/mirrors/{name}", self._get_mirror),
                web.delete("/mirrors/{name}", self._delete_mirror),
                web.get("/mirrors/{name}/last-mirrored-offsets", self._get_offsets),
                web.post("/mirrors/{name}/{action}", self._post_action),
                web.get("/events", self._get_events),
                web.get("/metrics", self._get_metrics),
                web.post("/crash-at", self._post_crash),
            ]
        )
        return app

    async def listen(self, port: int, host: str = "0.0.0.0") -> int:  # noqa: S104
        """Serve from now on; returns the port (0 chooses a free one)."""
        self._runner = web.AppRunner(self.app(), access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _get_health(self, _: web.Request) -> web.Response:
        return web.json_response({"boot": self._audit.boot, **self._health()})

    async def _get_mirrors(self, _: web.Request) -> web.Response:
        return web.json_response({"mirrors": [config.to_json() for config in self._operator.mirrors().values()]})

    async def _post_mirror(self, request: web.Request) -> web.Response:
        values = await _body(request)
        try:
            config = MirrorConfig.from_json(values)
        except TypeError as error:
            raise web.HTTPBadRequest(text=f"the mirror's configuration is wrong: {error}") from error
        await self._operator.create(config)
        return web.json_response(config.to_json(), status=201)

    async def _get_mirror(self, request: web.Request) -> web.Response:
        rows = await self._operator.describe(request.match_info["name"])
        return web.json_response({"rows": [row.to_json() for row in rows]})

    async def _delete_mirror(self, request: web.Request) -> web.Response:
        await self._operator.delete(request.match_info["name"])
        return web.json_response({})

    async def _get_offsets(self, request: web.Request) -> web.Response:
        return web.json_response({"rows": self._operator.last_mirrored(request.match_info["name"])})

    async def _post_action(self, request: web.Request) -> web.Response:
        action = request.match_info["action"]
        if action not in ACTIONS:
            raise web.HTTPNotFound(text=f"{action!r} is not an action; there are {', '.join(ACTIONS)}")
        topics = (await _body(request)).get("topics")
        if topics is not None and (not isinstance(topics, list) or not all(isinstance(t, str) for t in topics)):
            raise web.HTTPBadRequest(text="`topics` is a list of names, or is left out for all topics")
        done = await getattr(self._operator, action)(request.match_info["name"], topics)
        return web.json_response({"topics": done})

    async def _get_events(self, request: web.Request) -> web.Response:
        text = request.query.get("after", "0")
        if not text.isdecimal():
            raise web.HTTPBadRequest(text=f"`after` is the number of an event, not {text!r}")
        events = self._audit.after(int(text), limit=_EVENTS)
        return web.json_response({"boot": self._audit.boot, "events": [event.to_json() for event in events]})

    async def _get_metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._metrics(), content_type="text/plain")

    async def _post_crash(self, request: web.Request) -> web.Response:
        step = (await _body(request)).get("step", "")
        self._operator.crash_at(str(step))
        return web.json_response({"step": step})


async def _body(request: web.Request) -> dict[str, Any]:
    if not request.can_read_body:
        return {}
    try:
        values = await request.json()
    except json.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"the body is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise web.HTTPBadRequest(text="the body is a JSON object")
    return values


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as {"error": sentence}."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response({"error": error.text or error.reason}, status=error.status)
    except UnknownMirrorError as error:
        return web.json_response({"error": str(error)}, status=404)
    except MirrorError as error:
        return web.json_response({"error": str(error)}, status=409)
    except (WireError, TimeoutError) as error:
        return web.json_response({"error": str(error)}, status=503)
