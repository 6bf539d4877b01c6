"""OpenViking's own Python client, run in OpenViking's environment: a line of JSON in for each call,
a line of JSON out for its outcome.
"""

import json
import sys

from openviking_sdk import SyncHTTPClient


def main() -> None:
    url, key = sys.argv[1:]
    client = SyncHTTPClient(url=url, api_key=key, timeout=60.0, extra_headers={})
    client.initialize()
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        try:
            told = {"result": getattr(client, name)(*arguments, **options)}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
