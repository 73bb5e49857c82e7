"""The pages as a WSGI application: from an address to an answer."""

from __future__ import annotations

import functools
import hashlib
import json
import mimetypes
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from strategos.components.errors import UserError
from strategos.pipeline.history.store import Store
from strategos.pipeline.report import page as report_page
from strategos.pipeline.report import record, writing
from strategos.pipeline.report.document import Document, Paragraph, Section, State
from strategos.pipeline.ui import details, guard, listing, models, operation, pages
from strategos.pipeline.ui.guard import Guard
from strategos.pipeline.ui.pages import Page
from strategos.pipeline.ui.source import Source

_ASSETS = Path(__file__).with_name("assets")
_FILES = {
    **{name: report_page.ASSETS for name in ("report.css", *report_page.SCRIPTS)},
    **{name: _ASSETS for name in ("ui.css", "ui.js")},
}
_SCRIPTS = (*report_page.SCRIPTS, "ui.js")
_OWN_POLICY = "frame-ancestors 'none'"  # beside the policy in the report itself
_FOREVER = "private, max-age=31536000, immutable"  # the address has the digest
_URLS = Map(
    [
        Rule("/", endpoint="start", methods=["GET"]),
        Rule("/token", endpoint="token", methods=["GET", "POST"]),
        Rule("/runs", endpoint="runs", methods=["GET"]),
        Rule("/runs/<run_id>", endpoint="run", methods=["GET"]),
        Rule("/runs/<run_id>/now", endpoint="now", methods=["GET"]),
        Rule("/runs/<run_id>/report.html", endpoint="report", methods=["GET"]),
        Rule("/compare", endpoint="compare", methods=["GET"]),
        Rule("/lineage", endpoint="lineage", methods=["GET"]),
        Rule("/models", endpoint="models", methods=["GET"]),
        Rule("/leaderboard", endpoint="leaderboard", methods=["GET"]),
        Rule("/schedule", endpoint="schedule", methods=["GET"]),
        Rule("/spans", endpoint="spans", methods=["GET"]),
        Rule("/assets/<digest>/<name>", endpoint="asset", methods=["GET"]),
    ],
    strict_slashes=False,
)
_OF_ONE = ("run", "now", "report", "compare", "lineage")  # which may not exist
_Start: TypeAlias = Callable[..., Any]


