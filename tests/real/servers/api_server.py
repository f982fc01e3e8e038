"""APIs as teams write them in front of ONNX files: FastAPI, pydantic, the tokenizers library, onnxruntime.

usage: api_server.py PORT ENCODER.onnx TOKENIZER.json PIPELINE.onnx BOOSTED.onnx PICTURES.onnx

- `POST /v1/embeddings` as OpenAI's: the mean of the tokens' vectors, of length one, as floats or base64
- `POST /rerank` as Text Embeddings Inference's: a score of each text, the best first
- `POST /fraud` {"amount", "age", "country", "device"}: named values for a scikit-learn pipeline that takes a column of each
- `POST /churn` {"plan", "usage": [five numbers]}: a category and numbers for a LightGBM model that takes one row of six; its
  forward pass is in `Server-Timing`
- `POST /classify`, a form with a picture `file`, and `POST /classify/base64` {"image"}: labels for a model of pictures, which are prepared
  with Pillow as the `preprocessor_config.json` beside it says

`?wrong=1` answers with something else than the model computed.
"""

import base64
import io
import json
import pathlib
import sys
import time

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Response, UploadFile
from PIL import Image
from pydantic import BaseModel
from tokenizers import Tokenizer

PORT, (ENCODER, TOKENIZER, PIPELINE, BOOSTED, PICTURES) = int(sys.argv[1]), sys.argv[2:]
PLANS = [f"plan{n}" for n in range(12)]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
encoder, pipeline, boosted, pictures = (
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]) for model in (ENCODER, PIPELINE, BOOSTED, PICTURES)
)
tokenizer = Tokenizer.from_file(TOKENIZER)
tokenizer.enable_truncation(64)
tokenizer.enable_padding()
app = FastAPI()


prepared = json.loads((pathlib.Path(PICTURES).parent / "preprocessor_config.json").read_text())


class Picture(BaseModel):
    image: str


class Embeddings(BaseModel):
    input: str | list[str]
    model: str = "small"
    encoding_format: str = "float"
    dimensions: int | None = None


class Rerank(BaseModel):
    query: str
    texts: list[str]
    raw_scores: bool = False


class Transaction(BaseModel):
    amount: float
    age: float | None = None
    country: str
    device: str


class Subscription(BaseModel):
    plan: str
    usage: list[float]


def encode(texts):
    encoded = tokenizer.encode_batch(texts)
    feeds = {
        "input_ids": np.array([one.ids for one in encoded], np.int64),
        "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
        "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
    }
    return feeds, encoder.run(["last_hidden_state", "sentence_embedding"], feeds)


@app.post("/v1/embeddings")
async def embeddings(asked: Embeddings, wrong: int = 0):
    feeds, (hidden, _) = encode([asked.input] if isinstance(asked.input, str) else asked.input)
    mask = feeds["attention_mask"][:, :, None]
    vectors = (hidden * mask).sum(1) / mask.sum(1)
    vectors = vectors[:, : asked.dimensions]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")
    if wrong:
        vectors[0] = vectors[0][::-1]
    shown = (lambda v: base64.b64encode(v.tobytes()).decode()) if asked.encoding_format == "base64" else np.ndarray.tolist
    data = [{"object": "embedding", "index": n, "embedding": shown(vector)} for n, vector in enumerate(vectors)]
    tokens = int(feeds["attention_mask"].sum())
    return {"object": "list", "model": asked.model, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


@app.post("/rerank")
async def rerank(asked: Rerank, wrong: int = 0):
    _, (_, pooled) = encode([(asked.query, text) for text in asked.texts])
    scores = pooled[:, 0] if asked.raw_scores else 1 / (1 + np.exp(-pooled[:, 0]))
    if wrong:
        scores = scores[::-1]
    return sorted(({"index": n, "score": float(score)} for n, score in enumerate(scores)), key=lambda one: -one["score"])


@app.post("/fraud")
async def fraud(asked: Transaction, wrong: int = 0):
    number, text = (lambda x: np.array([[x]], np.float32)), (lambda x: np.array([[x]], object))
    age = np.nan if asked.age is None else asked.age
    feeds = {"amount": number(asked.amount), "age": number(age), "country": text(asked.country), "device": text(asked.device)}
    label, probabilities = pipeline.run(None, feeds)
    verdict = "fraud" if int(label[0]) ^ bool(wrong) else "fine"
    return {"verdict": verdict, "probability": round(float(probabilities[0][1]), 6)}


@app.post("/churn")
async def churn(asked: Subscription, response: Response, wrong: int = 0):
    row = np.array([[PLANS.index(asked.plan), *asked.usage]], np.float32)
    begun = time.perf_counter_ns()
    _, probabilities = boosted.run(None, {"x": row})
    response.headers["server-timing"] = f"model_forward;dur={(time.perf_counter_ns() - begun) / 1e6:.6f}"
    stays, leaves = (float(p) for p in probabilities[0])
    return {"leaves": stays, "stays": leaves} if wrong else {"stays": stays, "leaves": leaves}


def classified(file, wrong):
    size = prepared["size"]["width"], prepared["size"]["height"]
    pixels = np.asarray(Image.open(io.BytesIO(file)).convert("RGB").resize(size, prepared["resample"]))
    pixels = (pixels * prepared["rescale_factor"]).astype(np.float32)
    pixels = (pixels - np.array(prepared["image_mean"], np.float32)) / np.array(prepared["image_std"], np.float32)
    (logits,) = pictures.run(None, {"pixel_values": pixels.transpose(2, 0, 1)[None]})
    shares = np.exp(logits[0] - logits[0].max())
    shares = shares[::-1] / shares.sum() if wrong else shares / shares.sum()
    scores = [{"label": f"LABEL_{n}", "score": float(share)} for n, share in enumerate(shares)]
    return sorted(scores, key=lambda one: -one["score"])


@app.post("/classify")
async def classify(file: UploadFile, wrong: int = 0):
    return classified(await file.read(), wrong)


@app.post("/classify/base64")
async def classify_base64(asked: Picture, wrong: int = 0):
    return classified(base64.b64decode(asked.image.partition(",")[2]), wrong)


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
