"""TLS, with certificates that `dunlin dev --tls` makes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dunlin
import pytest


@pytest.fixture
def tls_url(tmp_path: Path) -> Iterator[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
    doors = [word for door in ("nats", "http", "grpc") for word in (f"--{door}-listen", "off")]
    ca = tmp_path / "ca.pem"
    node = subprocess.Popen(
        [os.environ["DUNLIN_BINARY"], "dev", f"--tls={tmp_path}", "--tls-client-ca", ca, "--listen", "127.0.0.1:0", *doors],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert node.stdout is not None
    said = ""
    while not said.endswith("Ctrl-C stops it.\n"):
        line = node.stdout.readline()
        assert line, said
        said += line
    found = re.search(r"tls://127\.0\.0\.1:(\d+)", said)
    assert found, said
    yield f"tls://localhost:{found[1]}"
    node.kill()
    node.communicate()


def test_a_client_that_shows_its_certificate_publishes_and_reads(tls_url: str, tmp_path: Path) -> None:
    files = {"ca": tmp_path / "ca.pem", "client_cert": tmp_path / "client.pem", "client_key": tmp_path / "client-key.pem"}
    with dunlin.connect(tls_url, **files) as client:
        client.publish("t", b"hello")
        record = next(iter(client.subscribe("t", start="earliest")))
        assert isinstance(record, dunlin.Record)
        assert bytes(record.payload) == b"hello"


def test_who_cannot_be_trusted_is_said(tls_url: str, tmp_path: Path) -> None:
    with pytest.raises(dunlin.DisconnectedError, match="asks for a client certificate"):
        dunlin.connect(tls_url, ca=tmp_path / "ca.pem")
    with pytest.raises((dunlin.DisconnectedError, ValueError), match="authority"):
        dunlin.connect(tls_url)
    with pytest.raises(FileNotFoundError):
        dunlin.connect(tls_url, ca=tmp_path / "no.pem")
