// Package trace keeps the record of every decision and of what came of it: an
// append-only file of NDJSON records in a hash chain.
//
// # A record
//
// One line is one JSON object. It begins with its number, time and the hash of
// the record before it, and ends with its own hash:
//
//	{"seq":7,"time":"…","prev":"<64 hex>","event":"decided",…,"hash":"<64 hex>"}
//
// The hash is SHA-256 over the line's bytes without its hash member, that is up
// to `,"hash":` and with a closing brace. The first record's prev is all zeros.
//
// Events are "start" (the log was opened; what was repaired), "decided" (before
// a command starts, or when it may not), "finished" (after it ended) and "stop".
// A decided record with approved=true is followed by exactly one finished record
// of the same run; when the daemon died in between, the next start writes it
// with error_type "interrupted".
//
// # What holds
//
//   - A decision is on the file before [Log.Decide] returns: one write(2), so
//     that it survives the death of any process. It reaches the disk within
//     about a second.
//
//   - Room for the outcome is allocated before the decision is written, so that
//     a full disk cannot suppress an outcome: it refuses the next command.
//
//   - Two logs cannot be open on one file.
//
//   - A torn last line (power loss in the middle of a write) is removed when the
//     log is opened, and the start record says so. So does it of any other
//     damage, which stays where it is: [Verify] finds it ever after.
//
//   - No record has a recognisable secret or the name of a home directory: see
//     trace/redact. Where something was taken out of a command, the record says
//     redacted, and its text is not what was judged.
//
// # Not promised
//
// Records are not signed: whoever may write the file can make a whole new
// chain, and cutting off records at the end leaves no mark. The file
// is not rotated: it grows until the daemon is stopped and it is moved away.
package trace
