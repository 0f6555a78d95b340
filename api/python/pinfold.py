"""A client of pinfoldd, which judges and confines shell commands.

One file, the standard library alone, Python 3.9 and later:

    import pinfold

    client = pinfold.Client()
    result = client.exec("git status --short", project="/home/me/project")
    print(result["exit_code"], result["stdout"])

    with client.stream("make test", project="/home/me/project") as events:
        for event in events:
            if event["event"] == "stdout":
                print(event["data"], end="")

A request that the daemon refuses, and a run that it ended, raise Error, whose code says
why; what ran until then is in its result. Leaving a stream early, or cancelling the task
of an AsyncClient, ends the run. Requests and answers are the API's own: openapi.yaml
describes every member.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import socket
import struct
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Tuple, TypedDict, Union
from urllib.parse import quote, urlencode

__all__ = ["Client", "AsyncClient", "Error", "Result", "Event", "CheckAnswer", "RunAnswer", "Decision", "Grant", "find_socket"]

SYSTEM_SOCKET = "/run/pinfold/agent.sock"
_MAX_ANSWER = 64 << 20  # bytes of an answer or an event that are read
_EVENTS = "application/x-ndjson"


class At(TypedDict, total=False):
    """A place in the command: line and column count from 1."""

    line: int
    column: int
    text: str


class Reason(TypedDict, total=False):
    rule: str
    verdict: str
    risk: str
    message: str
    suggest: str
    at: At


class Decision(TypedDict, total=False):
    verdict: str  # allow, deny or require_approval
    risk: str  # low, medium or high
    rules: List[str]
    reasons: List[Reason]
    timeout_ms: int
    text: str  # what was judged, and runs
    policy: str


class Grant(TypedDict, total=False):
    """The most that a command may do."""

    write: List[str]
    protected: List[str]
    exec: List[str]
    exec_any: bool
    net: Dict[str, Any]


class Outcome(TypedDict, total=False):
    success: bool
    error: Dict[str, Any]
    state_changed: bool
    run: str
    exit_code: Optional[int]
    signal: Optional[str]
    truncated: Dict[str, int]
    final_dir: Optional[str]
    ended_children: int
    redactions: Dict[str, int]
    denied: List[Dict[str, str]]
    hidden: List[str]
    decision: Decision
    grant: Grant
    receipt: Dict[str, Any]
    usage: Dict[str, Any]


class Result(Outcome, total=False):
    stdout: str
    stderr: str
    encoding: Dict[str, str]  # which streams are base64, not text


class Event(Outcome, total=False):
    """An event of a run: event is approval, decided, started, stdout, stderr or finished."""

    event: str
    sequence: int
    data: str  # of stdout and stderr, or "" where raw alone holds it
    encoding: Any
    raw: bytes  # of stdout and stderr: the bytes
    approval: Dict[str, Any]


class CheckAnswer(TypedDict, total=False):
    success: bool
    decision: Decision
    grant: Grant


class RunAnswer(TypedDict, total=False):
    success: bool
    run: str
    state: str  # running or ended
    output: List[Dict[str, str]]
    cursor: int
    dropped: int
    result: Outcome


class Error(Exception):
    """What the daemon answered instead of a result.

    code is stable (PERMISSION_DENIED, TIMEOUT, …), at says where in the command, and
    result is there when the command had been started.
    """

    def __init__(self, error: Dict[str, Any], status: int, result: Optional[Result] = None) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code: str = error.get("code", "INTERNAL")
        self.message: str = error.get("message", "")
        self.rule: Optional[str] = error.get("rule")
        self.at: Optional[At] = error.get("at")
        self.retryable: bool = bool(error.get("retryable"))
        self.recommended_action: str = error.get("recommended_action", "")
        self.fields: List[str] = error.get("fields", [])
        self.status = status
        self.result = result


def find_socket() -> str:
    """The daemon's socket: $PINFOLD_SOCKET, the machine's, else the user's own."""
    named = os.environ.get("PINFOLD_SOCKET")
    if named:
        return named
    if os.path.exists(SYSTEM_SOCKET):
        return SYSTEM_SOCKET
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return os.path.join(runtime, "pinfold", "agent.sock")


def _check_peer(s: socket.socket, path: str) -> None:
    """Only root and the user are talked to: what is asked is nobody else's business."""
    data = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", data)
    if uid not in (0, os.geteuid()):
        raise PermissionError(f"{path}: is served by uid {uid}, which is neither root nor you")


# What both clients share: a request is (method, target, accept, body).
_Request = Tuple[str, str, str, Optional[bytes]]


def _exec(command: str, project: Optional[str], accept: str, options: Dict[str, Any]) -> _Request:
    stdin = options.get("stdin")
    if isinstance(stdin, bytes):
        options = {**options, "stdin": base64.b64encode(stdin).decode(), "stdin_encoding": "base64"}
    body = {"project": os.path.abspath(project or os.getcwd()), "command": command, **options}
    return "POST", "/v1/exec", accept, json.dumps(body, ensure_ascii=False).encode("utf-8")


