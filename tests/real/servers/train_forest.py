"""Trains a forest of scikit-learn and writes it to MODEL.joblib, and to MODEL.onnx with the names that MLServer gives its outputs.

usage: train_forest.py MODEL
"""

import sys

import joblib
import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = 6

rng = np.random.default_rng(4)
x = rng.standard_normal((600, FEATURES)).astype(np.float32)
y = np.digitize(x[:, 0] * 2 + np.sin(x[:, 1]) + x[:, 2] * x[:, 3], [-1, 1])
forest = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=40, max_depth=6, random_state=4))
forest.fit(x, y)
outputs = [("predict", Int64TensorType([None])), ("predict_proba", FloatTensorType([None, 3]))]
inputs = [("x", FloatTensorType([None, FEATURES]))]
exported = to_onnx(forest, initial_types=inputs, final_types=outputs, options={"zipmap": False})
joblib.dump(forest, f"{sys.argv[1]}.joblib")
with open(f"{sys.argv[1]}.onnx", "wb") as file:
    file.write(exported.SerializeToString())
