// Pinfold runs a shell command so that the kernel holds it to what it was
// judged to do. It is the client of pinfoldd, and starts one for the calling
// user when none is there.
//
// Usage:
//
//	pinfold run [flags] 'git status && ls'   run shell text
//	pinfold run [flags] git status           run words, quoted for the shell
//	pinfold check [flags] 'git status'       show the decision, run nothing
//	pinfold explain [flags] 'git status'     show how the decision comes about
//	pinfold policy check|show|test|diff      about policy files; executes pinfoldd
//	pinfold policy summary|reload            about the policy that is in force
//	pinfold setup [flags] AGENT              have a coding agent's commands judged
//	pinfold mcp [flags]                      serve the Model Context Protocol; executes pinfold-mcp
//	pinfold hook AGENT                       answer the hook of a coding agent
//	pinfold sh -c 'git status'               be a shell for programs that start one
//	pinfold shim install|remove DIR          sh, bash and zsh that are pinfold sh
//	pinfold approvals [list|show|allow|deny|revoke|watch]  what waits for a yes
//	pinfold halt, pinfold resume             end every run and let none start
//	pinfold doctor                           show every layer of the confinement
//	pinfold trace [ls|show|tail|stats] [flags]  show your own records, or everybody's with --all
//	pinfold trace verify [flags]             check the chain and the signatures; executes pinfoldd
//	pinfold eval [flags] TASKS.jsonl         run tasks and compare the trace with what they expect; executes pinfoldd
//	pinfold replay --policy NEW TRACE        decide recorded commands again, run nothing; executes pinfoldd
//	pinfold completion bash|zsh|fish         print what completes commands in that shell
//	pinfold man                              print the manual page
//	pinfold --version
//
// Commands of run and sh read the client's standard input when it is a pipe or a
// file, those of sh also a socket. The client reads ahead: what a command leaves is
// gone for the next one.
//
// The exit status of run is the command's, 128 and the signal's number when a
// signal ended it, 124 when its time was over, 126 when it was denied, not
// approved or could not be parsed, 125 when Pinfold itself failed. That of check
// and explain is 0 for allow, 3 for ask, 126 for deny. That of doctor is 1 when a layer is
// missing. That of policy is 0 when the file is good, or when nothing differs, 1
// when not, 2 after a failure. That of hook is 0, or 2, a denial to every
// agent, when it failed. Wrong usage is 125 for run and check, else 2.
package main
