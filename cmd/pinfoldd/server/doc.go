// Package server answers the requests of Pinfold's API: it finds out who calls,
// has the command parsed, judged, recorded and run, and says how it ended.
//
// # The path of a command
//
//	accept     who connected, as the kernel says (SO_PEERCRED, SO_PEERGROUPS)
//	read       at most 1 MiB, within 10 s
//	validate   package api
//	slot       at most 16 at once for a caller
//	judge      project, its own policy and directory, as the caller; parse; decide: within 5 s
//	record     the decision, or nothing runs
//	run        package confine, with the decision's grant and canonical text
//	record     the outcome
//	answer     each write within 10 s
//
// # What holds
//
//   - There is no request without an identity, and no field of a request that
//     names one.
//   - Whatever the project says is looked up with the caller's file system ids
//     and never waited for longer than 5 s. Nothing of it is opened for reading
//     but .pinfold.toml, a plain file of at most 64 KiB, which can only tighten.
//   - A caller that goes away ends its run. A caller that does not read delays
//     neither the end of its run nor its record by more than 10 s.
//   - Sessions, runs and approvals are looked up with their owner: another's
//     answers as none does.
//   - A session only takes away. That it is read-only is looked at twice: what is
//     known to write is refused when it is judged, and its commands are granted
//     nothing for writing whatever was decided.
//   - What is kept of a run in memory is bounded: 8 bytes for each character of
//     the JSON answer's limit, or 1 MiB of events.
package server
