"""Routes beyond chats and tensors, by their own clients: Anthropic's messages (a real llama.cpp), audio by openai's client, and
MLflow's scoring server with its tables."""

import gzip
import json
import os
import urllib.request

import anthropic
import openai
import pytest

from lapwing import NO_SPANS, OPENER, Counted
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def one_exchange(lapwing, ask):
    """What `ask` returns, and the one exchange that it makes."""
    with Counted(lapwing, 1):
        answer = ask()
    return answer, max(lapwing.exchanges(), key=lambda e: e["started_at"])


def amounts_of(exchange):
    """Amounts of work with how each is known, but for bytes."""
    work = exchange["work"] or {}
    return {unit: (told["amount"], told["basis"]) for unit, told in work.items() if isinstance(told, dict) and unit != "byte"}


# --- Anthropic's messages


@pytest.fixture(scope="module")
def claude(llama):
    return anthropic.Anthropic(base_url=llama.lapwing.url, api_key="none", max_retries=0, timeout=60)


def messages(i):
    # a token that is drawn may end the answer before it begins; and after a first one that is a part of a character the server leaves
    # `message_start` out
    going_on = {"ignore_eos": True, "temperature": 0}
    return {"model": "tiny", "max_tokens": 8 + i, "messages": [{"role": "user", "content": f"la mi re {i} do fa so"}], "extra_body": going_on}


def read_of(usage):
    parts = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    return sum(part or 0 for part in parts)


def test_messages(claude, llama):
    answer, exchange = one_exchange(llama.lapwing, lambda: claude.messages.create(**messages(1)))
    amounts = amounts_of(exchange)
    assert (exchange["route"], exchange["model"], exchange["work"]["primary"]) == ("POST /v1/messages", "tiny", "output_token")
    assert amounts["input_token"] == (read_of(answer.usage), "reported")
    assert amounts["output_token"] == (answer.usage.output_tokens, "reported")
    assert amounts["row"] == (1, "counted")


def test_messages_as_a_stream(claude, llama):
    def ask():
        pieces = []
        with claude.messages.stream(**messages(2)) as stream:
            pieces.extend(event.type for event in stream)
            return stream.get_final_message(), pieces

    (answer, pieces), exchange = one_exchange(llama.lapwing, ask)
    amounts = amounts_of(exchange)
    assert amounts["input_token"] == (read_of(answer.usage), "reported")
    assert amounts["output_token"] == (answer.usage.output_tokens, "reported")
    generation = exchange["generation"]
    deltas = pieces.count("content_block_delta")
    assert generation["chunks"] == deltas > 1
    assert generation["first_token_ns"] > 0


def test_tokens_are_counted_and_nothing_is_generated(claude, llama):
    asked = {key: value for key, value in messages(3).items() if key in ("model", "messages")}
    answer, exchange = one_exchange(llama.lapwing, lambda: claude.messages.count_tokens(**asked))
    assert amounts_of(exchange) == {"row": (1, "counted"), "input_token": (answer.input_tokens, "reported")}
    assert exchange["work"]["primary"] == "input_token"


# --- audio


