"""An S3 server (moto) in the tests' own process."""

from __future__ import annotations

import logging
from typing import Any

import requests
import server


class S3:
    """A server with the empty bucket `bucket`."""

    def up(self) -> None:
        """Starts it, and empties it: all of a process have the same buckets."""
        try:
            import boto3
            from moto.server import ThreadedMotoServer
        except ImportError as error:
            raise server.MissingError(f"no S3 server: {error}") from None
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.address = f"http://{host}:{port}"
        reset = f"{self.address}/moto-api/reset"
        requests.post(reset, timeout=60).raise_for_status()
        keys = {
            "aws_access_key_id": "anyone",
            "aws_secret_access_key": "not-a-secret",
        }
        self._client = boto3.client(
            "s3", endpoint_url=self.address, region_name="us-east-1", **keys
        )
        self._client.create_bucket(Bucket="bucket")

    def environment(self) -> dict[str, str]:
        """The variables of its clients."""
        return {
            "S3_ENDPOINT": self.address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        }

    def client(self) -> Any:
        """A client of boto3."""
        return self._client

    def down(self) -> None:
        """Ends it."""
        if hasattr(self, "_server"):
            self._server.stop()
