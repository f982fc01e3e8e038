"""A FastAPI application whose one handler, at `/`, answers every path. `/asked` tells what reached it.

With an upstream it is a gateway that relays each request, and the body of the answer. Without, it answers with what the request has
under `answer`, else `{"ok": true}`.
"""

import argparse


def command_line():
    """The options. Read before the imports below, so that --help needs nothing but the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, metavar="PORT")
    parser.add_argument("upstream", nargs="?", metavar="URL")
    return parser.parse_args()


OPTIONS = command_line()

# ruff: noqa: E402
import json
import urllib.request

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI(docs_url=None, openapi_url=None, redoc_url=None)
asked = []


@app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE"])
async def anything(request: Request, path: str):
    if path == "asked":
        return asked
    asked.append([request.method, f"/{path}", request.headers.get("user-agent", "")])
    body = await request.body()
    if OPTIONS.upstream:
        onward = urllib.request.Request(f"{OPTIONS.upstream}/{path}", data=body or None, method=request.method)
        onward.add_header("content-type", request.headers.get("content-type", "application/json"))
        with urllib.request.urlopen(onward, timeout=30) as answer:
            return Response(answer.read(), media_type=answer.headers["content-type"])
    return json.loads(body).get("answer", {"ok": True}) if body else {"ok": True}


uvicorn.run(app, host="127.0.0.1", port=OPTIONS.port, log_level="warning")
