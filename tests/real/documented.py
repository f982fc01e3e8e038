"""Answers of the admin address against the schemas of its own `/openapi.json`."""

import json

import jsonschema_rs


def validator(lapwing, path):
    """Of the JSON that a GET of `path` answers."""
    document = json.loads(lapwing.get("/openapi.json")[2])
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return jsonschema_rs.validator_for({**schema, "components": document["components"]})


def assert_documented(lapwing, path, answer):
    """Each member is as documented, and a member of another type would be found."""
    assert answer, path
    validates = validator(lapwing, path)
    validates.validate(answer)
    for member in answer:
        assert not validates.is_valid({**answer, member: object_unlike(answer[member])}), f"{path}: any {member} is valid"


def object_unlike(value):
    return [7] if not isinstance(value, list) else {"seven": 7}
