"""Stage reporting by OpenTelemetry: a FastAPI handler whose spans Lapwing joins to its requests.

    pip install fastapi uvicorn numpy opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    uvicorn python_otel:app --port 8000              # the model server
    lapwing --upstream http://127.0.0.1:8000         # in front of it, on 8080; takes spans on 4318 (HTTP) and 4317 (gRPC)
    curl 127.0.0.1:8080/predict -H 'content-type: application/json' -d '{"entity_ids": [3, 1, 4]}'
    sleep 6; curl 127.0.0.1:9464/stats               # the SDK sends a batch every 5 s

The exporter uses its defaults: it sends to OTEL_EXPORTER_OTLP_ENDPOINT or, if that is not set, to http://localhost:4318, where
Lapwing listens. If you have a collector, name it in Lapwing's `otlp_forward`, and Lapwing forwards everything to it.
"""

import numpy as np
from fastapi import FastAPI, Request
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic import BaseModel

# --- as in the documentation of opentelemetry-sdk
provider = TracerProvider(resource=Resource.create({"service.name": "model-server"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("model-server")

# --- in place of your feature store and your model
random = np.random.default_rng(7)
FEATURES = random.normal(5.0, 2.0, (1000, 64)).astype(np.float32)
WEIGHTS = random.normal(size=(64, 10)).astype(np.float32)

app = FastAPI()


class Query(BaseModel):
    entity_ids: list[int]


def caller(request):
    """The parent of the server span: the current one (None) if FastAPI is instrumented, else Lapwing's, from `traceparent`."""
    is_traced = trace.get_current_span().get_span_context().is_valid
    return None if is_traced else propagate.extract(request.headers)


@app.post("/predict")
def predict(query: Query, request: Request):
    with tracer.start_as_current_span("POST /predict", caller(request), kind=trace.SpanKind.SERVER):
        with tracer.start_as_current_span("feature_hydration"):
            rows = np.stack([FEATURES[entity % len(FEATURES)] for entity in query.entity_ids])
        with tracer.start_as_current_span("preprocessing"):
            x = (rows - 5.0) / 2.0
        with tracer.start_as_current_span("model_forward"):
            logits = x @ WEIGHTS
        # a span of any name may name its stage in an attribute
        with tracer.start_as_current_span("pick best", attributes={"lapwing.stage": "postprocessing"}):
            labels = logits.argmax(axis=1).tolist()
    return {"labels": labels}
