#!/usr/bin/env python3
"""A small HTTP server on the loopback address, for tests of downloads.

    http_server.py LOG FOLDER   serves the files of FOLDER, and prints its port

The first part of a path says how a file is served, the rest names it; what follows a "?" only makes requests differ:

    /plain/F     with a strong ETag, a date and ranges
    /cut/F       the same, but each connection ends after a third of the file
    /whole/F     without ranges and without a length; the first connection ends early
    /slow/F      in a hundred small pieces
    /stall/F     half of it; then nothing more comes
    /gate/F      half of it; the rest when FOLDER has a file "open"
    /other/F     another version with each request
    /date/F      with a date, but without an ETag
    /shifted/F   a range that begins elsewhere than asked for
    /busy/F      an error of the server, twice
    /moved/F     a redirect to /plain/F
    /linked/F    the same, with the file's hash as Hugging Face sends it
    /wrong/F     the same with another hash
    /loop/F      a redirect to itself
    /ftp/F       a redirect to another protocol
    /secret/F    not allowed
    /refuses/F   half of it; no range after it, of a file of no bytes
    /alternates/F  a third of it, then half, from the start each time
    /less/F      half of it; the rest is shorter than told
    /more/F      half of it; the rest is longer than told
    /endless/F   data without an end

LOG gets a line for each request: its path, its Range and its If-Range.
"""
import hashlib
import http.server
import os
import sys
import threading
import time

LOG, FOLDER = sys.argv[1:3]
seen, lock = {}, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        with lock:
            self.count = seen[self.path] = seen.get(self.path, 0) + 1
            with open(LOG, "a", encoding="ascii") as log:
                print(self.path, self.headers.get("Range", "-"), self.headers.get("If-Range", "-"), file=log)
        _, how, name = self.path.split("?")[0].split("/", 2)
        self.how, path = how, os.path.join(FOLDER, name)
        if not os.path.isfile(path):
            return self.answer(404, b"no such file")
        with open(path, "rb") as file:
            self.data = file.read()
        getattr(self, "do_" + how, self.do_plain)()

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, to, **headers):
        self.answer(302, b"moved", Location=to, **headers)

    def begin(self):
        """Sends the headers; returns the bytes to send."""
        version = hashlib.sha256(self.data).hexdigest()[:16]
        if self.how == "other":
            version += str(self.count)
        size, wanted, start = len(self.data), self.headers.get("Range"), 0
        date = "Wed, 21 Oct 2015 07:28:00 GMT"
        tag = date if self.how == "date" else '"%s"' % version
        if wanted and self.headers.get("If-Range") in (None, tag):
            start = int(wanted[len("bytes="):-1])
        if start >= size > 0:
            self.send_response(416)
            self.send_header("Content-Range", "bytes */%d" % size)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return b""
        if self.how == "shifted" and start:
            start -= 1
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, size - 1, size))
        self.send_header("Last-Modified", date)
        if tag != date:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        return self.data[start:]

    def hang_up(self):
        self.close_connection = True

    def do_plain(self):
        self.wfile.write(self.begin())

    def do_cut(self):
        self.wfile.write(self.begin()[:len(self.data) // 3 + 1])
        self.hang_up()

    def do_whole(self):
        self.send_response(200)
        self.send_header("Connection", "close")
        if self.count == 1:
            self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data[:len(self.data) // 2] if self.count == 1 else self.data)
        self.hang_up()

    def do_slow(self):
        rest = self.begin()
        step = len(self.data) // 100 + 1
        for i in range(0, len(rest), step):
            self.wfile.write(rest[i:i + step])
            time.sleep(0.006)

    def do_stall(self):
        rest = self.begin()
        self.wfile.write(rest[:len(self.data) // 2] if self.count == 1 else rest)
        if self.count == 1:
            time.sleep(20)

    def do_gate(self):
        rest = self.begin()
        half = len(self.data) // 2
        self.wfile.write(rest[:half])
        while not os.path.exists(os.path.join(FOLDER, "open")):
            time.sleep(0.01)
        self.wfile.write(rest[half:])

    def do_busy(self):
        if self.count <= 2:
            return self.answer(503, b"busy")
        self.do_plain()

    def do_moved(self):
        self.redirect("/plain/" + self.path.split("/", 2)[2])

    def do_linked(self):
        self.redirect("/plain/" + self.path.split("/", 2)[2],
                      X_Linked_ETag='"%s"' % hashlib.sha256(self.data).hexdigest())

    def do_wrong(self):
        self.redirect("/plain/" + self.path.split("/", 2)[2], X_Linked_ETag='"%s"' % ("0" * 64))

    def do_loop(self):
        self.redirect(self.path)

    def do_ftp(self):
        self.redirect("ftp://127.0.0.1/" + self.path)

    def do_refuses(self):
        if self.headers.get("Range"):
            return self.answer(416, b"", Content_Range="bytes */0")
        self.wfile.write(self.begin()[:len(self.data) // 2])
        self.hang_up()

    def do_alternates(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data[:len(self.data) // (2 + self.count % 2)])
        self.hang_up()

    def rest(self, change):
        """Half of the file, then a part whose length is not that of its range."""
        size, half = len(self.data), len(self.data) // 2
        wanted = self.headers.get("Range")
        self.send_response(206 if wanted else 200)
        start = int(wanted[len("bytes="):-1]) if wanted else 0
        length = max(1, (size - start) // 3) if change < 0 else size - start + change
        if wanted:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, size - 1, size))
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(length if wanted else size))
        self.end_headers()
        self.wfile.write((self.data[start:] + b"x" * size)[:length] if wanted else self.data[:half])
        self.hang_up()

    def do_less(self):
        self.rest(-1)

    def do_more(self):
        self.rest(100)

    def do_endless(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(self.data)

    def do_secret(self):
        self.answer(403, b"no")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that hung up


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()  # ends with its parent
server.serve_forever()
