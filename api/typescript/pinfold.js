// A client of pinfoldd, which judges and confines shell commands. No dependency,
// Node 18 and later; pinfold.d.ts has the types, openapi.yaml what they mean.
//
//   import { Client } from "pinfold-client"
//   const client = new Client()
//   const result = await client.exec("git status --short", { project: "/home/me/project" })
//   for await (const event of client.stream("make test")) {
//     if (event.event === "stdout") process.stdout.write(event.raw)
//   }
//
// A request that the daemon refuses, and a run that it ended, throw PinfoldError. Leaving
// the loop of a stream, or aborting the signal, ends the run.
import fs from "node:fs"
import http from "node:http"
import path from "node:path"

const systemSocket = "/run/pinfold/agent.sock"
const maxAnswer = 64 << 20 // bytes of an answer or an event that are read
const ndjson = "application/x-ndjson"

export class PinfoldError extends Error {
  constructor(error, status, result) {
    super(`${error.code}: ${error.message}`)
    this.name = "PinfoldError"
    this.code = error.code
    this.rule = error.rule
    this.at = error.at
    this.retryable = Boolean(error.retryable)
    this.recommendedAction = error.recommended_action ?? ""
    this.fields = error.fields ?? []
    this.status = status
    this.result = result
  }
}

// findSocket returns the daemon's socket: $PINFOLD_SOCKET, the machine's, else the
// user's own.
export function findSocket() {
  if (process.env.PINFOLD_SOCKET) return process.env.PINFOLD_SOCKET
  if (fs.existsSync(systemSocket)) return systemSocket
  return path.join(process.env.XDG_RUNTIME_DIR || `/run/user/${process.geteuid()}`, "pinfold", "agent.sock")
}

// checkOwner makes sure that the socket is root's or the user's own. Node does not tell
// who listens.
function checkOwner(socketPath) {
  const { uid } = fs.statSync(socketPath)
  if (uid !== 0 && uid !== process.geteuid()) {
    throw new Error(`${socketPath}: belongs to uid ${uid}, which is neither root nor you`)
  }
}

function decodeAnswer(status, data) {
  const answer = JSON.parse(data.toString("utf8"))
  if (status !== 200 || answer.success === false) {
    const error = answer.error ?? { code: "INTERNAL", message: `status ${status} and no error` }
    throw new PinfoldError(error, status, "usage" in answer ? answer : undefined)
  }
  return answer
}

function decodeEvent(line) {
  const event = JSON.parse(line.toString("utf8"))
  if (event.event === "stdout" || event.event === "stderr") {
    event.raw = Buffer.from(event.data, event.encoding === "base64" ? "base64" : "utf8")
    if (event.encoding === "base64") event.data = event.raw.toString("utf8")
  }
  return event
}

async function readAll(response) {
  const pieces = []
  let size = 0
  for await (const piece of response) {
    pieces.push(piece)
    if ((size += piece.length) > maxAnswer) throw new Error("the daemon's answer is too long")
  }
  return Buffer.concat(pieces)
}

function execBody(command, options) {
  const { signal, project = process.cwd(), stdin, ...rest } = options
  const body = { project: path.resolve(project), command, ...rest }
  if (typeof stdin === "string") body.stdin = stdin
  else if (stdin !== undefined) Object.assign(body, { stdin: Buffer.from(stdin).toString("base64"), stdin_encoding: "base64" })
  return body
}

function query(given) {
  const set = Object.entries(given).filter(([, value]) => value)
  return set.length ? "?" + new URLSearchParams(set.map(([name, value]) => [name, String(value)])) : ""
}

// Client calls the daemon, on one connection for each call.
export class Client {
  constructor(socketPath = findSocket()) {
    this.socketPath = socketPath
  }

  #open(method, target, body, { accept = "application/json", signal } = {}) {
    return new Promise((resolve, reject) => {
      checkOwner(this.socketPath)
      const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
      const headers = { accept, host: "localhost", connection: "close" }
      if (data) Object.assign(headers, { "content-type": "application/json", "content-length": data.length })
      const request = http.request({ socketPath: this.socketPath, method, path: target, headers, agent: false, signal }, resolve)
      request.on("error", reject)
      request.end(data)
    })
  }

  async #call(method, target, body, options) {
    const response = await this.#open(method, target, body, options)
    const data = await readAll(response).catch((e) => {
      throw options?.signal?.aborted ? options.signal.reason : e
    })
    return decodeAnswer(response.statusCode, data)
  }

  exec(command, options = {}) {
    return this.#call("POST", "/v1/exec", execBody(command, options), { signal: options.signal })
  }

  async *stream(command, options = {}) {
    const response = await this.#open("POST", "/v1/exec", execBody(command, options), { accept: ndjson, signal: options.signal })
    try {
      if (response.headers["content-type"] !== ndjson) {
        decodeAnswer(response.statusCode, await readAll(response))
        throw new Error("the daemon sent no events")
      }
      let rest = Buffer.alloc(0)
      let last = ""
      for await (const piece of response) {
        rest = rest.length ? Buffer.concat([rest, piece]) : piece
        for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
          const event = decodeEvent(rest.subarray(0, end))
          last = event.event
          yield event
        }
        if (rest.length > maxAnswer) throw new Error("the daemon's event is too long")
      }
      if (last !== "finished") throw new Error("the daemon's events ended early")
    } catch (e) {
      throw options.signal?.aborted ? options.signal.reason : e
    } finally {
      response.destroy() // ends the run when it has not ended
    }
  }

  background(command, options = {}) {
    return this.#call("POST", "/v1/exec", { ...execBody(command, options), background: true }, { signal: options.signal })
  }

  check(command, options = {}) {
    return this.#call("POST", "/v1/check", execBody(command, options), { signal: options.signal })
  }

  run(run, { cursor = 0, wait_ms = 0, signal } = {}) {
    return this.#call("GET", `/v1/runs/${encodeURIComponent(run)}${query({ cursor, wait_ms })}`, undefined, { signal })
  }

  async runs() {
    return (await this.#call("GET", "/v1/runs")).runs
  }

  async #about(run, what, body) {
    await this.#call("POST", `/v1/runs/${encodeURIComponent(run)}/${what}`, body)
  }

  signal(run, name = "SIGTERM") {
    return this.#about(run, "signal", { signal: name })
  }

  writeStdin(run, data, { close = false } = {}) {
    return this.#about(run, "stdin", { data: Buffer.from(data).toString("base64"), encoding: "base64", close })
  }

  resize(run, columns, rows) {
    return this.#about(run, "resize", { columns, rows })
  }

  status() {
    return this.#call("GET", "/v1/status")
  }

  policySummary(project = process.cwd()) {
    return this.#call("GET", "/v1/policy/summary" + query({ project: path.resolve(project) }))
  }

  async trace(match = {}) {
    return (await this.#call("GET", "/v1/trace" + query(match))).records
  }
}
