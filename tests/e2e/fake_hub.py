"""A hub on this machine: the part of huggingface.co that downloads use, and its bad days.

`hub` answers the list of a repository's files and resolves them; what is in LFS it redirects to
`cdn`, another port under another host name, which must never see a token. Rules make it misbehave:
each takes the requests whose path holds its text, as many times as it says. As an HTTP proxy `hub`
stands in for both.
"""

import contextlib
import hashlib
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 64 * 1024
TREE = object()


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@dataclass
class Repo:
    files: dict
    lfs: set = field(default_factory=set)
    commit: str = ""
    revisions: dict = field(default_factory=dict)  # branch or tag: commit
    listed: list = None  # names that the list says, where it lies
    token: str = None  # private: only with this one
    gated: bool = False

    def __post_init__(self):
        self.commit = self.commit or git_sha1(repr(sorted(self.files.items())).encode())
        self.revisions = {"main": self.commit, self.commit: self.commit, **self.revisions}

    def etag(self, name):
        return (sha256 if name in self.lfs else git_sha1)(self.files[name])


@dataclass
class Rule:
    """What happens to the next `times` requests whose path holds `text`, of one method or any."""

    text: str
    times: int = 1
    method: str = None
    status: int = None  # answer with this status
    headers: dict = field(default_factory=dict)  # added to the answer; None: left out
    cut_after: int = None  # close the connection after so many bytes of the body
    hang: bool = False  # take the request and say nothing
    hang_after: int = None  # stop in the middle of the body, and say nothing more
    throttle: int = None  # bytes a second
    held: bool = False  # send no more of the body than FakeHub.let() allows
    content: bytes = None  # another content under the same ETag and size
    no_range: bool = False  # answer a range with the whole
    redirect: str = None  # to this address


@dataclass
class Seen:
    server: str
    method: str
    path: str
    headers: dict

    @property
    def token(self):
        return self.headers.get("authorization")


