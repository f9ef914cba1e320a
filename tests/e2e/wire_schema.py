"""docs/schema/lmtp.json, by which tests judge messages of both directions."""

import json
import pathlib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "lmtp.json").read_text())
# JSON Schema takes 5.0 for a whole number, and the server does not.
Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)
VALIDATORS = {verb: Validator({**SCHEMA, "$ref": f"#/$defs/{verb}"})
              for verb in SCHEMA["$defs"] if verb.isupper()}

# Errors that no schema finds: of a model, of JSON itself, and of what JSON Schema cannot say.
NOT_OF_THE_SCHEMA = (
    r"is not in the vocabulary|is not served here|, at least one|is nested deeper"
    r"|: holds a (number|string)|is given twice|key '2147483648' is not a token id"
)


def is_valid(verb, payload):
    return VALIDATORS[verb].is_valid(payload)


def loads(text):
    """JSON as the server reads it: without NaN, and no name twice. Raises ValueError."""

    def refuse(constant):
        raise ValueError(constant)

    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name is there twice")
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