def _check(command: str, project: Optional[str], options: Dict[str, Any]) -> _Request:
    body = {"project": os.path.abspath(project or os.getcwd()), "command": command, **options}
    return "POST", "/v1/check", "application/json", json.dumps(body, ensure_ascii=False).encode("utf-8")


def _about(run: str, what: str, body: Dict[str, Any]) -> _Request:
    return "POST", f"/v1/runs/{quote(run, safe='')}/{what}", "application/json", json.dumps(body).encode()


def _stdin(run: str, data: Union[str, bytes], close: bool) -> _Request:
    if isinstance(data, str):
        data = data.encode()
    return _about(run, "stdin", {"data": base64.b64encode(data).decode(), "encoding": "base64", "close": close})


def _get(path: str, **query: Any) -> _Request:
    given = {k: v for k, v in query.items() if v}
    return "GET", path + ("?" + urlencode(given) if given else ""), "application/json", None


def _run(run: str, cursor: int, wait_ms: int) -> _Request:
    return _get("/v1/runs/" + quote(run, safe=""), cursor=cursor, wait_ms=wait_ms)


def _answer(status: int, data: bytes) -> Any:
    """The decoded answer; raises the error that it carries."""
    if len(data) > _MAX_ANSWER:
        raise ValueError("the daemon's answer is too long")
    answer = json.loads(data)
    if status != 200 or answer.get("success") is False:
        error = answer.get("error") or {"code": "INTERNAL", "message": f"status {status} and no error"}
        raise Error(error, status, answer if "usage" in answer else None)
    return answer


def _event(line: bytes) -> Event:
    event: Event = json.loads(line)
    if event["event"] in ("stdout", "stderr"):
        if event.get("encoding") == "base64":
            event["raw"] = base64.b64decode(event["data"])
            event["data"] = event["raw"].decode("utf-8", "replace")
        else:
            event["raw"] = event["data"].encode()
    return event


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self.path)
            _check_peer(self.sock, self.path)
        except BaseException:
            self.sock.close()
            raise


class Stream:
    """The events of one run, in order. Closing it before the last one ends the run; any
    thread may do that."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self._connection, self._response = connection, response

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        last = ""
        while last != "finished":
            line = self._response.readline(_MAX_ANSWER)
            if not line.endswith(b"\n"):
                raise ConnectionError("the daemon's events ended early")
            event = _event(line)
            last = event["event"]
            yield event
        self.close()

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._response.close()
        self._connection.close()


class Client:
    """Calls the daemon, one connection for each call; any number of threads may share it."""

    def __init__(self, socket_path: Optional[str] = None) -> None:
        self.socket_path = socket_path or find_socket()

    def _open(self, request: _Request) -> Tuple[_Connection, http.client.HTTPResponse]:
        method, target, accept, body = request
        connection = _Connection(self.socket_path)
        try:
            headers = {"Accept": accept, **({"Content-Type": "application/json"} if body else {})}
            connection.request(method, target, body, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _call(self, request: _Request) -> Any:
        connection, response = self._open(request)
        try:
            return _answer(response.status, response.read(_MAX_ANSWER + 1))
        finally:
            connection.close()

    def exec(self, command: str, *, project: Optional[str] = None, **options: Any) -> Result:
        """Runs a command and returns how it ended. The options are members of the
        request: cwd, timeout_ms, output_limit, stdin (text or bytes), unattended, …"""
        return self._call(_exec(command, project, "application/json", options))

    def stream(self, command: str, *, project: Optional[str] = None, **options: Any) -> Stream:
        """Runs a command and returns its events as they come. Raises when it is refused."""
        connection, response = self._open(_exec(command, project, _EVENTS, options))
        if response.getheader("Content-Type") != _EVENTS:
            try:
                _answer(response.status, response.read(_MAX_ANSWER + 1))
            finally:
                connection.close()
            raise ConnectionError("the daemon sent no events")
        return Stream(connection, response)

    def background(self, command: str, *, project: Optional[str] = None, **options: Any) -> RunAnswer:
        """Starts a command that runs on, and returns when it has started."""
        return self._call(_exec(command, project, "application/json", {**options, "background": True}))

    def check(self, command: str, *, project: Optional[str] = None, **options: Any) -> CheckAnswer:
        """How the command would be decided; nothing runs."""
        return self._call(_check(command, project, options))

    def run(self, run: str, *, cursor: int = 0, wait_ms: int = 0) -> RunAnswer:
        """A run and its output from the cursor on; waits for some, or for its end."""
        return self._call(_run(run, cursor, wait_ms))

    def runs(self) -> List[RunAnswer]:
        return self._call(_get("/v1/runs"))["runs"]

    def signal(self, run: str, name: str = "SIGTERM") -> None:
        self._call(_about(run, "signal", {"signal": name}))

    def write_stdin(self, run: str, data: Union[str, bytes], *, close: bool = False) -> None:
        """Writes up to 512 KiB to the stdin of a run; waits while it does not read."""
        self._call(_stdin(run, data, close))

    def resize(self, run: str, columns: int, rows: int) -> None:
        self._call(_about(run, "resize", {"columns": columns, "rows": rows}))

    def status(self) -> Dict[str, Any]:
        return self._call(_get("/v1/status"))

    def policy_summary(self, project: Optional[str] = None) -> Dict[str, Any]:
        return self._call(_get("/v1/policy/summary", project=os.path.abspath(project or os.getcwd())))

    def trace(self, **query: Any) -> List[Dict[str, Any]]:
        """The caller's own records that match: run, limit, …"""
        return self._call(_get("/v1/trace", **query))["records"]


