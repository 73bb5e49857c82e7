"""A Vertex AI endpoint that serves the newest version of a target on `gs://`."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from strategos.components.errors import UserError
from strategos.components.push_targets.targets import Target
from strategos.components.services import google_api

_KEY = "pusher.endpoint"
_REQUEST_SECONDS = 60.0
_REMEDIES = {
    **google_api.REMEDIES,
    404: "Create the endpoint, or correct pusher.endpoint.name.",
    "late": "Try again, or allow more time in pusher.endpoint.timeout.",
}
_UNREACHABLE = "Check the region in pusher.endpoint.name, and the network; try again."


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An endpoint, and the settings of deployments to it.

    Attributes:
      name: `projects/PROJECT/locations/REGION/endpoints/ID`.
      image: Container image of the model server.
      machine: Type of the machines.
      seconds: Time allowed for each of upload and deployment.
      api: URL of the service; "" for Google's in the endpoint's region.
    """

    name: str
    image: str
    machine: str
    seconds: int
    api: str = ""

    @classmethod
    def of(cls, text: str | None) -> Endpoint | None:
        """Reads `to_json`'s text; None without one."""
        return cls(**json.loads(text)) if text else None

    def to_json(self) -> str:
        """The settings as text, for a parameter of a component."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    def deploy(self, model: str, display_name: str, credentials: Any = None) -> None:
        """Uploads a model and gives it all traffic; other models are undeployed.

        Args:
          model: `gs://` URL of the SavedModel.
          display_name: Name of the model, and of its deployment.
          credentials: Credentials of google-auth; by default, the application default
            credentials.

        Raises:
          UserError: The service rejected a request, cannot be reached, or took longer
            than `seconds`. The models that were deployed before still serve, unless
            only their removal failed.
        """
        from google.cloud import aiplatform_v1 as vertex

        with google_api.failures(functools.partial(_error_of, self.name)):
            made = {"credentials": credentials, **self._connection()}
            endpoints = vertex.EndpointServiceClient(**made)
            request: dict[str, Any] = {"timeout": _REQUEST_SECONDS}
            known = endpoints.get_endpoint(name=self.name, **request).deployed_models
            uploaded = vertex.Model(
                display_name=display_name,
                artifact_uri=model,
                container_spec=vertex.ModelContainerSpec(image_uri=self.image),
            )
            parent = self.name.partition("/endpoints/")[0]
            operation = vertex.ModelServiceClient(**made).upload_model(
                parent=parent, model=uploaded, **request
            )
            name = operation.result(timeout=self.seconds).model
            operation = endpoints.deploy_model(
                endpoint=self.name,
                deployed_model=self._deployment(name, display_name),
                # "0" stands for the model that is being deployed.
                traffic_split={"0": 100, **{each.id: 0 for each in known}},
                **request,
            )
            operation.result(timeout=self.seconds)
            for each in known:
                endpoints.undeploy_model(
                    endpoint=self.name, deployed_model_id=each.id, **request
                ).result(timeout=self.seconds)

    def _connection(self) -> dict[str, Any]:
        region = self.name.split("/")[3]
        api = self.api or f"https://{region}-aiplatform.googleapis.com"
        return {"transport": "rest", "client_options": {"api_endpoint": api}}

    def _deployment(self, model: str, display_name: str) -> Any:
        from google.cloud import aiplatform_v1 as vertex

        return vertex.DeployedModel(
            model=model,
            display_name=display_name,
            dedicated_resources=vertex.DedicatedResources(
                machine_spec=vertex.MachineSpec(machine_type=self.machine),
                min_replica_count=1,
                max_replica_count=1,
            ),
        )


def follow(
    endpoint: Endpoint | None, target: Target, version: int, credentials: Any = None
) -> None:
    """Lets an endpoint serve a version that was just pushed.

    Args:
      endpoint: The endpoint; None: do nothing.
      target: The target with the version.
      version: The version. If it cannot be deployed, it is removed again, so that the
        endpoint always serves the newest version.
      credentials: As for `Endpoint.deploy`.

    Raises:
      UserError: As for `Endpoint.deploy`.
    """
    if endpoint is None:
        return
    name = f"{target.uri.rpartition('/')[2]}-{version}"
    try:
        endpoint.deploy(target.path(version), name, credentials)
    except BaseException:
        target.remove(version)
        raise


def _error_of(name: str, failure: google_api.ApiFailure) -> UserError:
    message = f"{name}: the model cannot be deployed there: {failure.what}"
    remedy = _REMEDIES.get(failure.reason, _UNREACHABLE)
    return UserError(message, key=_KEY, remedy=remedy)
