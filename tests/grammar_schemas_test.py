#!/usr/bin/env python3
"""Documents drawn under the masks of JSON schemas are valid, as python-jsonschema sees it.

  grammar_schemas_test.py PROGRAM MODEL [--n N] [--seed S] [--show]

PROGRAM: make_schema_documents (tests/support). Makes N schemas (default 200) of the shapes that public test suites have
(objects, arrays, enumerations, references, recursion, patterns, formats, bounds, alternatives, allOf, 20 levels deep),
has one document drawn for each, every token uniformly at random among the allowed ones, and validates it, formats
included. Exit status 1 when one is not valid.
"""
import argparse
import json
import random
import subprocess
import sys

import jsonschema

PATTERNS = ["^[a-z]+$", "^[A-Z]{2}[0-9]{3}$", "^(foo|bar)-\\d+$", "^#[0-9a-fA-F]{6}$", "b+", "^v\\d+\\.\\d+$",
            "^[^@ ]+@[^@ ]+$", "^\\S+$", "^\"[a-z]*\\\\$", "^(a|b|c){2,5}x?$", "^[\\w-]{1,12}$", "^$|^x"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri"]
VALUES = [None, True, False, 0, -7, 2.5, "", "a b", "quote\"back\\slash", "é€😀", [], [1, "x"], {"k": {"n": []}}]
NAMES = ["id", "name", "a", "ab", "abc", "value", "items", "key with space", "é", "q\"uote", "x/y~z", "next", "type"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.defs = {}

    def schema(self, depth):
        kinds = [self.string, self.string, self.number, self.integer, self.values, self.simple]
        if depth > 0:
            kinds += [self.object, self.object, self.object, self.array, self.array, self.alternatives, self.joined,
                      self.reference, self.map, self.tuple]
        return self.rng.choice(kinds)(depth)

    def simple(self, _):
        kind = self.rng.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"]])
        return {"type": kind, "title": "t", "description": "d", "default": None, "x-extra": {"not": {}}}

    def string(self, _):
        schema = {"type": "string"}
        what = self.rng.randrange(5)
        if what == 0:
            schema["pattern"] = self.rng.choice(PATTERNS)
        elif what == 1:
            schema["format"] = self.rng.choice(FORMATS)
        elif what == 2:
            schema["minLength"] = self.rng.randrange(5)
            schema["maxLength"] = schema["minLength"] + self.rng.randrange(30)
        elif what == 3:
            schema["maxLength"] = self.rng.choice([0, 1, 40, 3000])
        return schema

    def bounds(self, schema, whole):
        low = self.rng.choice([-1000, -17, -1, 0, 1, 5, 99]) if whole else self.rng.choice([-12.75, -1, -0.5, 0, 0.05, 3])
        high = low + (self.rng.choice([2, 3, 10, 1000, 12345]) if whole else self.rng.choice([0.1, 0.5, 1, 7.25, 1000]))
        if self.rng.random() < 0.7:
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = low
        if self.rng.random() < 0.7:
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = round(high, 3)
        return schema

    def integer(self, _):
        return self.bounds({"type": "integer"}, True)

    def number(self, _):
        return self.bounds({"type": "number"}, False)

    def values(self, _):
        if self.rng.random() < 0.3:
            return {"const": self.rng.choice(VALUES)}
        return {"enum": self.rng.sample(VALUES, self.rng.randrange(1, 6))}

    def object(self, depth):
        names = self.rng.sample(NAMES, self.rng.randrange(0, 6))
        schema = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        schema["required"] = [n for n in names if self.rng.random() < 0.5]
        more = self.rng.randrange(4)
        if more == 0:
            schema["additionalProperties"] = False
        elif more == 1:
            schema["additionalProperties"] = self.schema(0)
        return schema

    def map(self, depth):
        schema = {"type": "object", "additionalProperties": self.schema(depth - 1)}
        if self.rng.random() < 0.5:
            schema["minProperties"] = 1
        return schema

    def array(self, depth):
        schema = {"type": "array", "items": self.schema(depth - 1)}
        if self.rng.random() < 0.5:
            schema["minItems"] = self.rng.randrange(4)
        if self.rng.random() < 0.5:
            schema["maxItems"] = schema.get("minItems", 0) + self.rng.randrange(4)
        return schema

    def tuple(self, depth):
        rest = self.rng.choice([False, self.schema(0)])
        return {"type": "array", "prefixItems": [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))],
                "items": rest}

    def alternatives(self, depth):
        """anyOf at will; oneOf of objects that a constant tells apart."""
        if self.rng.random() < 0.5:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]}
        kinds = self.rng.sample(["circle", "square", "line"], 2)
        return {"type": "object", "oneOf": [
            {"properties": {"kind": {"const": k}, "size": self.schema(0)}, "required": ["kind"]} for k in kinds]}

    def joined(self, depth):
        left, right = self.object(depth - 1), self.object(depth - 1)
        for part in (left, right):  # closed parts would leave nothing
            part.pop("additionalProperties", None)
        shared = set(left["properties"]) & set(right["properties"])
        for name in shared:
            right["properties"][name] = {"description": "as before"}
        return {"allOf": [left, right]}

    def reference(self, depth):
        """A new definition, half of them recursive; the recursion is optional, so that documents end."""
        name = f"d{len(self.defs)}"
        self.defs[name] = {}
        target = f"#/$defs/{name}"
        if self.rng.random() < 0.5:
            self.defs[name] = {"type": "object", "properties": {
                "v": self.schema(0), "next": {"anyOf": [{"type": "null"}, {"$ref": target}]},
                "list": {"type": "array", "items": {"$ref": target}, "maxItems": 2}}, "required": ["v"]}
        else:
            self.defs[name] = self.schema(depth - 1)
        return {"$ref": target, "description": "a reference"}


