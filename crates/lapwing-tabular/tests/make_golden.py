#!/usr/bin/env python3
"""Makes the cases of tests/libraries.rs.

usage: python3 crates/lapwing-tabular/tests/make_golden.py [DIR], or --random N --seed S FILE

Pipelines are trained on synthetic data with scikit-learn, LightGBM and XGBoost, exported by skl2onnx and onnxmltools, and run by
ONNX Runtime on one thread; a case has the model, its inputs, what ONNX Runtime answers, and what the library predicts. Random models of
one or a few nodes (rules.jsonl) cover what the libraries do not export. Versions: requirements.txt beside this file.

A tensor is {name, datatype, shape, data}: the names of the Open Inference Protocol, and its binary form in base64.
"""
import base64, json, pathlib, sys, warnings

if {"-h", "--help"} & set(sys.argv):  # also where the packages are not installed
    print(__doc__)
    raise SystemExit

warnings.filterwarnings("ignore")
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent / "golden"
NAMES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
ort.set_default_logger_severity(4)


def tensor(name, array):
    array = np.asarray(array)
    if array.dtype.kind in "OUS":
        texts = [t if isinstance(t, bytes) else str(t).encode() for t in array.ravel()]
        data, datatype = b"".join(len(t).to_bytes(4, "little") + t for t in texts), "BYTES"
    else:
        data, datatype = np.ascontiguousarray(array).tobytes(), NAMES[array.dtype.name]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": base64.b64encode(data).decode()}