def whole(body, kind="application/json", *fields):
    head = [f"HTTP/1.1 200 OK\r\nContent-Type: {kind}", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def events(*documents):
    return "".join(f"data: {json.dumps(document)}\n\n" for document in documents).encode()


DELTAS = [{"type": "transcript.text.delta", "delta": delta} for delta in ("I", " see", " you")]
USAGE = {"type": "tokens", "input_tokens": 14, "output_tokens": 5, "total_tokens": 19, "input_token_details": {"audio_tokens": 14}}
AUDIO = {
    "whole/audio/transcriptions": whole(json.dumps({"text": "Hello there.", "usage": {"type": "duration", "seconds": 9}}).encode()),
    "whole/audio/translations": whole(json.dumps({"text": "Good day."}).encode()),
    "stream/audio/transcriptions": whole(
        events(*DELTAS, {"type": "transcript.text.done", "text": "I see you", "usage": USAGE}), "text/event-stream; charset=utf-8"
    ),
    "packed/audio/transcriptions": whole(
        gzip.compress(events(*DELTAS, {"type": "transcript.text.done", "text": "I see you", "usage": USAGE})),
        "text/event-stream; charset=utf-8",
        "Content-Encoding: gzip",
    ),
}


@pytest.fixture(scope="module")
def audio(raw_server, start_lapwing):
    raw_server.canned.update(AUDIO)
    lapwing = start_lapwing(raw_server.url, env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")

    def client(folder):
        return openai.OpenAI(base_url=f"{lapwing.url}/canned/{folder}", api_key="none", max_retries=0, timeout=30).audio

    return lapwing, client


def sound(size=300_000):
    """Bytes that look like parts of a form here and there."""
    return ("a.wav", (b"RIFF\r\n--\r\n\r\nname=\"model\"\r" * (size // 24 + 1))[:size])


def test_a_transcription_in_seconds(audio):
    lapwing, client = audio
    asked = lambda: client("whole").transcriptions.create(model="whisper-1", file=sound())  # noqa: E731
    answer, exchange = one_exchange(lapwing, asked)
    assert answer.text == "Hello there."
    assert exchange["model"] == "whisper-1"
    assert amounts_of(exchange) == {"row": (1, "counted"), "audio_ms": (9000, "reported"), "output_token": (3, "estimated")}


def test_a_translation_without_usage(audio):
    lapwing, client = audio
    asked = lambda: client("whole").translations.create(model="whisper-1", file=sound(1000))  # noqa: E731
    answer, exchange = one_exchange(lapwing, asked)
    assert answer.text == "Good day."
    assert (exchange["model"], amounts_of(exchange)["row"]) == ("whisper-1", (1, "counted"))


@pytest.mark.parametrize("folder", ["stream", "packed"])
def test_a_streamed_transcription_in_tokens(audio, folder):
    lapwing, client = audio

    def ask():
        stream = client(folder).transcriptions.create(model="gpt-4o-mini-transcribe", file=sound(), stream=True)
        return [event.type for event in stream]

    seen, exchange = one_exchange(lapwing, ask)
    assert seen == ["transcript.text.delta"] * 3 + ["transcript.text.done"]
    assert exchange["model"] == "gpt-4o-mini-transcribe"
    assert amounts_of(exchange) == {"row": (1, "counted"), "input_token": (14, "reported"), "output_token": (5, "reported")}
    assert exchange["generation"]["chunks"] == 3


# --- compressed bodies


def unread(lapwing):
    """How many bodies were not read, by reason."""
    name = "lapwing_bodies_unread_total{"
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(name)]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


@pytest.mark.parametrize(
    ("coding", "body", "reason"),
    [
        ("gzip", gzip.compress(b'{"model": "m", "messages": [' + b" " * (64 << 20)), "too_large"),
        ("gzip", b"no gzip at all", "corrupt"),
        ("aes128gcm", b"secret", "coding"),
        ("zstd", bytes([0x28, 0xB5, 0x2F, 0xFD, 0, 14 << 3, 1, 0, 0]), "memory"),
    ],
)
def test_what_cannot_be_decoded_is_forwarded_and_counted(audio, raw_server, coding, body, reason):
    lapwing, _ = audio
    before = unread(lapwing)
    request = urllib.request.Request(f"{lapwing.url}/v1/chat/completions", data=body, headers={"content-encoding": coding})
    _, exchange = one_exchange(lapwing, lambda: OPENER.open(request, timeout=30).read())
    assert raw_server.seen[-1][1] == body
    assert {why: n - before[why] for why, n in unread(lapwing).items() if n > before[why]} == {reason: 1}
    assert "row" not in amounts_of(exchange)


# --- MLflow's tables

MODEL = """\
import mlflow.pyfunc


class Sums(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        if isinstance(model_input, dict):
            return [0.5] * len(next(iter(model_input.values())))
        return [0.5] * len(model_input)


mlflow.models.set_model(Sums())
"""
SERVE = """\
import sys, mlflow.pyfunc, uvicorn
import mlflow.pyfunc.scoring_server as scoring
folder, port = sys.argv[1], int(sys.argv[2])
mlflow.pyfunc.save_model(f"{folder}/model", python_model=f"{folder}/model.py")
uvicorn.run(scoring.init(mlflow.pyfunc.load_model(f"{folder}/model")), host="127.0.0.1", port=port, log_level="warning")
"""
TABLES = [
    ("split", "application/json", {"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3, 4], [5, 6]]}}, 3),
    ("records", "application/json", {"dataframe_records": [{"a": 1, "t": "many words of text"}, {"a": 2, "t": "more of it"}]}, 2),
    ("instances", "application/json", {"instances": [[1, 2], [3, 4], [5, 6], [7, 8]]}, 4),
    ("columns", "application/json", {"inputs": {"a": [1, 2, 3, 4, 5], "b": [6, 7, 8, 9, 10]}}, 5),
    ("rows", "application/json", {"inputs": [[1], [2]]}, 2),
    ("csv", "text/csv", 'a,b\n1,"x\ny"\n2,z\n3,w\n', 3),
    ("numbered csv", "text/csv", "0,1\n5,6\n7,8\n", 2),
]


@pytest.fixture(scope="module")
def mlflow(start_lapwing, processes, tmp_path_factory):
    python = os.path.join(ROOT, ".venv-mlflow/bin/python")
    if not os.path.exists(python):
        pytest.skip("no .venv-mlflow: tests/run --long installs it")
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    (folder / "model.py").write_text(MODEL)
    (folder / "serve.py").write_text(SERVE)
    processes("mlflow", [python, str(folder / "serve.py"), str(folder), str(port)])
    wait_listening(port, 120)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def post(url, kind, body, **headers):
    request = urllib.request.Request(url, data=body, headers={"content-type": kind, **headers})
    with OPENER.open(request, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind", "body", "rows"), TABLES, ids=[name for name, *_ in TABLES])
def test_tables_have_rows_and_no_tokens(mlflow, name, kind, body, rows):
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    answer, exchange = one_exchange(mlflow, lambda: post(f"{mlflow.url}/invocations", kind, data))
    assert len(answer["predictions"]) == rows
    assert amounts_of(exchange) == {"row": (rows, "counted")}
    assert exchange["work"]["primary"] == "row"


@pytest.mark.long
@pytest.mark.parametrize("path", ["/ping", "/version"])
def test_what_is_no_inference_has_no_work(mlflow, path):
    _, exchange = one_exchange(mlflow, lambda: OPENER.open(f"{mlflow.url}{path}", timeout=30).read())
    assert not amounts_of(exchange)
