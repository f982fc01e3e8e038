"""Sentence embeddings as teams serve them: FastAPI, the tokenizers library, onnxruntime. usage: embed_server.py PORT MODEL.onnx TOKENIZER.json

`POST /embed` with {"inputs": text or [text, ...]} answers with a list of vectors, and reports preprocessing and forward in `Server-Timing`.
Texts are cut to 64 tokens.
"""

import sys
import time

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from tokenizers import Tokenizer

PORT, MODEL, TOKENIZER = int(sys.argv[1]), sys.argv[2], sys.argv[3]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(TOKENIZER)
tokenizer.enable_truncation(64)
tokenizer.enable_padding()
app = FastAPI()


@app.post("/embed")
async def embed(request: Request):
    texts = (await request.json())["inputs"]
    began = time.perf_counter_ns()
    encoded = tokenizer.encode_batch([texts] if isinstance(texts, str) else texts)
    feeds = {
        "input_ids": np.array([one.ids for one in encoded], np.int64),
        "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
        "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
    }
    ready = time.perf_counter_ns()
    (vectors,) = session.run(["sentence_embedding"], feeds)
    done = time.perf_counter_ns()
    timing = f"preprocessing;dur={(ready - began) / 1e6:.6f}, forward;dur={(done - ready) / 1e6:.6f}"
    return JSONResponse(vectors.tolist(), headers={"server-timing": timing})


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
