#!/usr/bin/env python3
"""Limits of `tessera serve`: clients that read nothing or send nothing, too many of them, and what ends with them.

  server_limits_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import contextlib
import json
import re
import select
import socket
import tempfile
import threading
import time
import unittest

from server_support import GREEDY, TIMEOUT_S, Server, main

ENDLESS = {"prompt": "a", "n_predict": -1, "stream": True, "ignore_eos": True}


def post(body, path="/completion", headers=""):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def until(condition):
    """Waits for it, not for a time."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come to pass")
        time.sleep(0.01)


class Limits(unittest.TestCase):
    def start(self, *flags):
        server = Server("--context-shift", "--metrics", *flags)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def client(self, server):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)
        self.addCleanup(s.close)
        return s

    def start_with_deaf_client(self, *flags):
        """A server, and a client that is to read nothing: on a unix socket, which keeps little for it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = folder.name + "/s.sock"
        server = self.start("--host", f"127.0.0.1,{path}", *flags)
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.settimeout(TIMEOUT_S)
        s.connect(path)
        return server, s

    def rest(self, s):
        """What came until the server closed."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := s.recv(65536):
                data += part
        return data

    def metric(self, server, name):
        return int(float(next(line.split()[1] for line in server.call("GET", "/metrics")[2].split("\n")
                              if line.startswith("llamacpp:" + name + " "))))

    def test_a_client_that_reads_nothing_is_cut_off(self):
        server, deaf = self.start_with_deaf_client("--max-unread", "64K")
        deaf.sendall(post({**ENDLESS, "n_probs": 100}))
        server.wait_for(r"^.*/completion.*cancelled.*$")
        until(lambda: self.metric(server, "requests_processing") == 0)
        self.assertNotIn(b'"stop":true', self.rest(deaf))
        self.assertEqual(server.call("POST", "/completion", {"prompt": "b", "n_predict": 2, **GREEDY})[0], 200)

    def test_a_client_that_reads_nothing_for_too_long(self):
        server, deaf = self.start_with_deaf_client("--timeout", "1")
        deaf.sendall(post({"content": "a b " * 20000, "with_pieces": True}, path="/tokenize"))
        server.wait_for(r"/tokenize")
        select.select([deaf], [], [], TIMEOUT_S)
        hangs_up = select.poll()
        hangs_up.register(deaf, select.POLLRDHUP)
        self.assertTrue(hangs_up.poll(TIMEOUT_S * 1000))
        head, _, body = self.rest(deaf).partition(b"\r\n\r\n")
        self.assertLess(len(body), int(re.search(rb"Content-Length: (\d+)", head)[1]))

    def test_slow_readers_lose_nothing(self):
        server, slow = self.start_with_deaf_client()
        slow.sendall(post({**ENDLESS, "n_predict": 200, "n_probs": 20, **GREEDY}, headers="Connection: close\r\n"))
        until(lambda: self.metric(server, "tokens_predicted_total") == 200)  # the server waits for nobody
        data = b""
        while part := slow.recv(700):
            data += part
        self.assertEqual(data.count(b"top_logprobs"), 200)
        self.assertIn(b'"stop":true', data)

    def test_a_body_that_never_comes(self):
        server = self.start("--timeout", "1")
        for head in (b"POST /completion HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
                     b"POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a"):
            waiting = self.client(server)
            waiting.sendall(head)
            self.rest(waiting)
        self.assertEqual(server.call("GET", "/health")[0], 200)

    def test_headers_that_never_end(self):
        server = self.start("--idle-timeout", "1")
        for head in (b"", b"GET /health HTTP/1.1\r\nX: ", b"GET /health HTTP/1.1\r\n\r\n"):  # the last: a kept connection
            waiting = self.client(server)
            waiting.sendall(head)
            self.rest(waiting)
        # One byte at a time does not keep it open either.
        dripping = self.client(server)
        stop = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    dripping.sendall(b"G")
        thread = threading.Thread(target=drip)
        thread.start()
        until(lambda: select.select([dripping], [], [], 0)[0])
        stop.set()
        thread.join()

    def test_more_connections_than_there_may_be(self):
        server = self.start("--max-connections", "4")
        held = [self.client(server) for _ in range(4)]
        for s in held:  # each is known to the server once it was answered
            s.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            self.assertIn(b" 200 ", s.recv(1000))
        refused = self.client(server)
        refused.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        answer = refused.recv(1000)
        self.assertIn(b" 503 ", answer.split(b"\r\n")[0])
        self.assertIn(b"connections", answer)
        held[0].close()
        until(lambda: self.answers(server))

    def answers(self, server):
        s = self.client(server)
        s.sendall(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            return b" 200 " in s.recv(1000).split(b"\r\n")[0]
        return False

    def test_a_full_queue_says_when_to_come_again(self):
        server = self.start("-np", "1", "--queue-size", "2")
        clients = []
        for _ in range(3):
            clients.append(self.client(server))
            clients[-1].sendall(post(ENDLESS))
            if len(clients) == 1:
                until(lambda: self.metric(server, "requests_processing") == 1)
        until(lambda: self.metric(server, "requests_deferred") == 2)
        for path, body in (("/completion", {"prompt": "b"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                           ("/v1/responses", {"input": "x"}), ("/completion", {"prompt": "b", "stream": True}),
                           ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})):
            status, headers, reply = server.call("POST", path, body)
            self.assertEqual((status, headers["Retry-After"], reply["error"]["type"]), (429, "1", "rate_limit_error"), path)
        for s in clients:
            s.close()
        until(lambda: server.call("POST", "/completion", {"prompt": "b", "n_predict": 1})[0] == 200)

    def test_more_answers_than_the_queue_takes_come_in_turn(self):
        for body in ({"prompt": "a", "n": 5}, {"prompt": ["a", "b", "c", "d", "e"]}):
            for stream in (False, True):
                server = self.start("-np", "1", "--queue-size", "2")
                busy = self.client(server)  # else the first of them might be answered before the last are queued
                busy.sendall(post(ENDLESS))
                until(lambda: self.metric(server, "requests_processing") == 1)
                many = self.client(server)
                many.sendall(post({**body, "max_tokens": 2, "ignore_eos": True, "stream": stream}, path="/v1/completions",
                                  headers="Connection: close\r\n"))
                until(lambda: self.metric(server, "requests_deferred") == 2)
                busy.close()
                answer = self.rest(many)
                self.assertIn(b" 200 ", answer.split(b"\r\n")[0])
                self.assertEqual(answer.count(b'"finish_reason":"length"'), 5, answer)
                self.assertEqual(set(re.findall(rb'"index":(\d)', answer)), {b"0", b"1", b"2", b"3", b"4"}, answer)

    def test_answers_of_one_request_take_their_places_as_the_first_begin(self):
        server = self.start("-np", "1", "--queue-size", "1")
        many = self.client(server)
        many.sendall(post({**ENDLESS, "n": 2}))
        until(lambda: self.metric(server, "requests_processing") == 1)
        until(lambda: self.metric(server, "requests_deferred") == 1)  # the second, since the first runs
        status, _, _ = server.call("POST", "/completion", {"prompt": "b", "n_predict": 1})
        self.assertEqual(status, 429)
        many.close()
        until(lambda: server.call("POST", "/completion", {"prompt": "b", "n_predict": 1})[0] == 200)

    def test_answers_that_are_refused_leave_nothing_in_the_queue(self):
        server = self.start("-np", "1", "--queue-size", "2")
        clients = [self.client(server) for _ in range(3)]
        for s in clients:
            s.sendall(post(ENDLESS))
            until(lambda: self.metric(server, "requests_processing") == 1)
        until(lambda: self.metric(server, "requests_deferred") == 2)
        status, headers, _ = server.call("POST", "/completion", {"prompt": "a", "n": 5, "n_predict": 1})
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertEqual(self.metric(server, "requests_deferred"), 2)


if __name__ == "__main__":
    main()
