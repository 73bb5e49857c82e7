"""Deployment to a Vertex AI endpoint: Google's client against a strict fake of REST."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from strategos.components.errors import UserError
from strategos.components.push_targets import endpoint, targets

NAME = "projects/p/locations/r1/endpoints/7"
OPERATION = "projects/p/locations/r1/operations/1"


class Fake(http.server.BaseHTTPRequestHandler):
    """An endpoint with its deployed models; requests are parsed as the real types."""

    def do_GET(self):
        from google.cloud import aiplatform_v1 as vertex

        place = self.path.partition("?")[0]
        if place == f"/v1/{NAME}":
            models = [{"id": each} for each in self.server.traffic]
            found = vertex.Endpoint(name=NAME, deployed_models=models)
            self._answer(json.loads(vertex.Endpoint.to_json(found)))
        elif place.endswith(OPERATION):
            self._answer({"name": OPERATION, **self.server.result})
        else:
            self._answer({}, 404)

    def do_POST(self):
        from google.cloud import aiplatform_v1 as vertex

        size = int(self.headers["Content-Length"])
        body, method = self.rfile.read(size), self.path.partition("?")[0].split(":")[-1]
        self.server.asked.append(method)
        code, message = self.server.fails.get(method, (200, ""))
        if code != 200:
            self._answer({"error": {"code": code, "message": message}}, code)
            return
        made = "DeployModelResponse"
        if method == "upload":
            self.server.model = vertex.UploadModelRequest.from_json(body).model
            made, self.server.name = "UploadModelResponse", "projects/p/models/9"
        elif method == "deployModel":
            asked = vertex.DeployModelRequest.from_json(body)
            assert asked.deployed_model.model == self.server.name
            assert sum(asked.traffic_split.values()) == 100
            self.server.traffic = {**asked.traffic_split, "new": 100}
            self.server.traffic.pop("0")
        elif method == "undeployModel":
            asked = vertex.UndeployModelRequest.from_json(body)
            assert self.server.traffic.pop(asked.deployed_model_id) == 0
            made = "UndeployModelResponse"
        kind = f"type.googleapis.com/google.cloud.aiplatform.v1.{made}"
        response = {"@type": kind}
        if method == "upload":
            response["model"] = self.server.name
        self.server.result = {"done": True, "response": response}
        if method in self.server.never:
            self.server.result = {"done": False}
        self._answer({"name": OPERATION})

    def _answer(self, value, code=200):
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    """The fake, with the model "old" deployed."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake) as server:
        server.traffic, server.asked, server.fails = {"old": 100}, [], {}
        server.never, server.result = (), {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()


@pytest.fixture
def pushed(tmp_path):
    """A target with version 7, and a new version 8."""
    for version in (7, 8):
        folder = tmp_path / "flights" / str(version)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").touch()
    return targets.of(str(tmp_path / "flights"))


def follow(service, target, seconds=60, name=NAME, url=""):
    from google.auth.credentials import AnonymousCredentials

    made = endpoint.Endpoint(name, "image", "n1", seconds, url or service.url)
    made = endpoint.Endpoint.of(made.to_json())
    endpoint.follow(made, target, 8, AnonymousCredentials())


def test_the_new_version_takes_all_traffic_and_the_old_one_goes(service, pushed):
    follow(service, pushed)
    assert service.traffic == {"new": 100}
    assert service.asked == ["upload", "deployModel", "undeployModel"]
    assert service.model.artifact_uri == pushed.path(8)
    assert service.model.display_name == "flights-8"
    assert service.model.container_spec.image_uri == "image"
    assert pushed.versions() == [7, 8]


@pytest.mark.parametrize(
    ("method", "code", "expected"),
    [
        ("upload", 403, "roles/aiplatform.user"),
        ("deployModel", 404, "Create the endpoint"),
        ("deployModel", 409, "Another request"),
        ("upload", 429, "quota"),
        ("deployModel", 500, "try again"),
    ],
)
def test_a_rejected_request_is_one_message(service, pushed, method, code, expected):
    service.fails = {method: (code, "not today\nat all")}
    with pytest.raises(UserError) as caught:
        follow(service, pushed)
    message, _, remedy = str(caught.value).partition("\n")
    where = f"pusher.endpoint: {NAME}: the model cannot be deployed there"
    assert message.startswith(f"{where}: it answers {code}: ")
    assert "not today" in message and expected in remedy
    assert service.traffic == {"old": 100}
    assert pushed.versions() == [7]  # what the endpoint serves


def test_credentials_that_are_not_accepted_are_named(service, pushed):
    service.fails = {"upload": (401, "who?")}
    with pytest.raises(UserError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        follow(service, pushed)


def test_an_endpoint_that_is_missing_is_named(service, pushed):
    with pytest.raises(UserError, match=r"endpoints/8: .* answers 404"):
        follow(service, pushed, name=NAME.replace("/7", "/8"))
    assert service.asked == []


def test_a_deployment_that_takes_too_long_is_reported(service, pushed):
    service.never = ("deployModel",)
    with pytest.raises(UserError, match=r"took too long.*\n.*pusher.endpoint.timeout"):
        follow(service, pushed, seconds=1)


def test_a_service_that_is_not_there_is_reported(service, pushed):
    service.server_close()
    service.shutdown()
    with pytest.raises(UserError, match="cannot be reached"):
        follow(service, pushed)
    assert pushed.versions() == [7]
