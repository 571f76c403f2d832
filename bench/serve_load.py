#!/usr/bin/env python3
"""Many streaming clients at once, against `tessera serve` and against the reference's server, in turns.

  serve_load.py MODEL [--clients 64] [--seconds 60] [--rounds 2] [--csv FILE]      both engines: A B A B
  serve_load.py MODEL --only tessera --minutes 30                                  a soak: errors and memory
  serve_load.py MODEL --switch-every 1 [--seconds 60]                              placements change under load

Every client sends one greedy request after another on connections of its own. Request number i of a round is the same for
every engine and round: --prompt tokens of the corpus (lengths are log-uniform, so that short ones are as frequent as long
ones) and --predict tokens of answer. A round ends after its seconds; what runs then is cut off and counts neither as an
answer nor as an error, but its tokens count. Both servers run from beginning to end, with the same slots, context, threads
and batch; the reference with --kv-unified, since ours lets slots share the context. It gives a request no more than the
context its model was trained on, so that longer ones fail there.

Tokens are counted as events, of which both engines send one for each token. Time to first token runs from the connection
on and has the wait for a slot in it. RSS is read each second; the growth is that of the last round's median over the
first's of the same engine, or in a single round of its last quarter over its second. The client's own share of a CPU is
printed, to show that it is not what is measured.

--switch-every S posts /placement each S seconds, layer and tensor in turn, on two devices and with --batch-invariant. All
requests that began are answered; then each is asked again without switches, and the replies must be equal.

The environment says where the reference is: REFERENCE is what comes before `llama-server` on a command line, and
REFERENCE_FOLDER the model's folder as it sees it.

Exit status 1 when a request failed or a reply differed, when a round had no answer, and when tessera's exit code is not 0.
"""
import argparse
import asyncio
import csv
import json
import math
import os
import pathlib
import platform
import random
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests/data/goldens/corpus.txt"
START_TIMEOUT_S = 300
STALL_S = 900  # a stream that is silent so long has failed: the wait for a slot is the longest silence
SILENCE_S = 120  # a server from which no stream hears anything so long before a round ends hangs
EVENT = b"\ndata: "  # begins an event; inside a text, a line's end is escaped
COLUMNS = ["machine", "model", "engine", "round", "clients", "slots", "context", "threads", "seconds", "answers", "errors",
           "generated_per_s", "prompt_per_s", "first_token_p50_ms", "first_token_p90_ms", "first_token_p99_ms",
           "first_token_most_ms", "rss_first_mib", "rss_last_mib", "rss_most_mib", "client_cpu_share"]


class Stream(asyncio.Protocol):
    """One request and what came back. Looks at bytes only: parsing would cost more than the answer."""

    def __init__(self, request, keeps_reply=False, n_prompt=0):
        self.request, self.keeps_reply, self.n_prompt = request, keeps_reply, n_prompt
        self.done = asyncio.get_running_loop().create_future()
        self.begun = time.monotonic()
        self.first_token = None
        self.n_events = 0
        self.head = b""
        self.status = 0
        self.tail = b""
        self.heard = self.begun
        self.stopped = False
        self.body = []
        self.transport = None
        self.failed = None

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.heard = time.monotonic()
        if not self.status:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            self.tail = b"\n"  # of the head: the first event may follow it at once
            self.status = int(head.split(b" ", 2)[1])
        seen = self.tail + data
        n = seen.count(EVENT) - self.tail.count(EVENT)
        if n and self.first_token is None:
            self.first_token = time.monotonic()
        self.n_events += n
        # A quote inside a text is escaped: this is the event's own member.
        self.stopped = self.stopped or b'"stop":true' in seen
        self.tail = seen[-16:]
        if self.keeps_reply or self.status != 200:
            self.body.append(data)

    def connection_lost(self, exc):
        if not self.done.done():
            self.done.set_result(exc)

    @property
    def n_tokens(self):
        return max(0, self.n_events - self.stopped)

    def failure(self):
        """None, or why this is no answer."""
        if self.status != 200:
            return f"status {self.status}: {b''.join(self.body)[:200].decode(errors='replace')}"
        return None if self.stopped else "the stream ended early"

    def text(self):
        body = dechunked(b"".join(self.body))
        events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
        return "".join(event["content"] for event in events)


