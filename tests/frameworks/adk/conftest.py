"""What the tests of the kit are run with."""

from pathlib import Path

import pytest
from adk_services import SERVICES, Kit, service_named


@pytest.fixture(params=SERVICES)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    place = str(tmp_path / "agents.db")
    if request.param == "holdfast postgres":
        place = request.getfixturevalue("databases")(schema=True)
    return Kit(request.param, service_named(request.param, place))
