"""Feast's feature server with Redis as its online store; runs in .venv-feast until it is ended. usage: feast_store.py FOLDER PORT REDIS_PORT

Drivers 1000 and 1001 have two features each.
"""

import datetime
import os
import pathlib
import sys

import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float32, Int64

folder, port, redis_port = sys.argv[1:]
os.chdir(folder)
pathlib.Path("feature_store.yaml").write_text(f"""\
project: fraud
registry: registry.db
provider: local
online_store: {{type: redis, connection_string: "127.0.0.1:{redis_port}"}}
offline_store: {{type: file}}
entity_key_serialization_version: 3
""")
now = pandas.Timestamp.now("UTC")
frame = pandas.DataFrame({"driver_id": [1000, 1001], "event_timestamp": now, "trips": [5, 7], "rate": [0.5, 0.9]})
frame.to_parquet("stats.parquet")
driver = Entity(name="driver_id", join_keys=["driver_id"], value_type=ValueType.INT64)
view = FeatureView(
    name="stats",
    entities=[driver],
    ttl=datetime.timedelta(days=1),
    schema=[Field(name="trips", dtype=Int64), Field(name="rate", dtype=Float32)],
    source=FileSource(path="stats.parquet", timestamp_field="event_timestamp"),
)
store = FeatureStore(".")
store.apply([driver, view])
store.write_to_online_store("stats", frame)
os.execv(sys.executable, [sys.executable, "-m", "feast.cli.cli", "serve", "-h", "127.0.0.1", "-p", port])
