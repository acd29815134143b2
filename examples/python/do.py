"""Makes one write through Holdfast, at most once. Standard library only.

    GATEWAY_URL=http://localhost:8080 GATEWAY_KEY=hf_... \\
      python3 do.py CONNECTION ACTION BODY [IDEMPOTENCY-KEY]

Ends with 0: done; 1: not done; 2: wrong usage; 3: it may have been done, so do not
send it again in other words or under another key; 4: GATEWAY_PATIENCE (120 seconds)
is over, so run the very same command again.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request


class NotDone(Exception):
    """The write was not done, and will not be unless something changes."""


class Unknown(Exception):
    """The write may have been done. Sending it in other words could do it twice."""


class StillOpen(Exception):
    """Patience is over. The very same call, later, finds out."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def do(url, key, connection, action, body, own_key=None, patience=120.0):
    """Returns the answer of a write that was done, as text. body is JSON text and is
    sent as it is: a number that went through a float would be another one."""
    names = f'"connection":{json.dumps(connection)},"action":{json.dumps(action)}'
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if own_key is not None:
        headers["Idempotency-Key"] = own_key
    # Made once: every attempt sends it, so that all of them are one write.
    request = urllib.request.Request(
        url + "/v1/do", data=f"{{{names},\"body\":{body}}}".encode(), headers=headers
    )
    over = time.monotonic() + patience
    wait = 1.0
    while True:
        status, text, asked = _attempt(request)
        answer = _members(text)
        if status == 200 and answer.get("state") == "succeeded":
            return text
        # Without "next" it is not the gateway that speaks, and says nothing.
        following = None if status == 200 else answer.get("next")
        if following not in (None, "wait_and_repeat", "get_action"):
            raise (Unknown if status in (423, 500) else NotDone)(text)
        if time.monotonic() + (asked or wait) > over:
            raise StillOpen(f"no end in sight ({status}): make the very same call again")
        time.sleep(asked or wait)
        wait = min(wait * 2, 30)


def _attempt(request):
    """One try: the status (0 if there was no answer), the body, and Retry-After."""
    try:
        with _opener.open(request, timeout=60) as response:
            return response.status, _text(response), None
    except urllib.error.HTTPError as error:
        try:
            with error:
                asked = error.headers.get("Retry-After", "")
                return error.code, _text(error), int(asked) if asked.isdecimal() else None
        except (OSError, http.client.HTTPException):
            return 0, "", None
    except (OSError, http.client.HTTPException):
        return 0, "", None


def _text(response):
    return response.read().decode("utf-8", "replace")


def _members(text):
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def main():
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        text = do(
            os.environ["GATEWAY_URL"],
            os.environ["GATEWAY_KEY"],
            *sys.argv[1:],
            patience=float(os.environ.get("GATEWAY_PATIENCE", "120")),
        )
    except (NotDone, Unknown, StillOpen) as error:
        print(error, file=sys.stderr)
        sys.exit({NotDone: 1, Unknown: 3, StillOpen: 4}[type(error)])
    print(text)


if __name__ == "__main__":
    main()
