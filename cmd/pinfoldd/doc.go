// Pinfoldd is the daemon of Pinfold: it runs the shell commands that coding
// agents ask for, each bounded by the kernel to what its decision grants.
//
// Usage:
//
//	pinfoldd          as root: the daemon of this machine, for all its users
//	pinfoldd --user   the daemon of one user
//
// It listens on a Unix socket, writes a trace in its state directory, and ends
// on SIGTERM, SIGINT or SIGHUP: it stops accepting, ends every run, records
// that, and removes its socket. A command that was running is killed with all
// its processes, also when the daemon itself is killed.
//
// The exit status is 0 after an orderly end, 1 after a failure, 2 for wrong
// usage.
package main
