"""MLServer's own runtime for scikit-learn with a span around it, as docs/UPSTREAMS.md says."""

from mlserver.tracing import get_tracer_provider
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver_sklearn import SKLearnModel
from opentelemetry import trace


class Traced(SKLearnModel):
    async def load(self) -> bool:
        trace.set_tracer_provider(get_tracer_provider(None))
        self.tracer = trace.get_tracer("traced")
        return await super().load()

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        with self.tracer.start_as_current_span("forward"):
            return await super().predict(payload)