def run(model, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    out = []
    for info, value in zip(session.get_outputs(), session.run(None, feeds)):
        if isinstance(value, list):  # maps of a ZipMap: a matrix in the order of the labels
            labels = next([*a.ints] or [*a.strings] for n in model.graph.node if n.op_type == "ZipMap" for a in n.attribute)
            labels = [l.decode() if isinstance(l, bytes) else l for l in labels]
            value = np.array([[row[l] for l in labels] for row in value], np.float32)
        out.append(tensor(info.name, value))
    return out


def case(model, feeds, library=None):
    named = {"inputs": [tensor(k, v) for k, v in feeds.items()], "outputs": run(model, feeds)}
    if library is not None:
        named["library"] = [tensor(k, v) for k, v in library.items()]
    return named


# --- models of libraries -------------------------------------------------------------------------------------------------
def libraries(folder):
    import lightgbm as lgb
    import onnxmltools
    import pandas as pd
    import xgboost as xgb
    from onnxmltools.convert.common.data_types import FloatTensorType as F
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
    from sklearn import cluster, decomposition, ensemble, impute, linear_model, naive_bayes, neural_network, pipeline, preprocessing, svm, tree
    from sklearn.compose import ColumnTransformer

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6)).astype(np.float32)
    yr = (X[:, 0] * 2 + np.sin(X[:, 1]) + X[:, 2] * X[:, 3]).astype(np.float32)
    y2, y3 = (yr > 0).astype(np.int64), np.digitize(yr, [-1, 1]).astype(np.int64)
    Xn = np.where(rng.random(X.shape) < 0.1, np.nan, X).astype(np.float32)
    T = rng.standard_normal((20, 6)).astype(np.float32)
    Tn = np.where(rng.random(T.shape) < 0.2, np.nan, T).astype(np.float32)
    P, S = pipeline.make_pipeline, preprocessing.StandardScaler

    def save(name, model, feeds, library):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        (folder / f"{name}.json").write_text(json.dumps(case(model, feeds, library)))
        print(name, len(model.SerializeToString()), sorted({n.op_type for n in model.graph.node}), flush=True)

    def predictions(model, data):
        found = {"label": model.predict(data)}
        if hasattr(model, "predict_proba"):
            found["scores"] = model.predict_proba(data).astype(np.float64)
        return found

    def skl(name, model, y, zipmap=False, train=X, test=T, kind=FloatTensorType, **options):
        model.fit(train, y)
        extra = {id(model): {"zipmap": zipmap}} if hasattr(model, "predict_proba") else {}
        test = test.astype(np.float64) if kind is DoubleTensorType else test
        onnx_model = convert_sklearn(model, initial_types=[("x", kind([None, train.shape[1]]))], options=extra or None, **options)
        save(name, onnx_model, {"x": test}, predictions(model, test))

    for attempt in (
        lambda: skl("logistic_imputer_scaler_zipmap", P(impute.SimpleImputer(), S(), linear_model.LogisticRegression()), y2, True, Xn, Tn),
        lambda: skl("logistic_multinomial", linear_model.LogisticRegression(), y3),
        lambda: skl("logistic_string_labels", linear_model.LogisticRegression(), np.where(y2 == 1, "fraud", "ok")),
        lambda: skl("minmax_pca_ridge", P(preprocessing.MinMaxScaler(), decomposition.PCA(3), linear_model.Ridge()), yr),
        lambda: skl("polynomial_lasso", P(preprocessing.PolynomialFeatures(2), linear_model.Lasso(0.01)), yr),
        lambda: skl("gaussian_nb", naive_bayes.GaussianNB(), y3),
        lambda: skl("svc_rbf", svm.SVC(probability=True, random_state=0), y2),
        lambda: skl("svc_poly_multiclass", svm.SVC(kernel="poly", degree=3, probability=True, random_state=0), y3),
        lambda: skl("linear_svc", svm.LinearSVC(), y3),
        lambda: skl("svr", svm.SVR(), yr),
        lambda: skl("kmeans", cluster.KMeans(4, n_init=2, random_state=0), None),
        lambda: skl("mlp_classifier", P(S(), neural_network.MLPClassifier((8,), max_iter=30, random_state=0)), y2),
        lambda: skl("decision_tree", tree.DecisionTreeClassifier(max_depth=6), y2),
        lambda: skl("random_forest", ensemble.RandomForestClassifier(12, max_depth=7, random_state=0), y2),
        lambda: skl("random_forest_multiclass", ensemble.RandomForestClassifier(10, max_depth=6, random_state=0), y3, True),
        lambda: skl("random_forest_double", ensemble.RandomForestClassifier(5, max_depth=5, random_state=0), y3, kind=DoubleTensorType),
        lambda: skl("deep_forest_regressor", ensemble.RandomForestRegressor(2, random_state=0), yr),
        lambda: skl("extra_trees", ensemble.ExtraTreesClassifier(10, max_depth=6, random_state=0), y3),
        lambda: skl("gradient_boosting", ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0), y2),
        lambda: skl("hist_gradient_boosting", ensemble.HistGradientBoostingClassifier(max_iter=10), y2, train=Xn, test=Tn),
        lambda: skl("isolation_forest", ensemble.IsolationForest(n_estimators=8, random_state=0), None, target_opset={"": 17, "ai.onnx.ml": 3}),
    ):
        try:
            attempt()
        except Exception as error:
            print(f"SKIPPED {type(error).__name__}: {str(error)[:200]}", flush=True)

    CAT = pd.DataFrame({"amount": rng.gamma(2, 50, 400).astype(np.float32), "age": rng.integers(18, 80, 400).astype(np.float32), "country": rng.choice(["de", "fr", "us", "jp"], 400), "device": rng.choice(["ios", "android", "web"], 400)})
    ycat = ((CAT.amount > 100) ^ (CAT.country == "us")).astype(np.int64).to_numpy()
    types = [("amount", FloatTensorType([None, 1])), ("age", FloatTensorType([None, 1])), ("country", StringTensorType([None, 1])), ("device", StringTensorType([None, 1]))]
    test = CAT.head(20).copy()
    test.loc[3, "country"] = "xx"
    feeds = {k: test[[k]].to_numpy() for k in test}
    feeds = {k: v.astype(np.float32) if v.dtype != object else v for k, v in feeds.items()}
    for name, model in (("columns_onehot_logistic", linear_model.LogisticRegression()), ("columns_onehot_boosting", ensemble.GradientBoostingClassifier(n_estimators=15, random_state=0))):
        m = P(ColumnTransformer([("n", P(impute.SimpleImputer(), S()), ["amount", "age"]), ("c", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["country", "device"])]), model).fit(CAT, ycat)
        save(name, convert_sklearn(m, initial_types=types, options={id(m): {"zipmap": name.endswith("logistic")}}), feeds, predictions(m, test))
    enc = P(ColumnTransformer([("o", preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["country", "device"])]), tree.DecisionTreeClassifier(max_depth=3)).fit(CAT, ycat)
    save("ordinal_tree", convert_sklearn(enc, initial_types=types[2:], options={id(enc): {"zipmap": False}}), {k: feeds[k] for k in ("country", "device")}, predictions(enc, test))
    Xi = rng.integers(0, 6, (300, 3)).astype(np.int64)
    m = P(preprocessing.OneHotEncoder(handle_unknown="ignore"), linear_model.LogisticRegression()).fit(Xi, (Xi.sum(1) > 8).astype(int))
    save("onehot_integers", convert_sklearn(m, initial_types=[("x", Int64TensorType([None, 3]))], options={id(m): {"zipmap": False}}), {"x": Xi[:20] + (np.arange(20) == 4)[:, None] * 9}, predictions(m, Xi[:20] + (np.arange(20) == 4)[:, None] * 9))

    Xc = X.copy()
    Xc[:, 5] = rng.integers(0, 9, len(X))
    Tc = T.copy()
    Tc[:, 5] = rng.integers(0, 11, len(T))
    for name, model, y, train, test_rows, zipmap in (
        ("lightgbm", lgb.LGBMClassifier(n_estimators=15, num_leaves=15, verbose=-1, n_jobs=1), y2, Xn, Tn, False),
        ("lightgbm_zipmap", lgb.LGBMClassifier(n_estimators=8, num_leaves=15, verbose=-1, n_jobs=1), y2, X, T, True),
        ("lightgbm_multiclass", lgb.LGBMClassifier(n_estimators=6, num_leaves=7, verbose=-1, n_jobs=1), y3, X, T, False),
        ("lightgbm_regressor", lgb.LGBMRegressor(n_estimators=20, num_leaves=31, verbose=-1, n_jobs=1), yr, Xn, Tn, None),
        ("lightgbm_categories", lgb.LGBMClassifier(n_estimators=8, num_leaves=15, verbose=-1, n_jobs=1, categorical_feature=[5], min_data_per_group=1, cat_smooth=1), y2, Xc, Tc, False),
        ("xgboost", xgb.XGBClassifier(n_estimators=10, max_depth=4, n_jobs=1), y2, Xn, Tn, None),
        ("xgboost_multiclass", xgb.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1), y3, X, T, None),
        ("xgboost_regressor", xgb.XGBRegressor(n_estimators=10, max_depth=6, n_jobs=1), yr, Xn, Tn, None),
    ):
        model.fit(train, y)
        convert = onnxmltools.convert_lightgbm if name.startswith("lightgbm") else onnxmltools.convert_xgboost
        made = convert(model, initial_types=[("x", F([None, 6]))], **({} if zipmap is None else {"zipmap": zipmap}))
        save(name, made, {"x": test_rows}, predictions(model, test_rows))


