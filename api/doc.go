// Package api is what travels over Pinfold's socket: the requests and answers,
// their strict validation, the error codes, and a Go client.
//
// # The protocol
//
// HTTP/1.1 with JSON bodies over a Unix socket. Who is calling is what the
// kernel says of the connection (SO_PEERCRED, SO_PEERGROUPS); nothing in a
// request names the caller or changes what he may do.
//
//	POST /v1/exec           ExecRequest  → Result, or events as NDJSON with Accept: application/x-ndjson
//	POST /v1/check          CheckRequest → CheckAnswer; nothing runs
//	POST /v1/sessions       SessionRequest → SessionAnswer; GET lists the caller's own
//	GET, DELETE /v1/sessions/{id}        → SessionAnswer
//	POST /v1/sessions/{id}/batch  BatchRequest → BatchAnswer
//	GET  /v1/status                      → Status
//	GET  /v1/trace?run=&limit=           → TraceAnswer, the caller's own records
//	GET  /v1/policy/summary?project=     → PolicySummary, what commands may do there
//	GET  /v1/policy/schema.json          → the JSON Schema of policy files
//	GET  /v1/openapi.yaml                → the description of all this
//	GET  /healthz                        → {"success": true}
//
// Everything that is not a finished run is answered by an ErrorAnswer, with the
// HTTP status of its [Code]. Every answer names the daemon's build in the
// header Pinfold-Build.
//
// # What holds
//
//   - A request is taken as written or refused: unknown fields, wrong types,
//     repeated fields, trailing data, NUL and invalid UTF-8 (lone surrogates
//     too) are errors. Field names are compared byte by byte.
//   - A refusal names at most five fields and never repeats a value.
//   - Output that is not valid UTF-8 is not bent into it: it travels as base64
//     and says so.
//   - The client talks only to a socket whose peer is root or its own user.
//
// The package depends on neither the policy nor the confinement, nor on
// net/http, so that a program that only calls the daemon stays small and starts
// at once: net/http alone would triple the start of cmd/pinfold beyond that of
// the Go runtime.
package api
