#!/usr/bin/python3
"""Makes tests/data/goldens/sampling anew from the reference engine.

    sampling_golden.py COMMAND MODELS

COMMAND runs the program that scripts/sampling_golden.cpp compiles to; MODELS is the folder in which that program finds
tests/data/tiny/*.gguf. The seed is fixed: the same engine gives the same files.
"""
import json
import pathlib
import random
import shlex
import subprocess
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "goldens" / "sampling"
CHAIN = "penalties dry top_k typ_p top_p min_p xtc temperature".split()
BREAKERS = [["\n", ":", "\"", "*"], ["end"], ["the quick"], ["</think>", "fox said"], [" "], []]
# Name, size of the vocabulary, token of byte 0, first word, ends of generation: those with no, another and the same
# token for the end of a turn and of a text.
INFILL_MODELS = [("tiny-llama-moe", 362, 3, 259, [2]), ("tiny-gemma3", 365, 4, 262, [1, 261]),
                 ("tiny-deepseek2", 279, 0, 256, [277])]
WORDS = ["The", "the quick", "brown fox", "said: ", "\n", "\"hello\"", "* item", "end of", "weekend", "bend", "a b c",
         "List:\n* one\n* two", "12:30", "x::y", "//", "</think>", "think"]

rng = random.Random(20)
lines = []


def logits(n, spread=None):
    spread = spread or rng.choice([0.5, 2, 4, 8])
    return [float(f"{rng.gauss(0, 1) * spread:.6g}") for _ in range(n)]


def history(n, vocab, loops):
    """Tokens at random, or mostly one phrase over and over."""
    if not loops:
        return [rng.randrange(vocab) for _ in range(n)]
    phrase = [rng.randrange(vocab) for _ in range(rng.randrange(2, 7))]
    out = []
    while len(out) < n:
        out += phrase if rng.random() < 0.7 else [rng.randrange(vocab) for _ in range(3)]
    return out[:n]


def uniform(a, b):
    return float(f"{rng.uniform(a, b):.4g}")


def add(chain, options, values, seen=(), breakers=(), draws=0, model=None):
    """One case for the program."""
    stated = dict(options, samplers=";".join(chain))
    lines.append("json " + json.dumps(stated, separators=(",", ":")))
    lines.extend(f"opt {name} {value!r}" for name, value in options.items())
    lines.append("chain " + " ".join(chain))
    lines.append("logits " + " ".join(map(repr, values)))
    if seen:
        lines.append("history " + " ".join(map(str, seen)))
    lines.extend("breaker " + " ".join(map(str, b)) for b in breakers)
    if draws:
        lines.append(f"draws {draws}")
    if model:
        lines.extend([f"name {model.stem}", f"model {model}"])
    lines.append("end")


def single_steps():
    for _ in range(12):
        add(["top_n_sigma"], {"top_n_sigma": uniform(.3, 2)}, logits(24))
    for _ in range(6):
        add(["top_k"], {"top_k": rng.randrange(1, 28)}, logits(24))
    for _ in range(8):
        add(["top_p"], {"top_p": uniform(.1, .99), "min_keep": rng.choice([0, 0, 3])}, logits(24))
        add(["min_p"], {"min_p": uniform(.01, .9), "min_keep": rng.choice([0, 0, 4])}, logits(24))
    for _ in range(12):
        add(["typ_p"], {"typical_p": uniform(.1, .99), "min_keep": rng.choice([0, 0, 3])}, logits(24))
    for _ in range(10):
        add(["xtc"], {"xtc_probability": 1, "xtc_threshold": uniform(.01, .5), "min_keep": rng.choice([0, 0, 20])},
            logits(24))
    for _ in range(4):
        add(["temperature"], {"temperature": uniform(.1, 3)}, logits(24))
    for _ in range(10):
        add(["temperature"], {"temperature": uniform(.3, 2), "dynatemp_range": uniform(.1, 2.5),
                              "dynatemp_exponent": uniform(.3, 3)}, logits(24))


def repetitions():
    for _ in range(16):
        add(["penalties"], {"repeat_last_n": rng.choice([1, 5, 10, 64]), "repeat_penalty": uniform(.8, 1.8),
                            "frequency_penalty": rng.choice([0, uniform(-.5, 1)]),
                            "presence_penalty": rng.choice([0, uniform(-.5, 1)])},
            logits(20, 2), history(rng.randrange(0, 40), 20, False))
    for _ in range(40):
        vocab = rng.choice([4, 8, 20])
        breakers = [[rng.randrange(vocab) for _ in range(rng.choice([1, 1, 2, 3]))]
                    for _ in range(rng.choice([0, 0, 1, 2, 3]))]
        add(["dry"], {"dry_multiplier": uniform(.1, 2), "dry_base": uniform(1.05, 2.5),
                      "dry_allowed_length": rng.choice([1, 2, 2, 3, 5]),
                      "dry_penalty_last_n": rng.choice([10, 30, 64, 200])},
            logits(vocab, 2), history(rng.randrange(0, 90), vocab, rng.random() < 0.7), breakers)
    for i in range(8):  # what would be penalised is often a breaker itself
        phrase = [rng.randrange(1, 8) for _ in range(4)]
        add(["dry"], {"dry_multiplier": 1, "dry_base": 1.5, "dry_allowed_length": 2, "dry_penalty_last_n": 100},
            logits(8, 2), phrase + [0] + [rng.randrange(8) for _ in range(3)] + phrase + [i % 8] + phrase,
            [[0]] if i % 2 else [[0, 1], [0], [2, 3]])