# --- random models -------------------------------------------------------------------------------------------------------
ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
POST = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def grown(rng, depth, modes, width):
    """A tree as a list of nodes: (mode, column, threshold, true, false, missing) or ("LEAF",)."""
    nodes = []

    def grow(depth):
        at = len(nodes)
        nodes.append(("LEAF",))
        if depth and rng.random() < 0.85:
            mode, column, threshold = rng.choice(modes), int(rng.integers(width)), float(rng.integers(-4, 5)) / 2
            true, false = grow(depth - 1), grow(depth - 1)
            nodes[at] = (str(mode), column, threshold, true, false, int(rng.integers(2)))
        return at

    grow(depth)
    return nodes


def rows(rng, kind, width):
    x = rng.integers(-6, 7, (int(rng.choice([1, 2, 5, 19])), width)) / 2
    if kind in (np.float32, np.float64):
        x = np.where(rng.random(x.shape) < 0.1, np.nan, x)
        x = np.where(rng.random(x.shape) < 0.03, np.inf * rng.choice([-1, 1]), x)
    return x.astype(kind)


def model_of(nodes, kind, width, outputs, ml, inputs=None):
    graph_inputs = inputs or [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [None, width])]
    graph = helper.make_graph(nodes, "g", graph_inputs, [helper.make_tensor_value_info(n, t, None) for n, t in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, ml)], ir_version=8)


