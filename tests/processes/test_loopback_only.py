"""With credentials that are named, a client asks the store's address and no other: not the machine's metadata."""

import errno
import json
import os
import subprocess
import sys

import pytest

from tests.tools.children import REPOSITORY
from tests.tools.kinds import OBJECT_STORES
from tests.tools.machines import APART, check_permitted
from tests.tools.object_servers import check_fetched


@pytest.mark.parametrize("kind", OBJECT_STORES)
def test_no_address_but_the_stores_is_asked(kind: str) -> None:
    """Producer, consumer, group, admin client, maintenance and checks; the kernel counts each try."""
    check_permitted()
    check_fetched(kind)
    # Nothing that would tell a client to ask nobody.
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}

    done = subprocess.run(
        [*APART, sys.executable, "-m", "tests.processes.workers.loopback", json.dumps({"kind": kind})],
        cwd=REPOSITORY,
        env=quiet,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert (told["read"], told["elsewhere"]) == (20, 0)
    # It would have been seen.
    assert (told["refused"], told["counted"]) == (errno.ENETUNREACH, 1)
