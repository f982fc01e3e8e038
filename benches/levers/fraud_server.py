"""A fraud model as teams serve it: FastAPI reads the features of the users that a request names from Redis, by redis-py, and LightGBM scores
them. usage: fraud_server.py PORT REDIS_PORT MODEL.txt | fraud_server.py --make USERS REDIS_PORT MODEL.txt

With --make it trains the model on made-up payments, and writes the features of so many users to that Redis, a hash each. The answer has a
score for each user, and its header x-own-hydration-ms says how long the handler waited for features by its own clock.
"""

import sys
import time

import lightgbm
import numpy as np
import redis

FEATURES = ("age_days", "payments_1d", "payments_30d", "amount_1d", "amount_30d", "largest_30d", "declined_30d", "countries_30d", "devices_30d", "night_share", "new_payees_7d", "chargebacks")
TREES = 300


def made_up(rows, rng):
    """Features of users, in the order of FEATURES."""
    age, payments = rng.exponential(500, rows), rng.poisson(20, rows)
    day, declined = rng.poisson(payments / 20), rng.binomial(payments, 0.03)
    amount, largest = rng.gamma(2, 30, rows), rng.gamma(2, 80, rows)
    others = (rng.poisson(1.3, rows), rng.poisson(1.5, rows), rng.beta(1, 6, rows), rng.poisson(0.5, rows), rng.binomial(3, 0.01, rows))
    return np.column_stack([age, day, payments, amount * day, amount * payments, largest, declined, *others]).round(4)


def make(users, redis_port, file):
    rng = np.random.default_rng(1)
    x = made_up(20_000, rng)
    # young accounts with refusals, new payees and payments at night
    risk = 1.2 * x[:, 6] + 1.5 * x[:, 10] + 4 * x[:, 9] + 3 * x[:, 11] - x[:, 0] / 300 - 2.5
    y = rng.random(len(x)) < 1 / (1 + np.exp(-risk))
    settings = {"objective": "binary", "num_leaves": 31, "num_threads": 1, "verbosity": -1, "seed": 1, "deterministic": True}
    lightgbm.train(settings, lightgbm.Dataset(x, y, feature_name=list(FEATURES)), TREES).save_model(file)
    store = redis.Redis(port=redis_port)
    with store.pipeline(transaction=False) as pipeline:
        for user, row in enumerate(made_up(users, rng)):
            pipeline.hset(f"fraud:user:{user}", mapping=dict(zip(FEATURES, row.tolist())))
        pipeline.execute()


def serve(port, redis_port, file):
    import uvicorn
    from fastapi import FastAPI, HTTPException, Response
    from pydantic import BaseModel

    class Tensor(BaseModel):
        name: str
        shape: list[int]
        datatype: str
        data: list[int]

    class InferRequest(BaseModel):
        inputs: list[Tensor]

    app, store, model = FastAPI(), redis.Redis(port=redis_port), lightgbm.Booster(model_file=file)
    store.ping()

    @app.post("/v2/models/fraud/infer")
    def infer(asked: InferRequest, response: Response):
        users, began = asked.inputs[0].data, time.perf_counter()
        with store.pipeline(transaction=False) as pipeline:
            for user in users:
                pipeline.hmget(f"fraud:user:{user}", FEATURES)
            rows = pipeline.execute()
        response.headers["x-own-hydration-ms"] = f"{1e3 * (time.perf_counter() - began):.3f}"
        if any(None in row for row in rows):
            raise HTTPException(404, "a user without features")
        scores = model.predict(np.array(rows, dtype=np.float64), num_threads=1)
        output = {"name": "score", "shape": [len(scores)], "datatype": "FP64", "data": scores.tolist()}
        return {"model_name": "fraud", "outputs": [output]}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", backlog=4096)


if sys.argv[1] == "--make":
    make(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
else:
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