def weights(rng, sign):
    value = float(np.round(rng.standard_normal(), 2)) if rng.random() < 0.8 else float(rng.choice([0, 0.25, 0.5]))
    return abs(value) / 4 if sign == "positive" else value


def random_trees(rng):
    is_classifier = rng.random() < 0.6
    kind = rng.choice([np.float32, np.float32, np.float64, np.int64, np.int32]) if is_classifier else rng.choice([np.float32, np.float32, np.float64])
    width, count = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    modes = [rng.choice(MODES)] if rng.random() < 0.6 else MODES
    classes = int(rng.choice([1, 2, 2, 2, 3, 5]))
    sign = rng.choice(["positive", "any"])
    layout = rng.choice(["one", "all", "some"])
    fixed = int(rng.integers(classes)) if rng.random() < 0.3 else 0
    a = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true")}
    w = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(count):
        for i, node in enumerate(grown(rng, int(rng.integers(0, 6)), modes, width)):
            leaf = node[0] == "LEAF"
            for k, v in zip(a, (t, i, 0 if leaf else node[1], 0.0 if leaf else node[2], node[0], 0 if leaf else node[3], 0 if leaf else node[4], 0 if leaf else node[5])):
                a[k].append(v)
            if leaf:
                ids = {"one": [fixed], "all": range(classes), "some": [c for c in range(classes) if rng.random() < 0.5] or [0]}[str(layout)]
                for c in ids:
                    for k, v in zip(w, (t, i, c, weights(rng, sign))):
                        w[k].append(v)
    if rng.random() < 0.4:
        del a["nodes_missing_value_tracks_true"]
    bases = rng.choice([0, 0, 1, classes, 2 if classes == 1 and not is_classifier else classes]) if is_classifier and classes <= 2 else rng.choice([0, classes])
    bases = min(int(bases), classes) if classes == 1 else int(bases)
    if classes == 2 and is_classifier and layout == "some" and bases == 1:
        bases = 2  # of a class without a score ONNX Runtime leaves it unwritten
    base = [weights(rng, "any") for _ in range(bases)]
    if classes == 2 and is_classifier and bases == 2:
        base = [base[0]] * 2 if rng.random() < 0.5 else base
    post = str(rng.choice(POST[:4] if classes == 2 else POST))  # of one score ONNX Runtime leaves the other class's unwritten
    if is_classifier:
        strings = rng.random() < 0.3 and classes > 1
        labels = {"classlabels_strings": [f"c{i}" for i in range(classes)]} if strings else {"classlabels_int64s": [3 * i + 1 for i in range(classes)] if rng.random() < 0.5 else list(range(classes))}
        named = {f"class_{k}": v for k, v in w.items()}
        node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=ML, post_transform=post, **a, **named, **labels, **({"base_values": base} if base else {}))
        outputs = [("label", TensorProto.STRING if strings else TensorProto.INT64), ("scores", TensorProto.FLOAT)]
    else:
        named = {f"target_{k}": v for k, v in w.items()}
        aggregate = str(rng.choice(["SUM", "SUM", "AVERAGE", "MIN", "MAX"]))
        node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=classes, post_transform=post, aggregate_function=aggregate, **a, **named, **({"base_values": base} if base else {}))
        outputs = [("y", TensorProto.FLOAT)]
    return model_of([node], kind, width, outputs, 3), {"x": rows(rng, kind, width)}


