"""Answers the cases of conformance.json with both clients: one JSON line for each case.

    conformance.py sync|async CASES SOCKET PROJECT
"""

import asyncio
import base64
import json
import sys

import pinfold


def options_of(case):
    options = dict(case.get("options", {}))
    if "stdin_base64" in case:
        options["stdin"] = base64.b64decode(case["stdin_base64"])
    return options


def seen(events):
    out = b"".join(e["raw"] for e in events if e["event"] == "stdout")
    names = []
    for e in events:
        if not names or names[-1] != e["event"]:
            names.append(e["event"])
    last = events[-1] if events else {}
    answer = {"events": names, "stdout_size": len(out), "exit_code": last.get("exit_code")}
    if len(out) < 1000:
        answer["stdout_base64"] = base64.b64encode(out).decode()
        answer["stdout"] = out.decode("utf-8", "replace")
    return answer


def failed(e):
    return {"error": {"code": e.code, "retryable": e.retryable, "at": e.at, "fields": e.fields}, "result": e.result}


def background(output, answer):
    return {"output": "".join(p["data"] for p in output), "result": answer["result"]}


def sync_case(client, project, case):
    call, options = case["call"], options_of(case)
    if call in ("exec", "check"):
        return getattr(client, call)(case["command"], project=project, **options)
    if call in ("stream", "cancel"):
        events = []
        with client.stream(case["command"], project=project, **options) as stream:
            for event in stream:
                events.append(event)
                if call == "cancel" and event["event"] == "stdout":
                    break
        return seen(events)
    if call == "background":
        run = client.background(case["command"], project=project, **options)["run"]
        if "write" in case:
            client.write_stdin(run, case["write"], close=True)
        if "signal" in case:
            client.signal(run, case["signal"])
        output, cursor = [], 0
        while True:
            answer = client.run(run, cursor=cursor, wait_ms=5000)
            output += answer["output"]
            cursor = answer["cursor"]
            if answer["state"] == "ended" and not answer["output"]:
                return background(output, answer)
    if call == "run":
        return client.run(case["run"])
    return client.status() if call == "status" else client.policy_summary(project)


async def async_case(client, project, case):
    call, options = case["call"], options_of(case)
    if call in ("exec", "check"):
        return await getattr(client, call)(case["command"], project=project, **options)
    if call == "stream":
        return seen([e async for e in client.stream(case["command"], project=project, **options)])
    if call == "cancel":
        events, begun = [], asyncio.Event()

        async def follow():
            async for event in client.stream(case["command"], project=project, **options):
                events.append(event)
                if event["event"] == "stdout":
                    begun.set()

        task = asyncio.ensure_future(follow())
        await begun.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        return seen(events)
    if call == "background":
        run = (await client.background(case["command"], project=project, **options))["run"]
        if "write" in case:
            await client.write_stdin(run, case["write"], close=True)
        if "signal" in case:
            await client.signal(run, case["signal"])
        output, cursor = [], 0
        while True:
            answer = await client.run(run, cursor=cursor, wait_ms=5000)
            output += answer["output"]
            cursor = answer["cursor"]
            if answer["state"] == "ended" and not answer["output"]:
                return background(output, answer)
    if call == "run":
        return await client.run(case["run"])
    return await (client.status() if call == "status" else client.policy_summary(project))


async def async_all(cases, path, project):
    client = pinfold.AsyncClient(path)
    for case in cases:
        try:
            print(json.dumps(await async_case(client, project, case)))
        except pinfold.Error as e:
            print(json.dumps(failed(e)))


def main():
    kind, cases, path, project = sys.argv[1:]
    with open(cases, encoding="utf-8") as f:
        cases = json.load(f)
    if kind == "async":
        asyncio.run(async_all(cases, path, project))
        return
    client = pinfold.Client(path)
    for case in cases:
        try:
            print(json.dumps(sync_case(client, project, case)))
        except pinfold.Error as e:
            print(json.dumps(failed(e)))


main()