class _AsyncAnswer:
    """The answer to one request on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status, self.headers = 0, {}  # type: int, Dict[str, str]

    async def head(self) -> None:
        self.status = int((await self.reader.readline()).split()[1])
        while True:
            line = (await self.reader.readline()).decode("latin-1").strip()
            if not line:
                return
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            yield await self.reader.readexactly(int(self.headers.get("content-length", "0")))
            return
        while True:
            size = int((await self.reader.readline()).split(b";")[0], 16)
            if size > _MAX_ANSWER:
                raise ValueError("the daemon's answer is too long")
            data = await self.reader.readexactly(size)
            await self.reader.readline()
            if size == 0:
                return
            yield data

    async def body(self) -> Any:
        data = b""
        async for piece in self.pieces():
            data += piece
        return _answer(self.status, data)

    async def events(self) -> AsyncIterator[Event]:
        rest, last = b"", ""
        async for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                event = _event(line)
                last = event["event"]
                yield event
            if len(rest) > _MAX_ANSWER:
                raise ValueError("the daemon's event is too long")
        if last != "finished":
            raise ConnectionError("the daemon's events ended early")


class AsyncClient:
    """Client for asyncio. Cancelling a call ends its run."""

    def __init__(self, socket_path: Optional[str] = None) -> None:
        self.socket_path = socket_path or find_socket()

    async def _open(self, request: _Request) -> _AsyncAnswer:
        method, target, accept, body = request
        reader, writer = await asyncio.open_unix_connection(self.socket_path, limit=1 << 20)
        try:
            _check_peer(writer.get_extra_info("socket"), self.socket_path)
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
            if body is not None:
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode("latin-1") + b"\r\n" + (body or b""))
            await writer.drain()
            answer = _AsyncAnswer(reader, writer)
            await answer.head()
            return answer
        except BaseException:
            writer.close()
            raise

    async def _call(self, request: _Request) -> Any:
        answer = await self._open(request)
        try:
            return await answer.body()
        finally:
            answer.writer.close()

    async def exec(self, command: str, *, project: Optional[str] = None, **options: Any) -> Result:
        return await self._call(_exec(command, project, "application/json", options))

    async def stream(self, command: str, *, project: Optional[str] = None, **options: Any) -> AsyncIterator[Event]:
        """Yields the events of a run. Closing the iterator (aclose) ends the run."""
        answer = await self._open(_exec(command, project, _EVENTS, options))
        try:
            if answer.headers.get("content-type") != _EVENTS:
                await answer.body()
                raise ConnectionError("the daemon sent no events")
            async for event in answer.events():
                yield event
        finally:
            answer.writer.close()

    async def background(self, command: str, *, project: Optional[str] = None, **options: Any) -> RunAnswer:
        return await self._call(_exec(command, project, "application/json", {**options, "background": True}))

    async def check(self, command: str, *, project: Optional[str] = None, **options: Any) -> CheckAnswer:
        return await self._call(_check(command, project, options))

    async def run(self, run: str, *, cursor: int = 0, wait_ms: int = 0) -> RunAnswer:
        return await self._call(_run(run, cursor, wait_ms))

    async def runs(self) -> List[RunAnswer]:
        return (await self._call(_get("/v1/runs")))["runs"]

    async def signal(self, run: str, name: str = "SIGTERM") -> None:
        await self._call(_about(run, "signal", {"signal": name}))

    async def write_stdin(self, run: str, data: Union[str, bytes], *, close: bool = False) -> None:
        await self._call(_stdin(run, data, close))

    async def resize(self, run: str, columns: int, rows: int) -> None:
        await self._call(_about(run, "resize", {"columns": columns, "rows": rows}))

    async def status(self) -> Dict[str, Any]:
        return await self._call(_get("/v1/status"))

    async def policy_summary(self, project: Optional[str] = None) -> Dict[str, Any]:
        return await self._call(_get("/v1/policy/summary", project=os.path.abspath(project or os.getcwd())))

    async def trace(self, **query: Any) -> List[Dict[str, Any]]:
        return (await self._call(_get("/v1/trace", **query)))["records"]