def random_ensemble5(rng):
    kind, width = rng.choice([np.float32, np.float64]), int(rng.integers(1, 4))
    targets = int(rng.choice([1, 2, 3]))
    n = {k: [] for k in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs", "nodes_missing_value_tracks_true")}
    modes, splits, members, leaf_targets, leaf_weights, roots = [], [], [], [], [], []

    def leaf():
        leaf_targets.append(int(rng.integers(targets)))
        leaf_weights.append(weights(rng, "any"))
        return len(leaf_weights) - 1

    for _ in range(int(rng.integers(1, 5))):
        nodes = grown(rng, int(rng.integers(1, 5)), MODES, width)
        if nodes[0][0] == "LEAF":
            nodes = [("BRANCH_LEQ", 0, 0.5, 1, 2, 0), ("LEAF",), ("LEAF",)]
        places, inner = {}, [i for i, node in enumerate(nodes) if node[0] != "LEAF"]
        for i in inner:
            places[i] = len(modes) + inner.index(i)
        roots.append(places[0])
        for i in inner:
            mode, column, threshold, true, false, missing = nodes[i]
            number = MODES.index(mode)
            if rng.random() < 0.3:
                number = 6
                values = rng.choice(np.arange(-4, 5) if rng.random() < 0.5 else np.arange(0, 12), int(rng.integers(1, 6)), replace=False)
                members.extend([*map(float, values), float("nan")])
            modes.append(number)
            splits.append(threshold)
            for k, v in zip(n, (column, places[true] if true in places else leaf(), places[false] if false in places else leaf(), int(true not in places), int(false not in places), missing)):
                n[k].append(v)
    make = lambda name, values, dtype=kind: numpy_helper.from_array(np.array(values, dtype), name)
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain=ML, n_targets=targets, tree_roots=roots, leaf_targetids=leaf_targets, leaf_weights=make("w", leaf_weights), nodes_splits=make("s", splits), nodes_modes=make("m", modes, np.uint8), aggregate_function=int(rng.choice([1, 1, 0, 2, 3])), post_transform=int(rng.integers(5)), **n, **({"membership_values": make("v", members)} if members else {}))
    return model_of([node], kind, width, [("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)))], 5), {"x": rows(rng, kind, width)}


def random_linear(rng):
    width, classes = int(rng.integers(1, 12)), int(rng.choice([1, 2, 3, 4]))
    some = lambda *shape: [float(v) for v in np.round(rng.standard_normal(shape), 2).ravel()]
    post = str(rng.choice(POST[:4]))  # the logarithm in PROBIT makes much of the last bit of a product
    x = np.round(rng.standard_normal((int(rng.choice([1, 3, 17])), width)), 2).astype(np.float32)
    if rng.random() < 0.5:
        node = helper.make_node("LinearRegressor", ["x"], ["y"], domain=ML, targets=classes, coefficients=some(classes, width), post_transform=post, **({"intercepts": some(classes)} if rng.random() < 0.7 else {}))
        return model_of([node], np.float32, width, [("y", TensorProto.FLOAT)], 1), {"x": x}
    strings = rng.random() < 0.4
    labels = max(classes, 2)
    named = {"classlabels_strings": [f"c{i}" for i in range(labels)]} if strings else {"classlabels_ints": [7 * i - 3 for i in range(labels)]}
    kind = rng.choice([np.float32, np.float64, np.int64])
    node = helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain=ML, coefficients=some(classes, width), intercepts=some(classes), post_transform=post, **named)
    return model_of([node], kind, width, [("label", TensorProto.STRING if strings else TensorProto.INT64), ("scores", TensorProto.FLOAT)], 1), {"x": (x * 3).astype(kind)}


def random_svm(rng):
    width, classes = int(rng.integers(1, 5)), int(rng.choice([2, 2, 3, 4]))
    some = lambda *shape: [float(v) for v in np.round(rng.standard_normal(shape), 2).ravel()]
    kernel, params = str(rng.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])), [0.5, 0.1, float(rng.choice([2, 3, 2.5]))]
    x = np.round(rng.random((int(rng.choice([1, 3, 17])), width)), 2).astype(np.float32)
    post = str(rng.choice(POST[:4]))
    vectors = int(rng.choice([0, 5]))
    if rng.random() < 0.4:
        node = helper.make_node("SVMRegressor", ["x"], ["y"], domain=ML, kernel_type=kernel, kernel_params=params, n_supports=vectors, **({"support_vectors": some(vectors, width)} if vectors else {}), coefficients=some(vectors or width), rho=some(1), one_class=int(rng.integers(2)))
        return model_of([node], np.float32, width, [("y", TensorProto.FLOAT)], 1), {"x": x}
    per_class = [int(v) for v in rng.integers(1, 4, classes)]
    pairs = classes * (classes - 1) // 2
    if vectors:
        count = sum(per_class)
        named = dict(vectors_per_class=per_class, support_vectors=[abs(v) for v in some(count, width)], coefficients=some(classes - 1, count), rho=some(pairs))
        if rng.random() < 0.5:
            named.update(prob_a=[-abs(v) for v in some(pairs)], prob_b=some(pairs))
    else:
        named = dict(coefficients=some(classes, width), rho=some(1))
    if rng.random() < 0.3:
        named["coefficients"] = [abs(v) for v in named["coefficients"]]
    labels = {"classlabels_strings": [f"c{i}" for i in range(classes)]} if rng.random() < 0.4 else {"classlabels_ints": [5 * i + 2 for i in range(classes)]}
    node = helper.make_node("SVMClassifier", ["x"], ["label", "scores"], domain=ML, kernel_type=kernel, kernel_params=params, post_transform=post, **named, **labels)
    return model_of([node], np.float32, width, [("label", TensorProto.STRING if "classlabels_strings" in labels else TensorProto.INT64), ("scores", TensorProto.FLOAT)], 1), {"x": x}