def chains():
    for i in range(30):
        options = {"repeat_last_n": 30, "repeat_penalty": uniform(1, 1.4), "frequency_penalty": uniform(0, .3),
                   "presence_penalty": uniform(0, .3), "dry_multiplier": uniform(.2, 1), "dry_penalty_last_n": 64,
                   "dry_allowed_length": 2, "top_k": rng.randrange(12, 30), "typical_p": uniform(.8, .99),
                   "top_p": uniform(.7, .99), "min_p": uniform(.01, .1), "xtc_probability": rng.choice([0, 1]),
                   "xtc_threshold": uniform(.05, .3), "temperature": uniform(.3, 2),
                   "dynatemp_range": rng.choice([0, uniform(.1, 1)])}
        chain = list(CHAIN)
        if i % 2:
            rng.shuffle(chain)
        if i % 3 == 0:
            # The reference leaves what top_n_sigma drops in the list; top_p then takes it out.
            options["top_n_sigma"] = uniform(1.5, 3)
            early = chain.index("top_p") < chain.index("temperature")
            chain.insert(chain.index("top_p") if early else len(chain), "top_n_sigma")
        add(chain, options, logits(32, rng.choice([1, 2, 3])), history(50, 32, True))


def mirostats():
    for _ in range(6):
        for version in (1, 2):
            add(["temperature", f"mirostat{version}"],
                {"mirostat": version, "mirostat_tau": uniform(.5, 5), "mirostat_eta": uniform(.05, .5),
                 "temperature": uniform(.5, 1.5)}, logits(rng.choice([16, 40, 150]), rng.choice([1, 3])), draws=6)


def adaptives():
    for _ in range(10):
        add(["temperature", "adaptive_p"],
            {"adaptive_target": uniform(0, 1), "adaptive_decay": uniform(0, .99), "temperature": uniform(.5, 1.5)},
            logits(rng.choice([4, 16, 40]), rng.choice([1, 3])), draws=6)


def infills(models):
    """Mostly tokens that begin alike: words, and the bytes that they are made of; now and then an end.

    Models where the token to end with is beyond doubt: of several that end a turn by their text, the reference takes
    the one that its hash table has first.
    """
    for name, n_vocab, first_byte, first_word, ends in INFILL_MODELS:
        letters = [first_byte + ord(c) for c in "Tthaeowfs"]
        for i in range(16):
            is_flat = i % 4 == 1  # nothing is likely: the end that the vocabulary names
            values = logits(n_vocab, 1 if is_flat else 2)
            words = range(first_word, first_word + 20)
            likely = rng.sample(words, rng.randrange(0, 8)) + rng.sample(letters, rng.randrange(0, 4))
            boost = (8, 9) if i % 4 > 1 else (4, 12)  # alike: only those that are merged are likely enough
            for token in [] if is_flat else likely:
                values[token] = uniform(*boost)
            if i % 3 == 0 and not is_flat:
                values[rng.choice(ends)] += uniform(0, 12)
            options = {"top_k": rng.choice([4, 10, 40])} if i % 2 else {}
            add(["top_k", "infill"] if options else ["infill"], options, [round(v, 3) for v in values],
                model=models / f"{name}.gguf")


def texts(models):
    """DRY over real tokens: breakers are found however the vocabulary spells them."""
    for model in ("tiny-llama", "tiny-gemma3"):
        for breakers in BREAKERS:
            for _ in range(6):
                start = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 6)))
                text = (start + " ") * rng.randrange(1, 3) + " ".join(rng.choice(WORDS) for _ in range(rng.randrange(3)))
                text += start[:rng.randrange(len(start) + 1)]
                lines.append("json " + json.dumps({"model": model, "text": text, "breakers": breakers}))
                lines.append(f"model {models}/{model}.gguf")
                lines.append(f"text {text.encode().hex()}")
                lines.extend(f"breaker_text {b.encode().hex()}" for b in breakers)
                lines.append("end")


def main():
    command, models = sys.argv[1:]
    single_steps()
    repetitions()
    chains()
    mirostats()
    texts(models)
    adaptives()
    infills(pathlib.Path(models))
    done = subprocess.run(shlex.split(command), input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True,
                          check=True)
    found = done.stdout.splitlines(keepends=True)
    OUT.mkdir(exist_ok=True)
    (OUT / "steps.jsonl").write_text("".join(l for l in found if l.startswith('{"options"')), encoding="utf-8")
    (OUT / "infill.jsonl").write_text("".join(l for l in found if l.startswith('{"model"')), encoding="utf-8")
    (OUT / "dry_texts.jsonl").write_text("".join(l for l in found if l.startswith('{"case"')), encoding="utf-8")


if __name__ == "__main__":
    main()