class FakeHub:
    def __init__(self, hub_certificate=None, cdn_certificate=None):
        self.repos, self.renamed, self.rules, self.seen = {}, {}, [], []
        self.num_bytes_sent = 0  # of bodies
        self.num_let = 0
        self.lock = threading.Lock()
        self.let_more = threading.Condition(self.lock)
        self.stopped = threading.Event()
        self.servers = {}
        self.certificates = {"hub": hub_certificate, "cdn": cdn_certificate}
        for name, certificate in self.certificates.items():
            handler = type("Handler", (_Handler,), {"fake": self, "server_name": name})
            server = _Server(("127.0.0.1", 0), handler)
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers[name] = server

    @property
    def url(self):
        return self.address("hub", "127.0.0.1")

    @property
    def cdn_url(self):
        return self.address("cdn", "localhost")

    def address(self, name, host):
        scheme = "https" if self.certificates[name] else "http"
        return f"{scheme}://{host}:{self.servers[name].server_port}"

    def add(self, name, files, **options):
        self.repos[name] = Repo(files, **options)
        return self.repos[name]

    def rule(self, text, **options):
        self.rules.append(Rule(text, **options))

    def hold(self, text, num_bytes=0, times=99):
        """Of what is asked for under a path that holds this text no more is sent until let()."""
        self.let(num_bytes)
        self.rule(text, method="GET", held=True, times=times)

    def hold_weights(self, name, num_bytes=0):
        self.hold(self.repos[name].etag("model.safetensors"), num_bytes)

    def let(self, num_bytes):
        """So many bytes of each file that is held are sent."""
        with self.lock:
            self.num_let = num_bytes
            self.let_more.notify_all()

    def let_go(self):
        self.let(1 << 60)

    def wait_at(self, offset):
        """Of a file that is held."""
        with self.lock:
            self.let_more.wait_for(lambda: offset < self.num_let)

    def take_rule(self, method, path):
        with self.lock:
            for rule in self.rules:
                if rule.times > 0 and rule.text in path and rule.method in (None, method):
                    rule.times -= 1
                    return rule
        return Rule("")

    def requests(self, text="", method=None, server=None):
        with self.lock:
            return [s for s in self.seen if text in s.path and method in (None, s.method)
                    and server in (None, s.server)]

    def close(self):
        self.stopped.set()
        self.let_go()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that leave in the middle are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake = None
    server_name = ""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(address.path)
        headers = {k.lower(): v for k, v in self.headers.items()}
        with self.fake.lock:
            self.fake.seen.append(Seen(self.server_name, self.command, path, headers))
        self.rule = self.fake.take_rule(self.command, path)
        with contextlib.suppress(ConnectionError):
            if self.rule.hang:
                self.fake.stopped.wait(60)
                self.close_connection = True
            elif self.rule.redirect:
                self.answer(302, b"", {"Location": self.rule.redirect})
            elif self.rule.status:
                self.answer(self.rule.status, b'{"error": "a rule of the test"}', {})
            elif self.server_name == "cdn" or self.fake.cdn_url.endswith(address.netloc or "-"):
                self.cdn(path)
            else:
                self.hub(path)

    def error(self, status, code, message, **headers):
        self.answer(status, b"", {"X-Error-Code": code, "X-Error-Message": message, **headers})

    def hub(self, path):
        match = re.fullmatch(r"/api/models/(.+?)/revision/(.+)", path)
        if match:
            return self.with_repo(*match.groups(), None)
        match = re.fullmatch(r"/api/models/(.+?)/tree/([^/]+)", path)
        if match:
            return self.with_repo(*match.groups(), TREE)
        match = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        if match:
            return self.with_repo(*match.groups())
        return self.error(404, "", "no such page")

    def with_repo(self, name, revision, file):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if name in self.fake.renamed:
            path = self.path.replace("/" + name + "/", "/" + self.fake.renamed[name] + "/", 1)
            return self.answer(307, b"", {"Location": path})
        repo = self.fake.repos.get(name)
        if token == "bad":
            return self.error(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.token and token != repo.token):
            return self.error(404 if token else 401, "RepoNotFound", "Repository not found")
        if repo.gated and file:
            return self.error(403 if token else 401, "GatedRepo", "Access to model is restricted")
        if revision not in repo.revisions:
            return self.error(404, "RevisionNotFound", "Invalid rev id: " + revision)
        if file is None:
            return self.list(name, repo, revision)
        if file is TREE:
            return self.tree(repo)
        if file not in repo.files:
            commit = {"X-Repo-Commit": repo.revisions[revision]}
            return self.error(404, "EntryNotFound", "Entry not found", **commit)
        return self.resolve(name, repo, revision, file)

    def list(self, name, repo, revision):
        names = sorted(repo.files) if repo.listed is None else repo.listed
        body = {"id": name, "sha": repo.revisions[revision], "private": bool(repo.token),
                "siblings": [{"rfilename": n} for n in names], "tags": [], "downloads": 1}
        text = json.dumps(body).encode() if self.rule.content is None else self.rule.content
        self.answer(200, text, {"Content-Type": "application/json"})

    def tree(self, repo):
        """The list that huggingface_hub 2 asks for besides the other."""
        entries = []
        for name, content in sorted(repo.files.items()):
            entry = {"type": "file", "path": name, "size": len(content), "oid": git_sha1(content)}
            if name in repo.lfs:
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        self.answer(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def resolve(self, name, repo, revision, file):
        content = repo.files[file]
        headers = {"X-Repo-Commit": repo.revisions[revision]}
        if file not in repo.lfs:
            return self.send_content(content, {**headers, "ETag": f'"{repo.etag(file)}"'})
        headers |= {"X-Linked-Etag": f'"{repo.etag(file)}"', "X-Linked-Size": str(len(content)),
                    "ETag": '"of-the-pointer"',
                    "Location": f"{self.fake.cdn_url}/{name}/{repo.etag(file)}?signature=abc"}
        return self.answer(302, b"Found. Redirecting", headers)

    def cdn(self, path):
        for repo in self.fake.repos.values():
            for name in repo.lfs:
                if path.endswith("/" + repo.etag(name)):
                    return self.send_content(repo.files[name], {"ETag": '"of-the-store"'})
        return self.error(404, "", "no such object")

    def send_content(self, content, headers):
        if self.rule.content is not None:
            content = self.rule.content
        headers["Accept-Ranges"] = "bytes"
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match or self.rule.no_range:
            return self.answer(200, content, headers)
        begin = int(match[1])
        if begin >= len(content):
            headers["Content-Range"] = f"bytes */{len(content)}"
            return self.answer(416, b"", headers)
        end = min(int(match[2]) + 1, len(content)) if match[2] else len(content)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        return self.answer(206, content[begin:end], headers)

    def answer(self, status, body, headers):
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), **headers, **self.rule.headers}
        for key, value in headers.items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = min([len(body)] + [n for n in (self.rule.cut_after, self.rule.hang_after)
                                 if n is not None])
        chunk = CHUNK if self.rule.throttle is None else max(1, self.rule.throttle // 20)
        for begin in range(0, end, chunk):
            piece = body[begin:min(begin + chunk, end)]
            if self.rule.held:
                self.fake.wait_at(begin)
            self.wfile.write(piece)
            with self.fake.lock:
                self.fake.num_bytes_sent += len(piece)
            if self.rule.throttle is not None and not self.fake.stopped.is_set():
                time.sleep(0.05)
        if self.rule.hang_after is not None:
            self.fake.stopped.wait(60)
        if end < len(body):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
