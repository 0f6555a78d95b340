// Pinfoldd is the daemon of Pinfold: it runs the shell commands that coding
// agents ask for, each bounded by the kernel to what its decision grants.
//
// Usage:
//
//	pinfoldd          as root: the daemon of this machine, for all its users
//	pinfoldd --user   the daemon of one user
//
// It reads the site's policy, /etc/pinfold/policy.toml or the user's
// ~/.config/pinfold/policy.toml, and reads it again on SIGHUP; while that file is
// bad the policy before it stays in force. Policy files are checked, shown, tested
// and compared by
//
//	pinfoldd policy check|show|test|diff
//
// which pinfold policy executes.
//
// Where it works and what bounds it is said by /etc/pinfold/pinfold.toml, or the
// user's: settings.go lists the keys, pinfoldd manual prints them as a manual page,
// pinfoldd --check-config says what is wrong. What a reload takes of it is read
// again with the policy. Package and units are in the directory package.
//
// It listens on a Unix socket, or takes the ones that systemd listens on, writes a
// trace in its state directory, and ends on SIGTERM or SIGINT: it stops accepting,
// ends every run, records that, and removes its socket, if it made it. A command that was running is killed with all
// its processes, also when the daemon itself is killed.
//
// The exit status is 0 after an orderly end, 1 after a failure, 2 for wrong
// usage.
package main
