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
//     about a second, or before Decide returns when Options.Always is set.
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
//   - Segments end when they are full or the day does, are compressed, and removed
//     by age and total size; a record says up to where. The last record of each,
//     and a file beside them once a second, is a head signed with the daemon's
//     key: [VerifyFiles] misses what was cut off, and a chain that was made anew.
//
// # Not promised
//
// What came within the last second before a crash of the machine, unless
// Options.Always is set. Whoever can write the daemon's state can put an older
// trace with its own head, or another key with a new chain, in its place: keep
// the public key, and now and then a head, elsewhere.
package trace
