"""An ASGI application with one long stream: `/stream` gives a line every tenth of a second for as many seconds as the query says, `/echo`
gives a request's body back, and anything else answers at once."""

import asyncio


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"text/plain")]
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(10 * int(scope["query_string"] or b"1")):
            await send({"type": "http.response.body", "body": b"tick\n", "more_body": True})
            await asyncio.sleep(0.1)
        await send({"type": "http.response.body", "body": b"done\n"})
        return
    answer = body if scope["path"] == "/echo" else b"ok"
    headers += [(b"content-length", b"%d" % len(answer)), (b"x-version", scope["http_version"].encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
