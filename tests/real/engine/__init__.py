"""The engine's tests: models, ONNX Runtime as the reference, and the engine as a process that speaks the Open Inference Protocol."""
