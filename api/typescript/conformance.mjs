// Answers the cases of conformance.json: one JSON line for each.
//
//   node conformance.mjs CASES SOCKET PROJECT
import fs from "node:fs"
import { Client, PinfoldError } from "./pinfold.js"

const [cases, socket, project] = process.argv.slice(2)
const client = new Client(socket)

function seen(events) {
  const out = Buffer.concat(events.filter((e) => e.event === "stdout").map((e) => e.raw))
  const names = events.map((e) => e.event).filter((name, i, all) => name !== all[i - 1])
  const answer = { events: names, stdout_size: out.length, exit_code: events.at(-1)?.exit_code ?? null }
  if (out.length < 1000) Object.assign(answer, { stdout_base64: out.toString("base64"), stdout: out.toString() })
  return answer
}

async function answer(c) {
  const options = { project, ...c.options }
  if (c.stdin_base64) options.stdin = Buffer.from(c.stdin_base64, "base64")
  switch (c.call) {
    case "exec":
    case "check":
      return client[c.call](c.command, options)
    case "stream": {
      const events = []
      for await (const event of client.stream(c.command, options)) events.push(event)
      return seen(events)
    }
    case "cancel": {
      const events = []
      const stop = new AbortController()
      try {
        for await (const event of client.stream(c.command, { ...options, signal: stop.signal })) {
          events.push(event)
          if (event.event === "stdout") stop.abort()
        }
      } catch (e) {
        if (e.name !== "AbortError") throw e
      }
      return seen(events)
    }
    case "background": {
      const { run } = await client.background(c.command, options)
      if (c.write) await client.writeStdin(run, c.write, { close: true })
      if (c.signal) await client.signal(run, c.signal)
      let output = ""
      for (let cursor = 0; ; ) {
        const now = await client.run(run, { cursor, wait_ms: 5000 })
        output += now.output.map((p) => p.data).join("")
        cursor = now.cursor
        if (now.state === "ended" && now.output.length === 0) return { output, result: now.result }
      }
    }
    case "run":
      return client.run(c.run)
    case "status":
      return client.status()
  }
  return client.policySummary(project)
}

for (const c of JSON.parse(fs.readFileSync(cases, "utf8"))) {
  try {
    console.log(JSON.stringify(await answer(c)))
  } catch (e) {
    if (!(e instanceof PinfoldError)) throw e
    const { code, retryable, at, fields, result } = e
    console.log(JSON.stringify({ error: { code, retryable, at, fields }, result }))
  }
}