def deep(rng, levels):
    """One path down through objects and arrays."""
    maker = Maker(rng)
    schema = maker.schema(0)
    for level in range(levels):
        if rng.random() < 0.5:
            schema = {"type": "object", "properties": {f"l{level}": schema, "o": {"type": "null"}},
                      "required": [f"l{level}"], "additionalProperties": False}
        else:
            schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1 + rng.randrange(2) * (level > 15)}
    return schema


def make_schemas(n, seed):
    rng = random.Random(seed)
    schemas = []
    while len(schemas) < n:
        if len(schemas) % 10 == 9:
            schemas.append(deep(rng, 20))
            continue
        maker = Maker(rng)
        schema = maker.schema(3)
        if maker.defs:
            schema = {**schema, "$defs": maker.defs}
        schemas.append(schema)
    return schemas


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--show", action="store_true", help="print every document")
    args = parser.parse_args()
    schemas = make_schemas(args.n, args.seed)
    text = "".join(json.dumps(s) + "\n" for s in schemas)
    done = subprocess.run([args.program, args.model, str(args.seed)], input=text, capture_output=True, text=True,
                          check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != len(schemas):
        print(f"{args.program}: exit {done.returncode}, {len(lines)} lines: {done.stderr}")
        return 1
    validator = jsonschema.Draft202012Validator
    # Debian 12's version keeps it in the module; a plain FormatChecker() has draft 3's idea of a time.
    checker = getattr(validator, "FORMAT_CHECKER", None) or jsonschema.draft202012_format_checker
    n_failed = 0
    for i, (schema, line) in enumerate(zip(schemas, lines)):
        drawn = json.loads(line[1:])
        why = drawn if line[0] == "!" else ""
        if args.show:
            print(i, drawn[:200])
        if not why:
            try:
                validator(schema, format_checker=checker).validate(json.loads(drawn))
            except (ValueError, jsonschema.ValidationError) as error:
                why = f"{type(error).__name__}: {str(error)[:300]}\n    document {drawn[:300]}"
        if why:
            n_failed += 1
            print(f"schema {i} (seed {args.seed}): {why}\n    {json.dumps(schema)[:600]}")
    print(f"{len(schemas) - n_failed} of {len(schemas)} documents are valid (seed {args.seed})")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
