"""An ASGI application that answers with its own name (`NAME`) and writes the body of each request as a line of a file (`SEEN`), before it
answers; a request for `/slow` waits a fifth of a second first, any other `MS` milliseconds. Its status is `STATUS`."""

import asyncio
import os

NAME = os.environ["NAME"].encode()
STATUS = int(os.environ.get("STATUS", "200"))
MS = float(os.environ.get("MS", "0"))
SEEN = open(os.environ["SEEN"], "ab", buffering=0)


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message.get("more_body"):
            break
    SEEN.write(body + b"\n")
    if scope["path"] == "/slow":
        await asyncio.sleep(0.2)
    elif MS:
        await asyncio.sleep(MS / 1000)
    headers = [(b"content-length", b"%d" % len(NAME))]
    await send({"type": "http.response.start", "status": STATUS, "headers": headers})
    await send({"type": "http.response.body", "body": NAME})
