"""An ASGI application that takes uploads, as `uploads.js` does."""


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    received, is_over = 0, False
    while not is_over:
        message = await receive()
        received += len(message.get("body", b""))
        is_over = not message.get("more_body")
    status = 200 if received == int(scope["path"][1:]) else 500
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"%d\n" % received})
