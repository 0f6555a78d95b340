// Types of pinfold.js. openapi.yaml describes every member.

export interface At { line: number; column: number; text: string }
export interface Reason { rule: string; verdict: string; risk: string; message: string; suggest?: string; at: At }
export interface Decision {
  verdict: "allow" | "deny" | "require_approval"
  risk: "low" | "medium" | "high"
  rules: string[]
  reasons: Reason[]
  timeout_ms: number
  text: string
  policy: string
}
/** The most that a command may do. */
export interface Grant { write: string[]; protected: string[]; exec?: string[]; exec_any: boolean; net: { hosts: string[] } }
export interface Outcome {
  success: boolean
  error?: { code: string; message: string; [more: string]: unknown }
  state_changed?: boolean
  run: string
  exit_code: number | null
  signal: string | null
  truncated: { stdout: number; stderr: number }
  final_dir: string | null
  ended_children: number
  redactions?: Record<string, number>
  denied: { what: string; path: string }[]
  hidden: string[]
  decision: Decision | null
  grant: Grant | null
  receipt: Record<string, unknown> | null
  usage: Record<string, unknown> | null
}
export interface Result extends Outcome { stdout: string; stderr: string; encoding?: { stdout?: "base64"; stderr?: "base64" } }

export type Event =
  | { event: "approval"; approval: Record<string, unknown> }
  | { event: "decided"; run: string; decision: Decision; grant: Grant }
  | { event: "started"; run: string; receipt: Record<string, unknown> }
  | { event: "stdout" | "stderr"; sequence: number; data: string; encoding?: "base64"; raw: Buffer }
  | ({ event: "finished" } & Outcome)

export interface ExecOptions {
  /** absolute, or relative to the current directory, which is the default */
  project?: string
  cwd?: string
  timeout_ms?: number
  output_limit?: number
  plain?: boolean
  unattended?: boolean
  reads_only?: boolean
  stdin?: string | Uint8Array
  stdin_stream?: boolean
  merge_stderr?: boolean
  tty?: boolean
  columns?: number
  rows?: number
  limits?: Record<string, number>
  /** aborting it ends the run */
  signal?: AbortSignal
}
export interface CheckOptions { project?: string; cwd?: string; explain?: boolean; reads_only?: boolean; signal?: AbortSignal }
export interface RunAnswer {
  success: true
  run: string
  state: "running" | "ended"
  output: { stream: "stdout" | "stderr"; data: string; encoding?: "base64" }[]
  cursor: number
  dropped: number
  result?: Outcome
  [more: string]: unknown
}

/** What the daemon answered instead of a result; result is there when the command had been started. */
export class PinfoldError extends Error {
  code: string
  rule?: string
  at?: At
  retryable: boolean
  recommendedAction: string
  fields: string[]
  status: number
  result?: Result
}

export function findSocket(): string

export class Client {
  constructor(socketPath?: string)
  readonly socketPath: string
  exec(command: string, options?: ExecOptions): Promise<Result>
  /** Leaving the loop early ends the run. */
  stream(command: string, options?: ExecOptions): AsyncGenerator<Event, void, void>
  background(command: string, options?: ExecOptions): Promise<RunAnswer>
  check(command: string, options?: CheckOptions): Promise<{ success: true; decision: Decision; grant: Grant; [more: string]: unknown }>
  run(run: string, options?: { cursor?: number; wait_ms?: number; signal?: AbortSignal }): Promise<RunAnswer>
  runs(): Promise<RunAnswer[]>
  signal(run: string, name?: string): Promise<void>
  writeStdin(run: string, data: string | Uint8Array, options?: { close?: boolean }): Promise<void>
  resize(run: string, columns: number, rows: number): Promise<void>
  status(): Promise<Record<string, unknown>>
  policySummary(project?: string): Promise<Record<string, unknown>>
  trace(match?: Record<string, string | number>): Promise<Record<string, unknown>[]>
}