def dechunked(body):
    text = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size, 16)
        text, body = text + body[:n], body[n + 2:]
    return text


def http_request(path, body):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: load\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
        path.encode(), len(data)) + data


async def ask(port, stream):
    """Runs the stream to its end; its `failed` then says why it is no answer, if it is none."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", port)
        while not stream.done.done():
            left_s = stream.heard + STALL_S - time.monotonic()
            if left_s <= 0:
                raise asyncio.TimeoutError(f"nothing came for {STALL_S} s")
            await asyncio.wait([stream.done], timeout=left_s)
        stream.failed = stream.failure()
    except (OSError, asyncio.TimeoutError) as error:
        stream.failed = f"{type(error).__name__}: {error}"
    finally:
        if stream.transport:
            stream.transport.abort()


class Requests:
    """Request number i, the same whenever it is asked for."""

    def __init__(self, args, tokens):
        self.args, self.tokens = args, tokens

    def make(self, i):
        rng = random.Random(self.args.seed * 1_000_003 + i)
        low, high = self.args.prompt
        n = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        begin = rng.randrange(len(self.tokens))
        prompt = [self.tokens[(begin + k) % len(self.tokens)] for k in range(n)]
        body = {"prompt": prompt, "n_predict": rng.randint(*self.args.predict), "temperature": 0, "stream": True,
                "ignore_eos": True, "cache_prompt": True}
        return n, http_request("/completion", body)


class Engine:
    """A server process."""

    def __init__(self, name, command):
        self.name = name
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log)

    async def ready(self):
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                answer = await reader.read()
                writer.close()
                if b" 200 " in answer.split(b"\r\n")[0] + b" ":
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)
        self.log.seek(0)
        sys.exit(f"{self.name} did not start: {self.log.read()[-2000:].decode(errors='replace')}")

    def rss_mib(self):
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0.0
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else 0.0

    def stop(self):
        """None, or what was wrong with its end."""
        self.process.terminate()
        try:
            code = self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not end within 120 s"
        return f"{self.name} ended with exit code {code}" if code else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Round:
    """What one engine did in one round."""

    def __init__(self):
        self.streams = {}    # by number of the request: finished ones
        self.cut = []        # cut off at the end
        self.errors = []
        self.rss = []
        self.seconds = 0.0
        self.cpu_share = 0.0
        self.switches = []   # milliseconds

    def row(self, args, engine, number):
        all_streams = [*self.streams.values(), *self.cut]
        waits = sorted((s.first_token - s.begun) * 1000 for s in all_streams if s.first_token)
        prompts = sum(s.n_prompt for s in all_streams if s.first_token)
        quarter = max(1, len(self.rss) // 4)
        return {"machine": f"{processor_name()}, {os.cpu_count()} processors", "model": pathlib.Path(args.model).name,
                "engine": engine.name, "round": number, "clients": args.clients, "slots": args.slots, "context": args.context,
                "threads": args.threads, "seconds": round(self.seconds, 1), "answers": len(self.streams), "errors": len(self.errors),
                "generated_per_s": round(sum(s.n_tokens for s in all_streams) / self.seconds, 1),
                "prompt_per_s": round(prompts / self.seconds, 1),
                "first_token_p50_ms": percentile(waits, 50), "first_token_p90_ms": percentile(waits, 90),
                "first_token_p99_ms": percentile(waits, 99), "first_token_most_ms": percentile(waits, 100),
                "rss_first_mib": round(statistics.median(self.rss[quarter:2 * quarter] or [0]), 1),
                "rss_last_mib": round(statistics.median(self.rss[-quarter:] or [0]), 1),
                "rss_most_mib": round(max(self.rss, default=0), 1), "client_cpu_share": round(self.cpu_share, 3)}


def percentile(values, p):
    return round(values[min(len(values) - 1, math.ceil(len(values) * p / 100) - 1 if p else 0)], 1) if values else ""


async def run_round(args, engine, requests, numbers=None, drains=False, keeps_reply=False, switch_every=0.0):
    """numbers: the requests to make; None: from 0 on, until the time is over. drains: those that began are finished."""
    result = Round()
    begun, cpu_begun = time.monotonic(), time.process_time()
    end = begun + args.seconds if numbers is None else math.inf
    queue = iter(numbers if numbers is not None else range(1 << 62))

    async def client():
        for i in queue:
            if time.monotonic() >= end:
                return
            n_prompt, request = requests.make(i)
            stream = Stream(request, keeps_reply, n_prompt)
            try:
                await ask(engine.port, stream)
            except asyncio.CancelledError:
                result.cut.append(stream)
                raise
            if stream.failed:
                result.errors.append(f"request {i}: {stream.failed}")
                await asyncio.sleep(0.2)  # a server that is gone is not asked in a busy loop
            else:
                result.streams[i] = stream

    async def sample():
        while True:
            result.rss.append(engine.rss_mib())
            await asyncio.sleep(1)

    async def switch():
        mode = "tensor"
        while time.monotonic() < end:
            await asyncio.sleep(switch_every)
            at = time.monotonic()
            stream = Stream(http_request("/placement", {"split_mode": mode}), keeps_reply=True)
            await ask(engine.port, stream)
            if stream.status != 200:
                result.errors.append(f"switch to {mode}: {stream.failed}")
            else:
                result.switches.append((time.monotonic() - at) * 1000)
            mode = "layer" if mode == "tensor" else "tensor"

    side = [asyncio.create_task(sample())] + ([asyncio.create_task(switch())] if switch_every else [])
    clients = [asyncio.create_task(client()) for _ in range(args.clients)]
    if numbers is None and not drains:
        await asyncio.wait(clients, timeout=args.seconds)
    else:
        await asyncio.wait(clients)
    result.seconds = time.monotonic() - begun
    result.cpu_share = (time.process_time() - cpu_begun) / result.seconds
    for task in [*clients, *side]:
        task.cancel()
    for outcome in await asyncio.gather(*clients, *side, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
    # What is cut off at the end is no error, unless the server has stopped answering.
    heard = max((stream.heard for stream in [*result.streams.values(), *result.cut]), default=begun)
    silence = begun + result.seconds - heard
    if silence > SILENCE_S:
        result.errors.append(f"no stream heard anything for the last {silence:.0f} s")
    if not result.streams:
        result.errors.append("no request was answered")
    return result


def processor_name():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.processor()


def corpus_tokens(args):
    done = subprocess.run([args.tessera, "tokenize", "-m", args.model, "--json", "--file", str(CORPUS)], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)["tokens"]


def start_tessera(args):
    more = ["--device", "cpu:0,cpu:1", "-sm", "layer", "--batch-invariant"] if args.switch_every else []
    return Engine("tessera", [args.tessera, "serve", "-m", args.model, "-c", str(args.context), "-np", str(args.slots), "-t",
                              str(args.threads), *more, *shlex.split(args.flags)])


def start_reference(args):
    model = pathlib.Path(args.model).resolve()
    path = os.path.join(os.environ.get("REFERENCE_FOLDER", str(model.parent)), model.name)
    return Engine("reference", [*shlex.split(os.environ.get("REFERENCE", "")), "llama-server", "-m", path, "-c",
                                str(args.context), "-np", str(args.slots), "-t", str(args.threads), "--kv-unified", "-dev", "none",
                                "--host", "127.0.0.1", "--no-webui"])


def print_row(row):
    print(f"round {row['round']} {row['engine']:<10} {row['generated_per_s']:>8} tokens/s  prompts {row['prompt_per_s']:>8} tokens/s"
          f"  first token {row['first_token_p50_ms']} / {row['first_token_p90_ms']} / {row['first_token_p99_ms']} /"
          f" {row['first_token_most_ms']} ms (50, 90, 99 %, most)  {row['answers']} answers, {row['errors']} errors"
          f"  RSS {row['rss_first_mib']} -> {row['rss_last_mib']} MiB  client {row['client_cpu_share'] * 100:.0f} % of a CPU", flush=True)


def stop_engines(engines):
    """Stops all of them. How many of ours ended otherwise than they should: those that are only compared may."""
    faults = [fault for engine in engines if (fault := engine.stop()) and engine.name == "tessera"]
    for fault in faults:
        print(f"    {fault}", flush=True)
    return len(faults)


def print_errors(result):
    for error in result.errors[:10]:
        print(f"    {error}", flush=True)
    return len(result.errors)


def write_rows(path, rows):
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


async def compare_engines(args, requests):
    starts = {"tessera": start_tessera, "reference": start_reference}
    engines, rows, n_errors = [], [], 0
    try:
        for name in [args.only] if args.only else starts:
            engines.append(starts[name](args))
        for engine in engines:
            await engine.ready()
        for number in range(1, args.rounds + 1):
            for engine in engines:
                result = await run_round(args, engine, requests)
                rows.append(result.row(args, engine, number))
                print_row(rows[-1])
                n_errors += print_errors(result)
    finally:
        n_errors += stop_engines(engines)
    for engine in engines:
        mine = [row for row in rows if row["engine"] == engine.name]
        growth = mine[-1]["rss_last_mib"] - mine[0]["rss_last_mib" if len(mine) > 1 else "rss_first_mib"]
        minutes = sum(row["seconds"] for row in mine[1:] or mine) / 60
        print(f"{engine.name}: median {statistics.median(r['generated_per_s'] for r in mine):.1f} tokens/s, RSS grew by {growth:.1f} MiB "
              f"in {minutes:.1f} minutes")
    if len(engines) == 2:
        pairs = [a["generated_per_s"] / b["generated_per_s"] for a, b in zip(rows[::2], rows[1::2]) if b["generated_per_s"]]
        if pairs:
            print(f"tessera / reference: {statistics.median(pairs):.2f} (of {len(pairs)} pairs, {min(pairs):.2f} to {max(pairs):.2f})")
    if args.csv:
        write_rows(args.csv, rows)
    return n_errors


async def compare_switching(args, requests):
    engine, n_errors = start_tessera(args), 0
    try:
        await engine.ready()
        moved = await run_round(args, engine, requests, drains=True, keeps_reply=True, switch_every=args.switch_every)
        print_row(moved.row(args, engine, 1))
        n_errors += print_errors(moved)
        if moved.switches:
            times = sorted(moved.switches)
            print(f"{len(times)} switches, {percentile(times, 50)} ms (median), {percentile(times, 100)} ms (most)")
        else:
            print("no switch happened")
            n_errors += 1
        still = await run_round(args, engine, requests, numbers=sorted(moved.streams), keeps_reply=True)
        print_row(still.row(args, engine, 2))
        n_errors += print_errors(still)
    finally:
        n_errors += stop_engines([engine])
    differing = [i for i, stream in still.streams.items() if stream.text() != moved.streams[i].text()]
    print(f"{len(still.streams) - len(differing)} of {len(still.streams)} replies are equal with and without switches"
          + (f"; not those of requests {differing[:10]}" if differing else ""))
    return n_errors + len(differing)


def number_range(text):
    low, _, high = text.partition(":")
    return int(low), int(high or low)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tessera", default=str(ROOT / "build/release/tessera"))
    parser.add_argument("--only", choices=["tessera", "reference"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--context", type=int, default=65536, help="tokens, shared by all slots")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60, help="of a round")
    parser.add_argument("--minutes", type=float, help="one round of so many minutes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--prompt", type=number_range, default=(16, 4000), metavar="LOW:HIGH", help="tokens")
    parser.add_argument("--predict", type=number_range, default=(16, 128), metavar="LOW:HIGH", help="tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--switch-every", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--flags", default="", help="more flags for tessera serve")
    parser.add_argument("--csv")
    args = parser.parse_args()
    if args.minutes:
        args.seconds, args.rounds = args.minutes * 60, 1
    requests = Requests(args, corpus_tokens(args))
    n_errors = asyncio.run(compare_switching(args, requests) if args.switch_every else compare_engines(args, requests))
    return 1 if n_errors else 0


if __name__ == "__main__":
    sys.exit(main())