class App:
    """The pages of one root.

    Args:
      source: The history.
      door: Lets requests in.
    """

    def __init__(self, source: Source, door: Guard):
        self._source, self._door = source, door

    def __call__(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        """Answers one request, as of WSGI."""
        response = self._answer(Request(environ))
        return response(environ, start)

    def _answer(self, request: Request) -> Response:
        endpoint = ""
        try:
            endpoint, values = _URLS.bind_to_environ(request.environ).match()
            response = self._admitted(request, endpoint, dict(values))
        except HTTPException as error:
            response = self._problem(error.code or 500, error.name)
        except UserError as error:
            status = 404 if endpoint in _OF_ONE else 503
            response = self._problem(status, str(error))
        except Exception as error:  # one page fails; the others are still shown
            text = f"{type(error).__name__}: {error}. This is a bug in Strategos."
            print(f"strategos: {request.path}: {text}", file=sys.stderr, flush=True)
            response = self._problem(500, text)
        if "Content-Security-Policy" not in response.headers:
            guard.protect(response.headers)
        return response

    def _admitted(
        self, request: Request, endpoint: str, values: dict[str, Any]
    ) -> Response:
        if not self._door.knows(request):
            text = (
                "This name is not one of this server's. Open it by the address that "
                "`strategos ui` printed."
            )
            return self._problem(400, text)
        if endpoint == "asset":
            return _asset(**values)
        if endpoint == "token":
            return self._token(request)
        if not self._door.admits(request):
            return self._ask()
        if endpoint == "start":
            return redirect("/runs", 303)
        answer = getattr(self, f"_{endpoint}")
        with self._source.reading() as store:
            return answer(store, request, **values)

    def _token(self, request: Request) -> Response:
        token = request.form.get("token", "") if request.method == "POST" else ""
        token = token or request.args.get("token", "")
        if not self._door.is_token(token):
            return self._ask(wrong=bool(token))
        response = redirect("/runs", 303)
        self._door.remember(response)
        return response

    def _ask(self, wrong: bool = False) -> Response:
        html = _template("token.html").render(wrong=wrong, assets=_addresses())
        return Response(html, 401, mimetype="text/html")

    def _problem(self, status: int, text: str) -> Response:
        notice = Section("problem", "Problem", [Paragraph(text, "bad")])
        about = Document("Not shown", "", State(""), [notice])
        return _page(Page(about, ""), status)

    def _runs(self, store: Store | None, request: Request) -> Response:
        if store is None:
            return self._none("/runs", "Runs")
        return _page(listing.runs(self._source, store, request.args))

    def _run(self, store: Store | None, request: Request, run_id: str) -> Response:
        return _page(details.run(self._source, _known(store), run_id))

    def _now(self, store: Store | None, request: Request, run_id: str) -> Response:
        section = details.now(self._source, _known(store), run_id)
        sections = [section] if section else []
        about = Document("", "", State(""), sections)
        html = _template("now.html").render(section=section)
        answer = {
            **{"going": section is not None, "html": html},
            "charts": report_page.specifications(about),
        }
        return Response(json.dumps(answer), mimetype="application/json")

    def _report(self, store: Store | None, request: Request, run_id: str) -> Response:
        read = record.read(_known(store), self._source.index.find(run_id))
        response = Response(writing.html(read), mimetype="text/html")
        guard.protect(response.headers, _OWN_POLICY)
        return response

    def _compare(self, store: Store | None, request: Request) -> Response:
        ids = (request.args.get(name, "") for name in ("before", "after"))
        return _page(details.compared(self._source, _known(store), *ids))

    def _lineage(self, store: Store | None, request: Request) -> Response:
        model = request.args.get("model", "")
        return _page(details.lineage(_known(store), model))

    def _models(self, store: Store | None, request: Request) -> Response:
        if store is None:
            return self._none("/models", "Models")
        return _page(models.models(self._source, store))

    def _leaderboard(self, store: Store | None, request: Request) -> Response:
        if store is None:
            return self._none("/leaderboard", "Leaderboard")
        return _page(listing.leaderboard(self._source, store, request.args))

    def _schedule(self, store: Store | None, request: Request) -> Response:
        return _page(operation.schedule(self._source))

    def _spans(self, store: Store | None, request: Request) -> Response:
        if store is None:
            return self._none("/spans", "Spans")
        return _page(operation.spans(self._source, store))

    def _none(self, here: str, title: str) -> Response:
        return _page(pages.nothing_yet(here, title, self._source.root))


def _known(store: Store | None) -> Store:
    if store is None:
        raise NotFound()
    return store


def _page(page: Page, status: int = 200) -> Response:
    charts = report_page.specifications(page.document)
    html = _template("site.html").render(
        document=page.document,
        page=page,
        site=pages.SITE,
        footer="strategos ui: only reads.",
        charts=Markup(report_page.embedded(charts)),
        assets=_addresses(),
        scripts=_SCRIPTS if charts or page.live else (),
    )
    return Response(html, status, mimetype="text/html")


def _template(name: str) -> Any:
    return report_page.environment(_ASSETS).get_template(name)


def _asset(digest: str, name: str) -> Response:
    if name not in _FILES:
        raise NotFound()
    kind = mimetypes.guess_type(name)[0]
    response = Response(report_page.asset(name, _FILES[name]), mimetype=kind)
    response.headers["Cache-Control"] = _FOREVER
    return response


@functools.cache
def _addresses() -> dict[str, str]:
    """The address of each file, which changes with its content."""
    contents = {name: report_page.asset(name, at) for name, at in _FILES.items()}
    return {
        name: f"/assets/{hashlib.sha256(text.encode()).hexdigest()[:16]}/{name}"
        for name, text in contents.items()
    }