def random_columns(rng):
    width = int(rng.integers(1, 5))
    some = lambda n: [float(v) for v in np.round(rng.standard_normal(n), 2)]
    op = str(rng.choice(["Scaler", "Imputer", "Normalizer", "Binarizer", "OneHotEncoder", "ArrayFeatureExtractor", "FeatureVectorizer"]))
    x = np.round(rng.standard_normal((int(rng.choice([1, 3])), width)) * 2, 1)
    F, I = TensorProto.FLOAT, TensorProto.INT64
    if op == "Scaler":
        n, kind = (width if rng.random() < 0.5 else 1), rng.choice([np.float32, np.float64, np.int64, np.int32])
        return model_of([helper.make_node(op, ["x"], ["y"], domain=ML, offset=some(n), scale=some(n))], kind, width, [("y", F)], 1), {"x": x.astype(kind)}
    if op == "Imputer":
        n, kind = (width if rng.random() < 0.5 else 1), rng.choice([np.float32, np.int64])
        if kind is np.float32:
            replaced = float(rng.choice([0.0, np.nan, 1.0]))
            x = np.where(rng.random(x.shape) < 0.4, replaced, x)
            node = helper.make_node(op, ["x"], ["y"], domain=ML, imputed_value_floats=some(n), replaced_value_float=replaced)
        else:
            node = helper.make_node(op, ["x"], ["y"], domain=ML, imputed_value_int64s=[int(v * 10) for v in some(n)], replaced_value_int64=int(rng.integers(-1, 2)))
        return model_of([node], kind, width, [("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)))], 1), {"x": x.astype(kind)}
    if op == "Normalizer":
        kind = rng.choice([np.float32, np.float64, np.int64, np.int32])
        x = x * (rng.random((len(x), 1)) < 0.8)
        return model_of([helper.make_node(op, ["x"], ["y"], domain=ML, norm=str(rng.choice(["MAX", "L1", "L2"])))], kind, width, [("y", F)], 1), {"x": x.astype(kind)}
    if op == "Binarizer":
        named = {"threshold": 0.3} if rng.random() < 0.7 else {}
        return model_of([helper.make_node(op, ["x"], ["y"], domain=ML, **named)], np.float32, width, [("y", F)], 1), {"x": x.astype(np.float32)}
    if op == "OneHotEncoder":
        kind = rng.choice([np.float32, np.float64, np.int64])
        return model_of([helper.make_node(op, ["x"], ["y"], domain=ML, cats_int64s=[0, 1, 2, -1])], kind, width, [("y", F)], 1), {"x": x.astype(kind)}
    if op == "ArrayFeatureExtractor":
        kind = rng.choice([np.float32, np.float64, np.int64, np.int32])
        index = numpy_helper.from_array(rng.integers(0, width, int(rng.integers(1, 5))), "i")
        model = model_of([helper.make_node(op, ["x", "i"], ["y"], domain=ML)], kind, width, [("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)))], 1)
        model.graph.initializer.append(index)
        return model, {"x": x.astype(kind)}
    inputs = [helper.make_tensor_value_info("a", F, [None, width]), helper.make_tensor_value_info("b", F, [None, 2])]
    node = helper.make_node(op, ["a", "b"], ["y"], domain=ML, inputdimensions=[width, int(rng.integers(1, 4))])
    return model_of([node], None, None, [("y", F)], 1, inputs), {"a": x.astype(np.float32), "b": rng.integers(-9, 9, (len(x), 2)).astype(np.float32)}


def random_labels(rng):
    S, I, F = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT
    kinds = {"strings": (S, ["a", "b", "ü", ""]), "int64s": (I, [3, -1, 7, 0]), "floats": (F, [0.5, -0.0, float("nan"), 2.0])}
    key, value = str(rng.choice(list(kinds))), str(rng.choice(list(kinds)))
    version = int(rng.choice([2, 4])) if key != value else 4
    if version == 2 and key == "floats" and value == "floats":
        version = 4
    default = {"strings": {"default_string": "none"}, "int64s": {"default_int64": -7}, "floats": {"default_float": 1.5}}[value] if rng.random() < 0.5 else {}
    named = {f"keys_{key}": kinds[key][1], f"values_{value}": kinds[value][1], **default}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, **named)
    given = {"strings": np.array([["a"], ["zz"], ["ü"], [""]], object), "int64s": np.array([[3], [5], [0], [-1]]), "floats": np.array([[0.5], [np.nan], [0.0], [9]], np.float32)}[key]
    inputs = [helper.make_tensor_value_info("x", kinds[key][0], [None, 1])]
    return model_of([node], None, None, [("y", kinds[value][0])], version, inputs), {"x": given}


MAKERS = [random_trees] * 5 + [random_ensemble5] * 2 + [random_linear, random_svm, random_columns, random_labels]


def random_cases(count, seed, path):
    rng, made, refused = np.random.default_rng(seed), 0, {}
    with open(path, "w") as out:
        while made < count:
            maker = MAKERS[int(rng.integers(len(MAKERS)))]
            model, feeds = maker(rng)
            try:
                found = case(model, feeds)
            except Exception as error:  # ONNX Runtime does not take it
                refused[f"{maker.__name__}: {str(error)[:400]}"] = refused.get(f"{maker.__name__}: {str(error)[:400]}", 0) + 1
                continue
            out.write(json.dumps({"model": base64.b64encode(model.SerializeToString()).decode(), **found}) + "\n")
            made += 1
    for reason, times in sorted(refused.items(), key=lambda item: -item[1])[:12]:
        print(f"refused by ONNX Runtime {times} times: {reason}")


if __name__ == "__main__":
    if "--random" in sys.argv:
        number = lambda name: int(sys.argv[sys.argv.index(name) + 1])
        random_cases(number("--random"), number("--seed"), sys.argv[-1])
    else:
        target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
        libraries(target)
        random_cases(150, 1, target / "rules.jsonl")
