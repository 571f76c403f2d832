#!/usr/bin/env python3
"""`tessera doctor` from outside: what it finds of models that are whole and of ones that are not, and of taken ports.

  cli_doctor_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import json
import pathlib
import re
import resource
import socket
import subprocess
import tempfile

import cli_support
from cli_support import CliTest, GEMMA, LLAMA, TIMEOUT_S, run


class Doctor(CliTest):
    def ask(self, *flags, fails=False):
        """The report, whose checks are by name; --port 0 unless given."""
        done = run("doctor", "--json", "--device-memory", "1G", *([] if "--port" in flags else ["--port", "0"]), *flags)
        self.assertEqual(done.returncode, 1 if fails else 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["can_serve"], not fails)
        report["checks"] = {check["name"]: check for check in report["checks"]}
        for check in report["checks"].values():
            self.assertEqual(check["status"] == "ok", check["to_do"] == "", check)
        bad = [name for name, check in report["checks"].items() if check["status"] == "bad"]
        self.assertEqual(bool(bad), fails, bad)
        if fails:
            self.assertRegex(done.stderr.decode(), rf"{len(bad)} of {len(report['checks'])} checks")
        return report

    def expect(self, report, name, status, found, to_do=""):
        check = report["checks"][name]
        self.assertEqual(check["status"], status, check)
        self.assertRegex(check["found"], found)
        if to_do:
            self.assertRegex(check["to_do"], to_do)

    def test_the_machine_alone(self):
        report = self.ask()
        self.assertGreaterEqual(set(report["checks"]), {"processor", "threads", "NUMA", "memory", "memory limit", "swap",
                                                        "overcommit", "huge pages", "address space", "open files", "address"})
        self.assertNotIn("file", report["checks"])

    def test_a_whole_model(self):
        report = self.ask("-m", LLAMA, "-c", "256")
        self.expect(report, "file", "ok", r"complete, .* tensors")
        self.expect(report, "architecture", "ok", r"^llama, \d+ layers")
        self.expect(report, "tokenizer", "ok", r"^\w+ .*tokens$")
        self.expect(report, "devices", "ok", r"^cpu:0: .* of 1024.0 MiB")
        self.expect(report, "context", "ok", r"256 are asked for")
        self.assertGreaterEqual(report["n_ctx_max"], 256)
        text = self.good("doctor", "--port", "0", "--device-memory", "1G", "-m", LLAMA, "-c", "256").decode()
        self.assertRegex(text, r"(?m)^ok +file +.*tiny-llama.gguf: complete")

    def test_what_fits_and_what_does_not(self):
        longest = self.ask("-m", LLAMA, "-c", "0")["n_ctx_max"]
        report = self.ask("-m", LLAMA, "-c", str(longest * 2))
        self.expect(report, "context", "warn", f"up to {longest * 2} tokens fit.*trained on {longest}", f"--ctx-size {longest}")
        # Less and less memory: the longest context stops fitting first.
        for kib in range(2048, 1024, -64):
            budget = ["-m", LLAMA, "--device-memory", f"{kib}K"]
            if run("doctor", "--port", "0", "-c", "0", *budget).returncode:
                break
        report = self.ask("-c", "0", *budget, fails=True)
        self.assertLess(report["n_ctx_max"], longest)
        self.expect(report, "context", "bad", f"{longest} are asked for", f"--ctx-size {report['n_ctx_max']}")
        report_beyond = self.ask("-c", str(longest * 8), *budget, fails=True)
        self.expect(report_beyond, "context", "bad", f"up to {report['n_ctx_max']} tokens fit.*would need .* MiB.*trained on {longest}",
                    f"--ctx-size {report['n_ctx_max']}, or --device-memory")
        self.assertGreaterEqual(self.ask("-c", str(report["n_ctx_max"]), *budget)["n_ctx_max"], report["n_ctx_max"])

    def test_less_memory_than_weights(self):
        small = ["-m", LLAMA, "-c", "64", "--device-memory", "64K"]
        report = self.ask(*small, fails=True)
        self.expect(report, "devices", "bad", "the smallest lack is .* MiB.*cpu:0 needs", r"--device-memory \d+M for a context of 64 tokens")
        self.assertNotIn("--fit-ctx", report["checks"]["devices"]["found"])
        self.assertNotIn("n_ctx_max", report)
        # What is advised helps.
        self.ask(*small[:-1], re.search(r"\d+M", report["checks"]["devices"]["to_do"])[0])

    def test_contexts_that_nobody_has(self):
        longest = self.ask("-m", LLAMA, "-c", "0")["n_ctx_max"]
        # As much as was trained fits, and more: that is advised, and not the more.
        report = self.ask("-m", LLAMA, "-c", "16777216", "--device-memory", "64M", fails=True)
        self.expect(report, "devices", "ok", "of 64.0 MiB")
        needed = r"would need \d+ MiB; 64 are there"
        self.expect(report, "context", "bad", rf"up to \d+ tokens fit; 16777216 are asked for, which {needed}")
        self.assertEqual(report["checks"]["context"]["to_do"], f"--ctx-size {longest}")
        self.assertGreater(report["n_ctx_max"], longest)
        # More than there can be is a model's own length at most.
        report = self.ask("-m", LLAMA, "-c", "0", "--override-kv", ".context_length=int:100000000", "--device-memory", "64M", fails=True)
        self.expect(report, "context", "bad", f"100000000 are asked for; 16777216, the most there can be, {needed}")

    def test_what_fits_only_elsewhere(self):
        common = ["-m", GEMMA, "-np", "1", "-c", "512", "--device", "cpu:0,cpu:1", "--device-memory", "1900K"]
        self.expect(self.ask(*common, fails=True), "devices", "bad", "cpu:1 needs .* and has", "--tensor-split 4,3 .*--fit on")
        self.expect(self.ask(*common, "--fit", "on"), "devices", "warn", "4 of 7 layers")

    def test_devices(self):
        report = self.ask("-m", LLAMA, "--device", "cpu:0,cpu:1", "-sm", "tensor", "-c", "256")
        self.assertIn("cpu:1", report["checks"]["devices"]["found"])
        report = self.ask("-m", LLAMA, "--device", "gpu:0", fails=True)
        self.expect(report, "devices", "bad", "gpu", "tessera devices")

    def test_files_that_are_not_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.gguf"
            whole = pathlib.Path(LLAMA).read_bytes()
            for data, found in ((whole[:-1000], "."), (whole[:100], "."), (b"<!doctype html>", "HTML|web page"), (b"\0" * 64, "download"),
                                (b"", ".")):
                path.write_bytes(data)
                report = self.ask("-m", path, fails=True)
                self.expect(report, "file", "bad", found, "checksum|current tools")
                self.assertNotIn("tokenizer", report["checks"])
            path.unlink()
            self.expect(self.ask("-m", path, fails=True), "file", "bad", "m.gguf", "--model")
            path.write_bytes(whole.replace(b"llama", b"lxama"))
            report = self.ask("-m", path, fails=True)
            self.expect(report, "architecture", "bad", "lxama", "known architecture")
            self.assertNotIn("devices", report["checks"])

    def test_templates(self):
        self.assertIn(self.ask("-m", GEMMA, "-c", "256")["checks"]["chat template"]["status"], ("ok", "warn"))
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{% for m in messages %}")
            file.flush()
            self.expect(self.ask("-m", LLAMA, "--chat-template-file", file.name, fails=True), "chat template", "bad", "line 1",
                        "--chat-template-file")

    def test_a_taken_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.expect(self.ask("--port", port, fails=True), "address", "bad", port, "--port")

    def test_limits_of_the_process(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        done = subprocess.run([cli_support.PROGRAM, "doctor", "--json", "--port", "0"], stdout=subprocess.PIPE, timeout=TIMEOUT_S,
                              preexec_fn=lower, check=True)
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        self.assertEqual(checks["open files"]["status"], "warn")
        self.assertIn("ulimit -n 1088", checks["open files"]["to_do"])


if __name__ == "__main__":
    cli_support.main()
